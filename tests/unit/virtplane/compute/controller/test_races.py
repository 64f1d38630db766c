"""Somebody else writes between what a controller reads and what it writes; requests are refused; kinds go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.migration import phases, target
from virtplane.compute.launcherpod.inputs import Images
from virtplane.storage.restore import decisions as restoring
from virtplane.storage.snapshot import decisions

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_MIGRATIONS = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS


@asynccontextmanager
async def _running(server: MemoryApi) -> AsyncIterator[None]:
    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        yield


def _server() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[_VMIS])


def _vm(**spec: Any) -> JsonObject:
    template = {"spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}}
    metadata = {"name": "vm", "namespace": "ns", "generation": 1}
    return {"metadata": metadata, "spec": {"template": template, **spec}}


def _before_first(server: MemoryApi, method: str, plural: str, act: Callable[[], None]) -> None:
    """Do something just before the server carries out the first such request."""
    is_done = False

    def reaction(request: Request) -> None:
        nonlocal is_done
        if not is_done and request.method == method and f"/{plural}/" in request.path:
            is_done = True
            act()

    server.reactions.append(reaction)


async def test_a_request_to_start_survives_the_first_writes_of_the_controller() -> None:
    """The request comes while the controller sets its finalizer on what it knows of the machine."""
    server = _server()
    observed = {f"kubevirt.io/{name}-observed-api-version": "v1" for name in ("latest", "storage")}
    machine = _vm(runStrategy="Manual")
    machine["metadata"]["annotations"] = observed
    server.put(_VMS, machine)

    def ask() -> None:
        vm = deep_copy(server.get(_VMS, "vm", "ns") or {})
        vm.setdefault("status", {})["stateChangeRequests"] = [{"action": "Start"}]
        server.put(_VMS, vm)

    lost: list[JsonObject] = []

    def watch_writes(request: Request) -> None:
        """A status that is written at the newest version, without the request, and nothing was started."""
        if request.method != "PATCH" or not request.path.endswith("/virtualmachines/vm/status"):
            return
        stored = server.get(_VMS, "vm", "ns") or {}
        sent = {(item["op"], item["path"]): item.get("value") for item in orjson.loads(request.body or b"[]")}
        is_current = sent["test", "/metadata/resourceVersion"] == meta.resource_version(stored)
        drops = ("remove", "/status/stateChangeRequests") in sent
        if is_current and drops and server.get(_VMIS, "vm", "ns") is None:
            lost.append(stored)

    server.reactions.append(watch_writes)
    _before_first(server, "PATCH", "virtualmachines", ask)
    async with _running(server):
        await until(lambda: server.get(_VMIS, "vm", "ns"))
    assert lost == []


async def test_a_finalizer_that_comes_while_the_controller_sets_its_own_stays() -> None:
    """Both marks of the controller are one patch, which replaces the whole list."""
    server = _server()
    server.put(_VMS, _vm(runStrategy="Always"))

    def finalize() -> None:
        vm = deep_copy(server.get(_VMS, "vm", "ns") or {})
        vm["metadata"]["finalizers"] = ["example.com/other"]
        server.put(_VMS, vm)

    def finalizers() -> set[str]:
        return set((server.get(_VMS, "vm", "ns") or {})["metadata"].get("finalizers", ()))

    _before_first(server, "PATCH", "virtualmachines", finalize)
    async with _running(server):
        await until(lambda: server.get(_VMIS, "vm", "ns"))
    assert finalizers() == {"example.com/other", "kubevirt.io/virtualMachineControllerFinalize"}
    writes = [
        each
        for each in server.requests
        if each.method == "PATCH" and each.path.endswith("/virtualmachines/vm")
    ]
    assert len(writes) == 2  # the refused one, and the one after it


async def test_an_owner_that_comes_while_an_instance_is_adopted_stays() -> None:
    server = _server()
    server.put(_VMS, _vm(runStrategy="Always"))
    spec = {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}
    server.put(_VMIS, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u"}

    def own() -> None:
        vmi = deep_copy(server.get(_VMIS, "vm", "ns") or {})
        vmi["metadata"]["ownerReferences"] = [other]
        server.put(_VMIS, vmi)

    # The first writes of the controllers are the marks of the versions they observed.
    def is_adoption(request: Request) -> None:
        if request.method == "PATCH" and b"ownerReferences" in (request.body or b"") and own in pending:
            pending.remove(own)
            own()

    pending = [own]
    server.reactions.append(is_adoption)
    async with _running(server):
        await until(lambda: meta.controller_of(server.get(_VMIS, "vm", "ns") or {}))
    references = meta.owner_references(server.get(_VMIS, "vm", "ns") or {})
    assert other in references
    assert pending == []


def _guest_on(server: MemoryApi, node: str, **status: Any) -> None:
    """A guest that can be moved, and its pod."""
    status |= {
        "phase": "Running",
        "nodeName": node,
        "activePods": {"p": node},
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    }
    spec = {"domain": {}, "evictionStrategy": "LiveMigrate"}
    vmi = {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec, "status": status}
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"kubevirt.io": ""},
            "ownerReferences": [meta.new_controller_ref(vmi, _VMIS)],
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running"},
    }
    server.put(resources.PODS, pod)
    server.put(_VMIS, vmi)


async def test_an_evacuation_that_is_refused_is_tried_again() -> None:
    server = _server()
    refusals = 8

    def refuse(request: Request) -> StatusError | None:
        nonlocal refusals
        if request.method == "POST" and _MIGRATIONS.plural in request.path and refusals:
            refusals -= 1
            return StatusError(403, "Forbidden", "not now")
        return None

    server.reactions.append(refuse)
    server.put(resources.NODES, {"metadata": {"name": "n"}})
    async with _running(server):
        _guest_on(server, "n", evacuationNodeName="n")
        await until(lambda: server.list(_MIGRATIONS, "ns"))
    assert refusals == 0
    assert len(server.list(_MIGRATIONS, "ns")) == 1


@pytest.mark.looptime
async def test_another_key_to_drain_nodes_by_counts_at_once() -> None:
    """No heartbeat of the node has to come first, which wakes nobody here."""
    server = _server()
    metadata = {"name": "kubevirt", "namespace": "kubevirt"}
    kubevirt: JsonObject = {"metadata": metadata, "spec": {}, "status": {"phase": "Deployed"}}
    server.put(kinds.KUBEVIRTS, kubevirt)
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    server.put(resources.NODES, {"metadata": {"name": "n"}, "spec": {"taints": [taint]}})
    async with _running(server):
        _guest_on(server, "n")
        await asyncio.sleep(20.0)
        beat = {"annotations": {"kubevirt.io/heartbeat": "2026-01-01T00:00:00Z"}}
        server.put(resources.NODES, {"metadata": {"name": "n", **beat}, "spec": {"taints": [taint]}})
        await asyncio.sleep(20.0)
        assert server.list(_MIGRATIONS, "ns") == []
        migrations = {"nodeDrainTaintKey": "maintenance"}
        server.put(kinds.KUBEVIRTS, {**kubevirt, "spec": {"configuration": {"migrations": migrations}}})
        await until(lambda: server.list(_MIGRATIONS, "ns"))


@pytest.mark.parametrize(
    ("kind", "finalizer", "spec"),
    [
        (
            kinds.VIRTUAL_MACHINE_SNAPSHOTS,
            decisions.SNAPSHOT_FINALIZER,
            {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
        ),
        (
            kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS,
            decisions.CONTENT_FINALIZER,
            {"virtualMachineSnapshotName": "gone"},
        ),
        (
            kinds.VIRTUAL_MACHINE_RESTORES,
            restoring.FINALIZER,
            {"target": {"name": "vm"}, "virtualMachineSnapshotName": "gone"},
        ),
    ],
)
async def test_what_is_deleted_is_let_go_though_volume_snapshots_are_not_served(
    kind: Any, finalizer: str, spec: JsonObject
) -> None:
    server = _server()
    metadata = {
        "name": "s",
        "namespace": "ns",
        "finalizers": [finalizer],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    server.put(kind, {"metadata": metadata, "spec": spec})
    async with _running(server):
        await until(lambda: server.get(kind, "s", "ns") is None)


async def test_a_snapshot_lets_its_machine_go_though_volume_snapshots_are_not_served() -> None:
    server = _server()
    source = decisions.SOURCE_FINALIZER
    machine = _vm(runStrategy="Halted")
    machine["metadata"]["finalizers"] = [source]
    machine["status"] = {"snapshotInProgress": "s"}
    server.put(_VMS, machine)
    metadata = {
        "name": "s",
        "namespace": "ns",
        "finalizers": [decisions.SNAPSHOT_FINALIZER],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}}
    server.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, {"metadata": metadata, "spec": spec})
    async with _running(server):
        await until(lambda: server.get(kinds.VIRTUAL_MACHINE_SNAPSHOTS, "s", "ns") is None)
        vm = server.get(_VMS, "vm", "ns") or {}
        assert source not in meta.finalizers(vm)
        assert "snapshotInProgress" not in get_object(vm, "status")
        # The machine's own controller may come a moment later.
        await until(lambda: get_list(server.get(_VMS, "vm", "ns") or {}, "metadata", "finalizers"))


@pytest.mark.parametrize("remains", [None, "down"])
def test_a_migration_that_lost_its_target_fails_whatever_became_of_the_one_before(
    remains: str | None,
) -> None:
    """The instance's state tells of its last migration until the next one is handed off."""
    before = {"migrationUid": "earlier", "completed": True}
    vmi = {"metadata": {"name": "vm"}, "status": {"phase": "Running", "migrationState": before}}
    document = {"metadata": {"name": "m", "uid": "this"}, "status": {"phase": "Scheduling"}}
    migration = decode(VirtualMachineInstanceMigration, document)
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Failed"}} if remains else None
    around = phases.Around(vmi=decode(VirtualMachineInstance, vmi), target=pod)
    assert phases.next_state(migration, around).status["phase"] == "Failed"


