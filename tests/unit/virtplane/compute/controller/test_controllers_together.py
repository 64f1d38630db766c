"""The controllers on an API server in memory: from a VM to its launcher pod, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.controller.cluster import Cluster
from virtplane.compute.controller.component import add_controllers
from virtplane.compute.controller.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


@pytest.fixture
async def api() -> AsyncIterator[MemoryApi]:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    client = server.client()
    async with EventRecorder(client, "virtualmachine-controller") as recorder:
        manager = Manager(client)
        add_controllers(Cluster(client, manager, recorder, Images("launcher:1", "sidecar:1")))
        task = asyncio.create_task(manager.run())
        await manager.wait_started()
        yield server
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await client.close()


async def _until(check: Callable[[], Any]) -> Any:
    async with asyncio.timeout(5):
        while not (found := check()):  # noqa: ASYNC110 - any change of the server may be the one
            await asyncio.sleep(0.01)
    return found


def _vm(**spec: Any) -> JsonObject:
    template = {"spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns", "generation": 1},
        "spec": {"template": template, **spec},
    }


def _status(api: MemoryApi) -> str:
    return get_str(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns"), "status", "printableStatus")


def _instance(api: MemoryApi) -> JsonObject | None:
    return api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")


def _set_pod(api: MemoryApi, status: JsonObject) -> None:
    pod = deep_copy(api.list(resources.PODS, "ns")[0])
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {**pod.get("status", {}), **status}
    api.put(resources.PODS, pod)


async def test_a_running_vm_gets_an_instance_and_a_pod_and_is_scheduled(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Always"))
    await _until(lambda: api.list(resources.PODS, "ns"))
    await _until(lambda: _status(api) == "Starting")
    running = {"name": "compute", "ready": False, "state": {"running": {}}}
    _set_pod(api, {"phase": "Running", "containerStatuses": [running]})
    scheduled = await _until(
        lambda: get_str(_instance(api), "status", "phase") == "Scheduled" and _instance(api)
    )
    assert meta.labels(scheduled)["kubevirt.io/nodeName"] == "node"
    revisions = api.list(resources.CONTROLLER_REVISIONS, "ns")
    assert [meta.name(item) for item in revisions] == [scheduled["status"]["virtualMachineRevisionName"]]


async def test_a_halted_vm_is_stopped_and_a_deleted_one_disappears(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Halted"))
    await _until(lambda: _status(api) == "Stopped")
    await api.client().delete(kinds.VIRTUAL_MACHINES, "vm", "ns")
    await _until(lambda: api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") is None)


async def test_a_launcher_lost_before_the_guest_ran_leads_to_back_off(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Always"))
    pods = await _until(lambda: api.list(resources.PODS, "ns"))
    await _until(lambda: get_str(_instance(api), "status", "phase") == "Scheduling")
    api.remove(resources.PODS, meta.name(pods[0]), "ns")
    await _until(lambda: _status(api) == "CrashLoopBackOff")
    vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    assert vm["status"]["startFailure"]["consecutiveFailCount"] == 1
