"""What is written of objects that are read as structs: what documents would give."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.patch.guarded import guarded_patch
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.cluster.objects import (
    AnyObject,
    condition_documents,
    finalizer_patch,
    status_patch,
)


def _vm(**more: Any) -> VirtualMachine:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    return decode(VirtualMachine, {"metadata": metadata, "spec": {"template": {}}, **more})


def _operations(vm: VirtualMachine, after: JsonObject) -> list[JsonObject]:
    found = status_patch(vm, VirtualMachineStatus, vm.status, after)
    assert [item["path"] for item in found[:2]] in ([], ["/metadata/uid", "/metadata/resourceVersion"])
    return found[2:]


def test_a_status_is_patched_field_by_field_where_it_says_something_else() -> None:
    condition = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    vm = _vm(status={"ready": True, "created": True, "conditions": [condition]})
    same = {"ready": True, "created": True, "conditions": [{"type": "Ready", "status": "True"}]}
    assert _operations(vm, same) == []
    changed = {"ready": False, "printableStatus": "Stopped", "conditions": [condition]}
    assert _operations(vm, changed) == [
        {"op": "remove", "path": "/status/created"},
        {"op": "add", "path": "/status/printableStatus", "value": "Stopped"},
        {"op": "replace", "path": "/status/ready", "value": False},
    ]


def test_a_first_status_is_added_as_a_whole() -> None:
    assert _operations(_vm(), {}) == []
    statuses: tuple[JsonObject | None, ...] = (None, {})
    for absent in statuses:
        assert _operations(_vm(status=absent), {"ready": True}) == [
            {"op": "add", "path": "/status", "value": {"ready": True}}
        ]


def test_conditions_always_carry_both_times() -> None:
    vm = _vm(status={"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "x"}]})
    assert vm.status is not None
    assert condition_documents(vm.status.conditions) == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": "x"}
    ]


def test_a_finalizer_is_added_and_removed_beside_others_and_no_member_is_lost() -> None:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    document: JsonObject = {"metadata": {**metadata, "finalizers": ["other"]}, "spec": {}}
    held = deep_copy(document)
    meta.add_finalizer(held, "f")
    before, after = decode(AnyObject, document).metadata, decode(AnyObject, held).metadata
    assert finalizer_patch(before, "f", present=True) == guarded_patch(document, held, ("metadata",))
    assert finalizer_patch(after, "f", present=False) == guarded_patch(held, document, ("metadata",))
    assert finalizer_patch(before, "f", present=False) == finalizer_patch(after, "f", present=True) == []