def _moving(**state: object) -> JsonObject:
    status = {"phase": "Running", "nodeName": "n1", "migrationState": state}
    return {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {"domain": {}},
        "status": status,
    }


def _target_pod(node: str = "n2", job: str = "m", phase: str = "Running") -> JsonObject:
    vmi = {"metadata": {"name": "vm", "uid": "u"}}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": job},
            "annotations": {"kubevirt.io/migrationJobName": "job"},
            "ownerReferences": [meta.new_controller_ref(vmi, _VMIS)],
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "state", "expected"),
    [
        pytest.param(_target_pod(), {}, True, id="its migration was never handed off"),
        pytest.param(_target_pod(), {"migrationUid": "other"}, True, id="another migration is under way"),
        pytest.param(_target_pod(), {"migrationUid": "m", "failed": True}, True, id="its migration failed"),
        pytest.param(_target_pod(), {"migrationUid": "m"}, False, id="the guest is on its way"),
        pytest.param(_target_pod("n1"), {"migrationUid": "other"}, False, id="the guest runs in it"),
        pytest.param(_target_pod(phase="Failed"), {}, False, id="it has ended"),
    ],
)
def test_a_target_is_left_over_when_no_guest_is_in_it_nor_on_its_way(
    pod: JsonObject, state: JsonObject, expected: bool
) -> None:
    assert target.is_leftover(pod, decode(VirtualMachineInstance, _moving(**state)), [pod]) is expected


