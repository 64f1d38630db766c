"""The admission policies of an installation, as the API server judges by them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import Cluster

from kindling.apiserver.admission.validating_policies import ValidatingPolicies
from kindling.apiserver.registry.admission import AdmissionAttributes
from kindling.apiserver.registry.context import UserInfo
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import (
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from virtplane.operators.kubevirt.strategy.policies import (
    launcher_restriction,
    node_restriction,
    node_status_restriction,
)

CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
HANDLER = "system:serviceaccount:kubevirt:kubevirt-handler"
OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "u1"}
CONTROLLING = {**OWNER, "controller": True}
NODE: JsonObject = {
    "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {"podCIDR": "10.0.0.0/24"},
    "status": {},
}
LAUNCHER = {"labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [CONTROLLING]}


class Api:
    """The admission of a cluster with the policy on it."""

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._cluster.objects.put(NAMESPACES, {"metadata": {"name": "ns"}})
        self._policies = ValidatingPolicies(self._cluster.environment)
        kinds = (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
        for policy in (launcher_restriction, node_restriction, node_status_restriction):
            for kind, made in zip(kinds, policy("kubevirt"), strict=True):
                self._cluster.definition(kind).strategy.default(made)
                self._cluster.objects.put(kind, made)

    async def refusal(
        self,
        user: str,
        new: JsonObject,
        old: JsonObject | None = None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> str:
        """What a user is told who makes or changes a pod; the empty string where it is let pass."""
        operation = "CREATE" if old is None else "UPDATE"
        request = self._cluster.request(PODS, new, operation=operation, old=old, subresource=subresource)
        request.ctx.user = UserInfo(user)
        request.ctx.dry_run = dry_run
        return await self._judged(request)

    async def refusal_of_node(
        self, new: JsonObject, old: JsonObject, *, of: str, subresource: str = ""
    ) -> str:
        """What the virt-handler of node `of` is told when it changes a node; empty where it is let pass."""
        request = self._cluster.request(NODES, new, operation="UPDATE", old=old, subresource=subresource)
        request.ctx.user = UserInfo(HANDLER, extra={"authentication.kubernetes.io/node-name": (of,)})
        return await self._judged(request)

    async def _judged(self, request: AdmissionAttributes) -> str:
        try:
            await self._policies.validate(request)
        except StatusError as error:
            assert error.code == 403
            return error.message
        return ""


@pytest.fixture
def api() -> Api:
    return Api()


def pod(**metadata: Any) -> JsonObject:
    spec = {"containers": [{"name": "compute", "image": "x"}]}
    return deep_copy({"metadata": {"name": "p", "namespace": "ns", **metadata}, "spec": spec})


@pytest.mark.parametrize(
    "metadata",
    [
        LAUNCHER,
        {"ownerReferences": [CONTROLLING]},
        {"ownerReferences": [{**CONTROLLING, "apiVersion": "kubevirt.io/v1alpha3"}]},
        {"labels": {"kubevirt.io": "virt-launcher"}},
        {"labels": {"kubevirt.io": "hotplug-disk"}},
    ],
    ids=["both", "owner", "old version", "label", "attachment"],
)
@pytest.mark.parametrize("user", ["tenant", "system:serviceaccount:ns:kubevirt-controller"])
async def test_nobody_else_makes_a_pod_that_passes_for_a_launcher(
    api: Api, user: str, metadata: dict[str, Any]
) -> None:
    assert "only virt-controller makes pods" in await api.refusal(user, pod(**metadata))
    assert "only virt-controller makes pods" in await api.refusal(user, pod(**metadata), pod())
    assert await api.refusal(CONTROLLER, pod(**metadata)) == ""
    assert await api.refusal(CONTROLLER, pod(**metadata), pod()) == ""


async def test_a_dry_run_of_a_launcher_is_let_pass(api: Api) -> None:
    """It stores nothing, and whoever writes a policy for launchers tries it so."""
    assert await api.refusal("tenant", pod(**LAUNCHER), dry_run=True) == ""


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {"kubevirt.io": "virt-api", "app": "a"}},
        {"labels": {"kubevirt.io/domain": "vm"}},
        {"ownerReferences": [OWNER]},
        {"ownerReferences": [{**CONTROLLING, "controller": False}]},
        {"ownerReferences": [{**CONTROLLING, "apiVersion": "apps/v1", "kind": "ReplicaSet"}]},
    ],
)
async def test_other_pods_are_let_pass(api: Api, metadata: dict[str, Any]) -> None:
    assert await api.refusal("tenant", pod(**metadata)) == ""
    assert await api.refusal("tenant", pod(**metadata), pod()) == ""


async def test_a_launcher_may_be_changed_in_what_does_not_make_it_one(api: Api) -> None:
    changed = pod(**LAUNCHER, annotations={"a": "b"}, finalizers=["example.com/x"])
    assert await api.refusal("tenant", changed, pod(**LAUNCHER)) == ""
    assert await api.refusal("system:node:n1", pod(), pod(**LAUNCHER)) == ""


_RESTRICTED = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}


@pytest.mark.parametrize("kind", ["virt-launcher", "hotplug-disk"])
@pytest.mark.parametrize(
    ("context", "is_let_pass"),
    [
        (_RESTRICTED, True),
        ({**_RESTRICTED, "privileged": False, "runAsUser": 0}, True),
        (None, False),
        ({}, False),
        ({"capabilities": {"drop": ["NET_RAW"]}}, False),
        ({"capabilities": {"drop": ["ALL"], "add": ["MKNOD"]}}, False),
        ({**_RESTRICTED, "privileged": True}, False),
    ],
)
async def test_containers_that_are_added_to_a_guests_pods_can_make_no_devices(
    api: Api, kind: str, context: JsonObject | None, is_let_pass: bool
) -> None:
    before = pod(labels={"kubevirt.io": kind})
    changed = deep_copy(before)
    added: JsonObject = {"name": "debug", "image": "x"}
    changed["spec"]["ephemeralContainers"] = [
        added if context is None else {**added, "securityContext": context}
    ]
    told = await api.refusal("tenant", changed, before, subresource="ephemeralcontainers")
    assert told == "" if is_let_pass else "must drop all capabilities" in told
    other = {**changed, "metadata": pod()["metadata"]}
    assert await api.refusal("tenant", other, pod(), subresource="ephemeralcontainers") == ""


async def test_a_launcher_of_one_instance_cannot_become_that_of_another(api: Api) -> None:
    stolen = pod(**{**LAUNCHER, "ownerReferences": [{**CONTROLLING, "name": "other", "uid": "u2"}]})
    assert "VirtualMachineInstance controls" in await api.refusal("tenant", stolen, pod(**LAUNCHER))
    attached = pod(**{**LAUNCHER, "labels": {"kubevirt.io": "hotplug-disk"}})
    assert "with the label" in await api.refusal("tenant", attached, pod(**LAUNCHER))


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_virt_handler_says_nothing_of_other_nodes(api: Api, subresource: str) -> None:
    """A node that is taken over must not have the guests of others evicted."""
    broken = {**NODE, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert await api.refusal_of_node(broken, NODE, of="n1", subresource=subresource) == ""
    refusal = await api.refusal_of_node(broken, NODE, of="n2", subresource=subresource)
    assert "this user cannot modify this node" in refusal


async def test_virt_handler_changes_no_more_of_its_node_by_its_status(api: Api) -> None:
    labelled = {**NODE, "metadata": {**NODE["metadata"], "labels": {"node-role.kubernetes.io/x": ""}}}
    refusal = await api.refusal_of_node(labelled, NODE, of="n1", subresource="status")
    assert "non kubevirt-owned labels" in refusal
