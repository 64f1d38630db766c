"""Objects read as structs: what is written of them, and what becomes of those that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controllers import running_controllers, until

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.resources import EVENTS, ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.compute.controller import objects
from virtplane.compute.controller.pool.decisions import FINALIZER
from virtplane.compute.controller.vm.starting import VM_FINALIZER
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_POOLS = kinds.VIRTUAL_MACHINE_POOLS


def _vm(**more: Any) -> VirtualMachine:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    return decode(VirtualMachine, {"metadata": metadata, "spec": {"template": {}}, **more})


def _operations(vm: VirtualMachine, after: JsonObject) -> list[JsonObject]:
    found = objects.status_patch(vm, VirtualMachineStatus, vm.status, after)
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
    assert _operations(_vm(status=None), {"ready": True}) == [
        {"op": "add", "path": "/status", "value": {"ready": True}}
    ]


def test_conditions_always_carry_both_times() -> None:
    vm = _vm(status={"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "x"}]})
    assert vm.status is not None
    assert objects.condition_documents(vm.status.conditions) == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": "x"}
    ]


def _unreadable_pool(**metadata: Any) -> JsonObject:
    spec = {"selector": {}, "replicas": "many", "virtualMachineTemplate": {}}
    return {"metadata": {"name": "pool", "namespace": "ns", **metadata}, "spec": spec}


@pytest.mark.looptime
async def test_an_object_that_does_not_fit_says_which_field_and_can_still_be_deleted() -> None:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        server.put(_POOLS, _unreadable_pool(finalizers=[FINALIZER]))
        (event,) = await until(lambda: server.list(EVENTS, "ns"))
        assert event["reason"] == "InvalidObject"
        assert event["message"].startswith("VirtualMachinePool ns/pool: spec.replicas: ")
        await server.client().delete(_POOLS, "pool", "ns")
        await until(lambda: server.get(_POOLS, "pool", "ns") is None)


@pytest.mark.looptime
async def test_a_vm_whose_instance_does_not_fit_says_so_and_leaves_it_alone_until_it_is_deleted() -> None:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    vms, vmis = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
    metadata = {"name": "vm", "namespace": "ns"}
    held = {**metadata, "finalizers": [VM_FINALIZER]}
    server.put(vms, {"metadata": held, "spec": {"runStrategy": "Halted", "template": {}}})
    owner = meta.new_controller_ref(server.get(vms, "vm", "ns") or {}, vms)
    spec = {"domain": {"cpu": {"cores": "many"}}}
    server.put(vmis, {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec})

    def failure() -> JsonObject | None:
        return meta.get_condition(server.get(vms, "vm", "ns") or {}, "Failure")

    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        found = await until(failure)
        assert found["reason"] == "InvalidObject"
        assert "spec.domain.cpu.cores" in found["message"]
        assert server.get(vmis, "vm", "ns") is not None
        await server.client().delete(vms, "vm", "ns")
        await until(lambda: server.get(vms, "vm", "ns") is None)
        assert server.get(vmis, "vm", "ns") is None