def test_a_target_beside_the_ended_source_on_its_node_is_left_over() -> None:
    source = {
        "metadata": {"name": "source", "uid": "s", "labels": {"kubevirt.io": "virt-launcher"}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Succeeded"},
    }
    vmi, pod = decode(VirtualMachineInstance, _moving()), _target_pod("n1")
    assert target.is_leftover(pod, vmi, [source, pod])
    assert not target.is_leftover(source, vmi, [source, pod])


async def test_a_target_that_appears_after_its_migration_is_gone_is_removed() -> None:
    """Its creation took effect late; while it lived no other migration of the instance could begin."""
    server = _server()
    server.put(_VMIS, _moving())
    async with _running(server):
        server.put(resources.PODS, _target_pod())
        await until(lambda: server.get(resources.PODS, "p", "ns") is None)


async def test_a_migration_waits_for_its_instance_to_run_somewhere() -> None:
    """An instance that is not on a node yet has no source to be moved from."""
    server = _server()
    made_in: list[str] = []

    def watch_targets(request: Request) -> None:
        if request.method == "POST" and b"migrationJobUID" in (request.body or b""):
            made_in.append(get_str(server.get(_VMIS, "vm", "ns"), "status", "phase"))

    server.reactions.append(watch_targets)
    running = _moving()
    server.put(_VMIS, {**running, "status": {"phase": "Scheduled", "conditions": []}})
    source = _target_pod("n1")
    source["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    server.put(resources.PODS, source)
    metadata = {"name": "job", "namespace": "ns", "uid": "m"}
    job = {"metadata": metadata, "spec": {"vmiName": "vm"}, "status": {"phase": "Pending"}}
    server.put(_MIGRATIONS, job)
    async with _running(server):
        await until(lambda: meta.annotations(server.get(_MIGRATIONS, "job", "ns") or {}))
        await until(lambda: get_object(server.get(_VMIS, "vm", "ns"), "status").get("activePods"))
        server.put(
            _VMIS, {**running, "status": {**running["status"], "activePods": {meta.uid(source): "n1"}}}
        )
        await until(lambda: made_in)
    assert made_in == ["Running"]
