"""Security context constraints of an installation, with the rights that virt-operator has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.roles import RestrictedApi, rights
from tests.unit.virtplane.compute.launcherpod.rendered_pods import instance, rendered, settings

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.resources import SECURITY_CONTEXT_CONSTRAINTS as CONSTRAINTS
from virtplane.operators.kubevirt.constraints import constraints, keep_constraints, remove_constraints
from virtplane.operators.kubevirt.strategy.operator_roles import operator_objects
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.workloads import workloads

_PARAMETERS = Parameters("kubevirt", "product:1", "distributed", ClusterConfig())
_OPERATOR = "system:serviceaccount:kubevirt:kubevirt-operator"


def _added(pod: JsonObject) -> set[str]:
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    contexts = [each.get("securityContext", {}) for each in containers]
    return {added for each in contexts for added in each.get("capabilities", {}).get("add", ())}


def _allowed(name: str) -> set[str]:
    [found] = [each for each in constraints("kubevirt") if each["metadata"]["name"] == name]
    return set(found["allowedCapabilities"])


async def test_they_are_kept_as_they_should_be_and_those_of_others_left_alone() -> None:
    api = MemoryApi([CONSTRAINTS])
    api.put(CONSTRAINTS, {"metadata": {"name": "privileged"}, "users": ["somebody"]})
    restricted = RestrictedApi(api, _OPERATOR, rights(operator_objects("kubevirt")))
    async with restricted.client() as client:
        await keep_constraints(client, _PARAMETERS)
        await client.patch(CONSTRAINTS, "kubevirt-controller", {"users": []}, type="merge")
        await keep_constraints(client, _PARAMETERS)
        found = {each["metadata"]["name"]: each["users"] for each in api.list(CONSTRAINTS)}
        assert found == {
            "kubevirt-controller": ["system:serviceaccount:kubevirt:kubevirt-controller"],
            "kubevirt-handler": ["system:serviceaccount:kubevirt:kubevirt-handler"],
            "privileged": ["somebody"],
        }
        with pytest.raises(errors.StatusError, match="privileged"):
            await client.patch(CONSTRAINTS, "privileged", {"users": []}, type="merge")
        await remove_constraints(client)
        assert [each["metadata"]["name"] for each in api.list(CONSTRAINTS)] == ["privileged"]


async def test_clusters_without_the_kind_go_without_them() -> None:
    api = MemoryApi()
    async with api.client() as client:
        await keep_constraints(client, _PARAMETERS)
        await remove_constraints(client)
    assert api.list(CONSTRAINTS) == []


@pytest.mark.parametrize("gates", [[], ["Root"]])
def test_guests_pods_have_no_capability_that_is_not_allowed(gates: list[str]) -> None:
    pod = rendered(instance(), settings(developerConfiguration={"featureGates": gates}))
    assert _added(pod) and _added(pod) <= _allowed("kubevirt-controller")


def test_virt_handlers_pod_has_none_either() -> None:
    config = settings(persistentReservationConfiguration={"enabled": True})
    found = {each["metadata"]["name"]: each for each in workloads(replace(_PARAMETERS, config=config))}
    pod = found["virt-handler"]["spec"]["template"]
    assert _added(pod) and _added(pod) <= _allowed("kubevirt-handler")
