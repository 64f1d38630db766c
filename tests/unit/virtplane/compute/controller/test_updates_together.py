"""Migrations that updates ask for, on an API server in memory."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import liveupdate
from virtplane.compute.launcherpod.inputs import Images

pytestmark = pytest.mark.looptime

_LONG_SECONDS = 60.0
"""Virtual time in which whatever the controllers would do is done."""

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_MIGRATIONS = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS


@pytest.fixture
def api() -> MemoryApi:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    methods = {"workloadUpdateMethods": ["LiveMigrate"]}
    kubevirt = {
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"workloadUpdateStrategy": methods},
        "status": {"phase": "Deployed", "observedGeneration": 1},
    }
    server.put(kinds.KUBEVIRTS, kubevirt)
    return server


def _running(api: MemoryApi) -> AbstractAsyncContextManager[None]:
    """The controllers, within the test: a fixture does not run on virtual time."""
    return running_controllers(api, Images("launcher:2", "sidecar:2"))


def _guest(
    api: MemoryApi, name: str, *, migratable: bool = True, image: str = "launcher:1", node: str = "node"
) -> None:
    metadata = {"name": name, "namespace": "ns", "uid": name}
    owner = {"kind": "VirtualMachineInstance", "name": name, "uid": name, "controller": True}
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": name}
    pod = {
        "metadata": {
            "name": f"p-{name}",
            "namespace": "ns",
            "uid": f"p-{name}",
            "labels": labels,
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", **owner}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": image}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "compute", "ready": True, "state": {"running": {}}}],
        },
    }
    api.put(resources.PODS, pod)
    condition = {"type": "LiveMigratable", "status": "True" if migratable else "False"}
    status = {
        "phase": "Running",
        "nodeName": node,
        "activePods": {f"p-{name}": node},
        "launcherContainerImageVersion": image,
        "conditions": [condition],
    }
    spec = {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}, "evictionStrategy": "LiveMigrate"}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, {"metadata": metadata, "spec": spec, "status": status})


def _instance(api: MemoryApi, name: str) -> JsonObject:
    return api.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, "ns") or {}


@pytest.mark.feature("INS-131")
async def test_only_migratable_guests_of_old_launchers_are_moved(api: MemoryApi) -> None:
    async with _running(api):
        _guest(api, "old")
        _guest(api, "stuck", migratable=False)
        _guest(api, "new", image="launcher:2")
        await until(lambda: api.list(_MIGRATIONS, "ns"))
        await asyncio.sleep(_LONG_SECONDS)
        assert [item["spec"]["vmiName"] for item in api.list(_MIGRATIONS, "ns")] == ["old"]
        for name in ("stuck", "new"):
            assert _instance(api, name)["status"]["phase"] == "Running"


@pytest.mark.feature("INS-130", "INS-132")
async def test_those_who_cannot_move_are_shut_down_in_batches_and_started_anew(api: MemoryApi) -> None:
    updates: JsonObject = {"workloadUpdateMethods": ["LiveMigrate", "Evict"]}
    updates |= {"batchEvictionSize": 1, "batchEvictionInterval": "10m0s"}
    kubevirt = api.get(kinds.KUBEVIRTS, "kubevirt", "kubevirt") or {}
    api.put(kinds.KUBEVIRTS, {**kubevirt, "spec": {"workloadUpdateStrategy": updates}})
    domain = {"devices": {}, "memory": {"guest": "128Mi"}}
    fixed = ("fixed-a", "fixed-b")
    for name in fixed:
        _guest(api, name, migratable=False)
        vmi = _instance(api, name)
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": f"vm-{name}"}
        vmi["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        vmi["spec"] = {"domain": domain}
        ran = {"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}
        vmi["status"]["phaseTransitionTimestamps"] = [ran]
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
        machine: JsonObject = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"vm-{name}", "generation": 1}
        }
        machine["spec"] = {"runStrategy": "Always", "template": {"spec": {"domain": domain}}}
        api.put(kinds.VIRTUAL_MACHINES, machine)
    movable = ("movable-a", "movable-b", "movable-c")
    for number, name in enumerate(movable):
        _guest(api, name, node=f"node{number}")

    def renewed() -> list[str]:
        """Who has another instance, in a pod of the new image."""
        found = []
        for name in fixed:
            uid = meta.uid(_instance(api, name))
            own = [
                each
                for each in api.list(resources.PODS, "ns")
                if meta.labels(each).get("kubevirt.io/created-by") == uid
            ]
            images = [each["spec"]["containers"][0]["image"] for each in own]
            if uid not in ("", name) and images == ["launcher:2"]:
                found.append(name)
        return found

    async with _running(api):
        await until(lambda: len(renewed()) == 1)
        await asyncio.sleep(_LONG_SECONDS)
        assert len(renewed()) == 1, "the next batch waits for its time"
        # Those who move need not wait for batches.
        assert {item["spec"]["vmiName"] for item in api.list(_MIGRATIONS, "ns")} == set(movable)
        assert all(_instance(api, name)["status"]["phase"] == "Running" for name in movable)
        await asyncio.sleep(600.0)
        await until(lambda: renewed() == list(fixed))


@pytest.mark.feature("INS-135")
async def test_guests_of_old_launchers_carry_a_label(api: MemoryApi) -> None:
    async with _running(api):
        _guest(api, "old")
        _guest(api, "new", image="launcher:2")
        label = "kubevirt.io/outdatedLauncherImage"
        await until(lambda: label in meta.labels(_instance(api, "old")))
        assert label not in meta.labels(_instance(api, "new"))


@pytest.mark.feature("INS-134")
async def test_the_five_newest_ended_migrations_are_kept(api: MemoryApi) -> None:
    async with _running(api):
        _guest(api, "vmi", image="launcher:2")
        for number in range(8):
            metadata = {
                "name": f"m{number}",
                "namespace": "ns",
                "labels": {"kubevirt.io/vmi-name": "vmi"},
                "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
            }
            ended = {"metadata": metadata, "spec": {"vmiName": "vmi"}, "status": {"phase": "Succeeded"}}
            api.put(_MIGRATIONS, ended)
        await until(lambda: len(api.list(_MIGRATIONS, "ns")) == 5)
        assert [meta.name(item) for item in api.list(_MIGRATIONS, "ns")] == [f"m{n}" for n in range(3, 8)]


@pytest.mark.feature("INS-133", "MIG-15")
@pytest.mark.parametrize(
    ("conditions", "minutes"),
    [([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}], 5), ([], 15)],
    ids=["unschedulable", "pending"],
)
@pytest.mark.parametrize("is_late", [True, False])
async def test_a_target_that_no_node_takes_is_given_up_in_time(
    api: MemoryApi, conditions: list[JsonObject], minutes: int, is_late: bool
) -> None:
    async with _running(api):
        from datetime import UTC, datetime, timedelta

        _guest(api, "vmi", image="launcher:2")
        age = timedelta(minutes=minutes) + timedelta(seconds=5 if is_late else -60)
        created = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
        owner = {"kind": "VirtualMachineInstance", "name": "vmi", "uid": "vmi", "controller": True}
        labels = {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": "vmi",
            "kubevirt.io/migrationJobUID": "m",
        }
        pod = {
            "metadata": {
                "name": "target",
                "namespace": "ns",
                "creationTimestamp": created,
                "labels": labels,
                "ownerReferences": [{"apiVersion": "kubevirt.io/v1", **owner}],
            },
            "spec": {"containers": [{"name": "compute", "image": "launcher:2"}]},
            "status": {"phase": "Pending", "conditions": conditions},
        }
        api.put(resources.PODS, pod)
        metadata = {"name": "m", "namespace": "ns", "uid": "m", "labels": {"kubevirt.io/vmi-name": "vmi"}}
        migration = {"metadata": metadata, "spec": {"vmiName": "vmi"}, "status": {"phase": "Scheduling"}}
        api.put(_MIGRATIONS, migration)
        if is_late:
            await until(lambda: api.get(resources.PODS, "target", "ns") is None)
            await until(lambda: (api.get(_MIGRATIONS, "m", "ns") or {})["status"]["phase"] == "Failed")
        else:
            await asyncio.sleep(_LONG_SECONDS)
            assert api.get(resources.PODS, "target", "ns") is not None


@pytest.mark.parametrize(
    ("nodes", "most"),
    [
        pytest.param(1, 2, marks=pytest.mark.feature("MIG-07"), id="of-one-node"),
        pytest.param(8, 5, marks=pytest.mark.feature("MIG-06"), id="of-the-cluster"),
    ],
)
async def test_only_so_many_guests_move_at_once(api: MemoryApi, nodes: int, most: int) -> None:
    async with _running(api):
        for number in range(8):
            _guest(api, f"v{number}", image="launcher:2", node=f"n{number % nodes}")
            metadata = {
                "name": f"m{number}",
                "namespace": "ns",
                "labels": {"kubevirt.io/vmi-name": f"v{number}"},
            }
            spec = {"vmiName": f"v{number}"}
            api.put(_MIGRATIONS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

        def targets() -> int:
            found = (meta.labels(pod) for pod in api.list(resources.PODS, "ns"))
            return sum("kubevirt.io/migrationJobUID" in labels for labels in found)

        await until(lambda: targets() == most)
        await asyncio.sleep(_LONG_SECONDS)
        assert targets() == most


@pytest.mark.feature("VML-24")
def test_more_memory_becomes_a_patch_of_the_running_instance() -> None:
    vm = decode(VirtualMachine, {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "2Gi"}}}}}})
    memory = {"guest": "1Gi", "maxGuest": "4Gi"}
    status = {"phase": "Running", "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi"}}
    conditions = [{"type": "LiveMigratable", "status": "True"}]
    vmi: JsonObject = {
        "spec": {"architecture": "amd64", "domain": {"memory": memory}},
        "status": {**status, "conditions": conditions},
    }
    update = liveupdate.live_update(vm, decode(VirtualMachineInstance, vmi), cpu_allocation_ratio=10)
    assert update.restart_message == ""
    replaced = {item["path"]: item["value"] for item in update.operations if item["op"] == "replace"}
    assert replaced == {"/spec/domain/memory/guest": "2Gi"}
