"""Instances and migrations that do not fit their types: told in an event, left alone, and they can go."""

from __future__ import annotations

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_VMIS, _MIGRATIONS = kinds.VIRTUAL_MACHINE_INSTANCES, kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
_IMAGES = Images("launcher:1", "sidecar:1")


def _server() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[_VMIS])


def _vmi(cores: object, phase: str = "Pending") -> JsonObject:
    finalizers = ["kubevirt.io/foregroundDeleteVirtualMachine", "another.io/finalizer"]
    return {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u", "finalizers": finalizers},
        "spec": {"domain": {"devices": {}, "cpu": {"cores": cores}, "memory": {"guest": "128Mi"}}},
        "status": {"phase": phase, "nodeName": "n1"} if phase == "Running" else {"phase": phase},
    }


def _launcher() -> JsonObject:
    owner = meta.new_controller_ref({"metadata": {"name": "vm", "uid": "u"}}, _VMIS)
    labels = {"kubevirt.io": "virt-launcher"}
    metadata = {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": [owner]}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running"},
    }


def _told(server: MemoryApi, kind: str) -> list[str]:
    events = server.list(resources.EVENTS, "ns")
    told = [event for event in events if event["reason"] == "InvalidObject"]
    return [event["message"] for event in told if event["involvedObject"]["kind"] == kind]


async def test_an_instance_that_cannot_be_read_is_left_alone_until_it_is_corrected() -> None:
    server = _server()
    server.put(_VMIS, _vmi("many"))
    async with running_controllers(server, _IMAGES):
        (message,) = await until(lambda: _told(server, "VirtualMachineInstance"))
        assert "ns/vm: spec.domain.cpu.cores" in message
        assert not server.list(resources.PODS, "ns")
        server.put(_VMIS, _vmi(1))
        await until(lambda: server.list(resources.PODS, "ns"))


async def test_an_instance_that_cannot_be_read_keeps_its_running_guest() -> None:
    server = _server()
    server.put(resources.PODS, _launcher())
    server.put(_VMIS, _vmi("many", "Running"))
    async with running_controllers(server, _IMAGES):
        await until(lambda: _told(server, "VirtualMachineInstance"))
        assert server.list(resources.PODS, "ns")
        assert (server.get(_VMIS, "vm", "ns") or {})["status"] == _vmi("many", "Running")["status"]


async def test_an_instance_that_cannot_be_read_is_deleted_after_its_pods() -> None:
    server = _server()
    server.put(resources.PODS, _launcher())
    server.put(_VMIS, _vmi("many", "Running"))
    async with running_controllers(server, _IMAGES):
        await server.client().delete(_VMIS, "vm", "ns")
        await until(lambda: not server.list(resources.PODS, "ns"))
        await until(lambda: meta.finalizers(server.get(_VMIS, "vm", "ns") or {}) == ["another.io/finalizer"])


@pytest.mark.parametrize(
    ("cores", "selector"), [(1, "not a map"), ("many", {})], ids=["its own field", "its instance's"]
)
async def test_a_migration_that_cannot_be_read_waits_and_can_be_deleted(
    cores: object, selector: object
) -> None:
    server = _server()
    server.put(_VMIS, _vmi(cores, "Running"))
    metadata = {"name": "m", "namespace": "ns", "finalizers": ["kubevirt.io/migrationJobFinalize"]}
    spec = {"vmiName": "vm", "addedNodeSelector": selector}
    server.put(_MIGRATIONS, {"metadata": metadata, "spec": spec})
    async with running_controllers(server, _IMAGES):
        await until(lambda: _told(server, "VirtualMachineInstanceMigration"))
        assert not [
            pod
            for pod in server.list(resources.PODS, "ns")
            if "kubevirt.io/migrationJobUID" in meta.labels(pod)
        ]
        await server.client().delete(_MIGRATIONS, "m", "ns")
        await until(lambda: server.get(_MIGRATIONS, "m", "ns") is None)
