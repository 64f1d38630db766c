"""What the virt-handler of a node may write of the instances of its node, and of others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.patch.jsonpatch import apply_json_patch
from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.admission import Response
from virtplane.compute.handler import status

from .reviewing import ask, instance

_HANDLER = "system:serviceaccount:kubevirt:kubevirt-handler"


async def _report(new: JsonObject, old: JsonObject, *, node: str = "n1") -> Response:
    """The answer to the virt-handler of a node, or to one whose token names none."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    return await ask("/virtualmachineinstances-validate-update", new, old, user=_HANDLER, extra=extra)


async def test_a_node_changes_the_instances_that_it_runs() -> None:
    old = {**instance(), "status": {"nodeName": "n1"}}
    assert (await _report(old, old)).allowed
    assert not (await _report(old, old, node="n2")).allowed
    assert not (await _report(old, old, node="")).allowed


@pytest.mark.parametrize(
    "forged",
    [
        {"status": {"nodeName": "n2", "activePods": {"own": "n1"}}},
        {"status": {"nodeName": "n1", "activePods": {"own": "n1", "of another guest": "n2"}}},
        {"status": {"nodeName": "n1", "activePods": {"own": "n1"}, "migrationState": {"targetNode": "n2"}}},
        {"metadata": {"name": "vm", "namespace": "ns", "labels": {"kubevirt.io/nodeName": "n2"}}},
    ],
)
async def test_a_node_gives_none_of_its_instances_to_another(forged: JsonObject) -> None:
    """Else a taken-over node has the guests of others: virt-handler believes what an instance says of its
    pods and its node.
    """
    metadata = {"name": "vm", "namespace": "ns"}
    old = {**instance(), "metadata": metadata, "status": {"nodeName": "n1", "activePods": {"own": "n1"}}}
    reported = {**old, "status": {**old["status"], "phase": "Running", "conditions": []}}
    assert (await _report(reported, old)).allowed
    answer = await _report({**reported, **forged}, old)
    assert not answer.allowed
    assert answer.status and "Node restriction, virt-handler" in answer.status["message"]


async def test_what_virt_handler_reports_of_a_guest_is_let_pass() -> None:
    metadata = {"labels": {"kubevirt.io/nodeName": "n1"}, "annotations": {"a": "b"}, "finalizers": ["f"]}
    old = {
        **instance(),
        "metadata": {"name": "v", "namespace": "ns", "resourceVersion": "1", **metadata},
        "status": {"nodeName": "n1", "activePods": {"p": "n1"}, "phase": "Scheduled"},
    }
    vmi = decode(VirtualMachineInstance, old)
    conditions = (Condition(type="Ready", status="True"),)
    fresh = replace(vmi.status, phase="Running", conditions=conditions)
    new = apply_json_patch(old, status.patch(vmi, fresh))
    assert new["status"]["phase"] == "Running"
    assert (await _report(new, old)).allowed


_MOVED = {"metadata": {"labels": {"kubevirt.io/nodeName": "n2"}}, "status": {"nodeName": "n2"}}


@pytest.mark.parametrize(
    ("reported", "is_let_pass"),
    [
        (_MOVED, True),
        ({**_MOVED, "metadata": {"labels": {"kubevirt.io/nodeName": "n3"}}}, False),
        ({**_MOVED, "status": {"nodeName": "n3"}}, False),
    ],
)
async def test_a_guest_that_has_moved_is_where_it_was_sent(reported: JsonObject, is_let_pass: bool) -> None:
    state = {"migrationState": {"targetNode": "n2"}}
    outdated = {"kubevirt.io/nodeName": "n1", "kubevirt.io/outdatedLauncherImage": ""}
    old = {**instance(), "metadata": {"labels": outdated}, "status": {"nodeName": "n1", **state}}
    new = {**instance(), **reported, "status": {**reported["status"], **state}}
    assert (await _report(new, old)).allowed is is_let_pass


async def test_a_node_sends_a_guest_that_moves_nowhere_else() -> None:
    old = {**instance(), "status": {"nodeName": "n1", "migrationState": {"targetNode": "n2"}}}
    new = {**instance(), "status": {"nodeName": "n1", "migrationState": {"targetNode": "n3"}}}
    assert (await _report(old, old)).allowed
    assert not (await _report(new, old)).allowed
