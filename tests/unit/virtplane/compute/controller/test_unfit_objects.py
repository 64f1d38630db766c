"""What becomes of objects that do not fit their structs, and of those that wait for them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controllers import running_controllers, until

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import EVENTS, ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.controller.pool.decisions import FINALIZER
from virtplane.compute.controller.vm.starting import VM_FINALIZER
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_POOLS = kinds.VIRTUAL_MACHINE_POOLS


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


@pytest.mark.looptime
async def test_a_pool_waits_for_its_vm_that_does_not_fit_and_replaces_it_once_it_is_deleted() -> None:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    vms = kinds.VIRTUAL_MACHINES
    spec = {"selector": {}, "replicas": 1, "virtualMachineTemplate": {"spec": {"template": {}}}}
    pool = server.put(_POOLS, {"metadata": {"name": "pool", "namespace": "ns"}, "spec": spec})
    owner = meta.new_controller_ref(pool, _POOLS)
    metadata = {"name": "pool-0", "namespace": "ns", "finalizers": [FINALIZER, VM_FINALIZER]}
    unfit: JsonObject = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"template": "none"}}
    uid = meta.uid(server.put(vms, unfit))

    def told() -> list[str]:
        events = [event for event in server.list(EVENTS, "ns") if event["reason"] == "InvalidObject"]
        return [event["message"] for event in events if event["involvedObject"]["kind"] == _POOLS.kind]

    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        (message, *_) = await until(told)
        assert message.startswith("VirtualMachine ns/pool-0: spec.template")
        assert [meta.uid(vm) for vm in server.list(vms, "ns")] == [uid]
        server.remove(vms, "pool-0", "ns")
        await until(lambda: [meta.name(vm) for vm in server.list(vms, "ns")] == ["pool-0"])
        assert meta.uid(server.get(vms, "pool-0", "ns") or {}) != uid


@pytest.mark.looptime
async def test_a_pool_that_is_deleted_lets_a_vm_go_that_does_not_fit() -> None:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    spec = {"selector": {}, "replicas": 1, "virtualMachineTemplate": {"spec": {"template": {}}}}
    held = {"name": "pool", "namespace": "ns", "finalizers": [FINALIZER]}
    owner = meta.new_controller_ref(server.put(_POOLS, {"metadata": held, "spec": spec}), _POOLS)
    metadata = {"name": "pool-0", "namespace": "ns", "finalizers": [FINALIZER], "ownerReferences": [owner]}
    server.put(kinds.VIRTUAL_MACHINES, {"metadata": metadata, "spec": {"template": "none"}})
    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        await server.client().delete(_POOLS, "pool", "ns")
        await until(lambda: server.get(_POOLS, "pool", "ns") is None)
        vm = server.get(kinds.VIRTUAL_MACHINES, "pool-0", "ns")
        assert vm is not None and not meta.finalizers(vm)


@pytest.mark.looptime
@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_vm_that_was_created_after_its_pool_was_gone_can_be_deleted(*, is_made_again: bool) -> None:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    gone = {"metadata": {"name": "pool", "namespace": "ns", "uid": "gone"}}
    owners = [meta.new_controller_ref(gone, _POOLS)]
    metadata = {"name": "pool-0", "namespace": "ns", "finalizers": [FINALIZER], "ownerReferences": owners}
    template: JsonObject = {"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}}}
    server.put(kinds.VIRTUAL_MACHINES, {"metadata": metadata, **template})
    if is_made_again:
        spec = {"selector": {}, "replicas": 0, "virtualMachineTemplate": template}
        server.put(_POOLS, {"metadata": {"name": "pool", "namespace": "ns"}, "spec": spec})
    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        await server.client().delete(kinds.VIRTUAL_MACHINES, "pool-0", "ns")
        await until(lambda: server.get(kinds.VIRTUAL_MACHINES, "pool-0", "ns") is None)
