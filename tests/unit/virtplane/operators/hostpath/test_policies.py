"""What the driver's account may not do with volumes, as the API server judges it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import Cluster

from kindling.apiserver.admission.validating_policies import ValidatingPolicies
from kindling.apiserver.registry.context import UserInfo
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    PERSISTENT_VOLUMES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from virtplane.operators.hostpath.policies import volume_restriction
from virtplane.operators.hostpath.product import DRIVER, Settings

DRIVERS = "system:serviceaccount:hpp:hostpath-provisioner-admin-csi"
MINE = {"name": "c", "namespace": "ns", "uid": "u1"}
OTHERS = {"name": "c", "namespace": "evil", "uid": "u2"}


class Api:
    """The admission of a cluster with the policy on it."""

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._policies = ValidatingPolicies(self._cluster.environment)
        kinds = (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
        for kind, made in zip(kinds, volume_restriction(Settings("hpp", "image", "full", "1")), strict=True):
            self._cluster.definition(kind).strategy.default(made)
            self._cluster.objects.put(kind, made)

    async def refusal(
        self, new: JsonObject | None, old: JsonObject | None = None, user: str = DRIVERS
    ) -> str:
        """What a user is told; the empty string where it is let pass."""
        operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
        request = self._cluster.request(PERSISTENT_VOLUMES, new, operation=operation, old=old)
        request.ctx.user = UserInfo(user)
        try:
            await self._policies.validate(request)
        except StatusError as error:
            assert error.code == 403
            return error.message
        return ""


def volume(source: dict[str, Any], claim: dict[str, Any] | None = MINE, size: str = "1Gi") -> JsonObject:
    spec = {"capacity": {"storage": size}, **source, **({"claimRef": claim} if claim else {})}
    return {"metadata": {"name": "pv"}, "spec": spec}


OWN = {"csi": {"driver": DRIVER, "volumeHandle": "pvc-1"}}


@pytest.mark.parametrize(
    "source", [{"hostPath": {"path": "/"}}, {"csi": {"driver": "other.example.com", "volumeHandle": "1"}}]
)
async def test_a_node_that_was_broken_into_makes_no_volume_of_anything_else(source: dict[str, Any]) -> None:
    api = Api()
    for new, old in ((volume(source), None), (volume(source), volume(source)), (None, volume(source))):
        assert f"volumes of {DRIVER} only" in await api.refusal(new, old)
        assert await api.refusal(new, old, user="system:admin") == ""


async def test_it_gives_no_tenant_the_volume_of_another() -> None:
    api = Api()
    for new in (volume(OWN, OTHERS), volume(OWN, None)):
        assert "cannot change the claim of a volume" in await api.refusal(new, volume(OWN))
    assert "cannot change the claim of a volume" in await api.refusal(volume(OWN), volume(OWN, None))


async def test_the_driver_does_its_work() -> None:
    api = Api()
    for new, old in (
        (volume(OWN), None),
        (volume(OWN, size="2Gi"), volume(OWN)),
        (volume(OWN, None), volume(OWN, None)),
        (None, volume(OWN)),
    ):
        assert await api.refusal(new, old) == ""
