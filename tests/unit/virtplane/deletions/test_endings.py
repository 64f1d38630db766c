"""Deletions that are held up: virt-controller says why, and what may end by itself does at its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.controllers import running_controllers

from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta, times
from kubecore.resources import EVENTS, NODES, PODS, ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.cluster.deadlines import DEADLINE_SECONDS, GIVEN_UP
from virtplane.compute.launcherpod.inputs import Images
from virtplane.deletions.waits import WAITING

pytestmark = [pytest.mark.looptime, pytest.mark.feature("NEW-15")]

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_SERVED = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_BEGIN = datetime(2026, 11, 27, 12, tzinfo=UTC)
_SINCE = times.format_time(_BEGIN)
_REFUSAL = 'admission webhook "no.example.com" denied the request: frozen'


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> MemoryApi:
    """What is deleted is deleted when the test begins; the time of day goes with the loop's."""
    monkeypatch.setattr(times, "now", lambda: _BEGIN + timedelta(seconds=asyncio.get_running_loop().time()))
    return MemoryApi(_KINDS, whole=[_VMIS])


def _running(api: MemoryApi) -> AbstractAsyncContextManager[None]:
    return running_controllers(api, Images("launcher:1", "sidecar:1"), _SERVED)


def _put(api: MemoryApi, kind: ResourceType, name: str, *finalizers: str, **rest: Any) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    metadata |= rest.pop("metadata", {})
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return api.put(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest})


def _machine(api: MemoryApi, *finalizers: str, **rest: Any) -> JsonObject:
    template: JsonObject = {"spec": {"domain": {"devices": {}}}}
    return _put(api, _VMS, "vm", *finalizers, spec={"runStrategy": "Halted", "template": template}, **rest)


_DELETED: JsonObject = {"deletionTimestamp": _SINCE}
_OF_VM: JsonObject = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}


def _refuse_writes(api: MemoryApi, part: str) -> None:
    """A webhook that refuses all writes of what `part` of a path names."""

    def react(request: Request) -> StatusError | None:
        is_write = request.method in ("PATCH", "PUT")
        if not (is_write and part in request.path):
            return None
        return StatusError(403, "Forbidden", _REFUSAL)

    api.reactions.append(react)


def _events(api: MemoryApi, reason: str, name: str) -> list[str]:
    return [
        event["message"]
        for event in api.list(EVENTS)
        if event["reason"] == reason and event["involvedObject"]["name"] == name
    ]


async def until(check: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What `check` returns once that is true, looked at once a second. Raises TimeoutError."""
    for _ in range(round(seconds)):
        if found := check():
            return found
        await asyncio.sleep(1)
    raise TimeoutError


async def _gone(api: MemoryApi, kind: ResourceType, name: str) -> float:
    """Until an object is gone: after how many seconds it is."""
    await until(lambda: api.get(kind, name, "ns") is None, 3 * DEADLINE_SECONDS)
    return asyncio.get_running_loop().time()  # which begins at 0


async def test_a_machine_locked_for_a_snapshot_that_is_gone_is_let_go(api: MemoryApi) -> None:
    _machine(api, labels.FINALIZER_SNAPSHOT_SOURCE, metadata=_DELETED, status={"snapshotInProgress": "gone"})
    async with _running(api):
        assert 60 <= await _gone(api, _VMS, "vm") < 120


async def test_a_machine_that_stays_is_unlocked_of_what_is_gone(api: MemoryApi) -> None:
    held = {"snapshotInProgress": "gone", "restoreInProgress": "gone"}
    _machine(api, labels.FINALIZER_SNAPSHOT_SOURCE, status=held)
    async with _running(api):

        def unlocked() -> bool:
            found = api.get(_VMS, "vm", "ns") or {}
            return not {*get_object(found, "status")} & {*held} and meta.finalizers(found) == [
                labels.FINALIZER_MACHINE
            ]

        await until(unlocked)


async def test_a_finalizer_of_snapshots_without_any_snapshot_goes(api: MemoryApi) -> None:
    """A cluster that was restored from manifests has no status."""
    _machine(api, labels.FINALIZER_SNAPSHOT_SOURCE, metadata=_DELETED)
    async with _running(api):
        assert 60 <= await _gone(api, _VMS, "vm") < 120


async def test_a_lock_stays_whose_snapshot_only_the_cache_does_not_show(api: MemoryApi) -> None:
    """The caches of machines and of snapshots are not of the same moment."""
    asked: list[str] = []

    def react(request: Request) -> Response | None:
        if request.method != "GET" or not request.path.endswith("virtualmachinesnapshots/late"):
            return None
        asked.append(request.path)
        return Response(200, {}, b'{"metadata": {"name": "late", "namespace": "ns"}}')

    api.reactions.append(react)
    _machine(api, labels.FINALIZER_SNAPSHOT_SOURCE, status={"snapshotInProgress": "late"})
    async with _running(api):
        await until(lambda: asked)
        await asyncio.sleep(1)
    found = api.get(_VMS, "vm", "ns") or {}
    assert found["status"]["snapshotInProgress"] == "late"
    assert labels.FINALIZER_SNAPSHOT_SOURCE in meta.finalizers(found)


@pytest.mark.parametrize(
    ("kind", "finalizer", "holder", "spec"),
    [
        (
            kinds.VIRTUAL_MACHINE_SNAPSHOTS,
            labels.FINALIZER_SNAPSHOT,
            "snapshotInProgress",
            {"source": _OF_VM},
        ),
        (
            kinds.VIRTUAL_MACHINE_RESTORES,
            labels.FINALIZER_RESTORE,
            "restoreInProgress",
            {"target": _OF_VM, "virtualMachineSnapshotName": "snap"},
        ),
    ],
)
async def test_who_cannot_unlock_its_machine_says_why_and_goes_at_the_deadline(
    api: MemoryApi, kind: ResourceType, finalizer: str, holder: str, spec: JsonObject
) -> None:
    source = (labels.FINALIZER_SNAPSHOT_SOURCE,) if holder == "snapshotInProgress" else ()
    _machine(api, labels.FINALIZER_MACHINE, *source, status={holder: "held"})
    _put(api, kind, "held", finalizer, metadata=_DELETED, spec=spec)
    _refuse_writes(api, "/virtualmachines/vm")
    async with _running(api):
        [told, *_] = await until(lambda: _events(api, WAITING, "held"))
        assert told == (
            f"Deleted at {_SINCE}, it waits until 2026-11-27T12:10:00Z at the latest: virt-controller tries"
            f" again and again: {_REFUSAL}. Repair or remove the webhook that refuses:"
            " kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations."
        )
        # It does not sleep through its deadline, although the pauses between failures have grown.
        assert DEADLINE_SECONDS <= await _gone(api, kind, "held") < DEADLINE_SECONDS + 30
        await until(lambda: _events(api, GIVEN_UP, "held"))
        [given_up] = _events(api, GIVEN_UP, "held")
        expected = "Deleted without unlocking its machine, 10 minutes after the request: "
        assert given_up == expected + _REFUSAL
        # The machine is unlocked as soon as that is possible.
        api.reactions.clear()
        await until(lambda: holder not in (api.get(_VMS, "vm", "ns") or {})["status"], 3000)


async def test_a_pool_that_cannot_let_a_machine_go_goes_at_the_deadline(api: MemoryApi) -> None:
    pool = {"kind": "VirtualMachinePool", "name": "pool", "uid": "uid-pool", "controller": True}
    owner = {**pool, "apiVersion": kinds.VIRTUAL_MACHINE_POOLS.api_version}
    _machine(api, labels.FINALIZER_POOL, metadata={"ownerReferences": [owner]})
    template: JsonObject = {"metadata": {}, "spec": {"template": {"spec": {"domain": {"devices": {}}}}}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "virtualMachineTemplate": template}
    _put(api, kinds.VIRTUAL_MACHINE_POOLS, "pool", labels.FINALIZER_POOL, metadata=_DELETED, spec=spec)
    _refuse_writes(api, "/virtualmachines/vm")
    async with _running(api):
        gone = await _gone(api, kinds.VIRTUAL_MACHINE_POOLS, "pool")
        assert DEADLINE_SECONDS <= gone < DEADLINE_SECONDS + 30
        await until(lambda: _events(api, GIVEN_UP, "pool"))
        api.reactions.clear()
        # The garbage collector deletes the machine, which is let go then.
        async with api.client() as client:
            await client.delete(_VMS, "vm", "ns")
        await _gone(api, _VMS, "vm")


async def test_a_guest_is_never_let_go_while_its_pod_is_there(api: MemoryApi) -> None:
    """Its node may be cut off and run it: no deadline ends that."""
    node = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-11-27T11:00:00Z"}
    api.put(NODES, {"metadata": {"name": "n"}, "status": {"conditions": [node]}})
    guest = _put(
        api,
        _VMIS,
        "vm",
        labels.FINALIZER_INSTANCE,
        metadata=_DELETED,
        spec={"domain": {"devices": {}}},
        status={"phase": "Failed", "nodeName": "n"},
    )
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
    marks = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": guest["metadata"]["uid"]}
    of: JsonObject = {"name": "virt-launcher-vm", "namespace": "ns", "labels": marks, "finalizers": ["a/b"]}
    of["ownerReferences"] = [{**owner, "name": "vm", "uid": guest["metadata"]["uid"]}]
    api.put(PODS, {"metadata": {**of, **_DELETED}, "spec": {"nodeName": "n", "containers": []}})
    async with _running(api):
        [told, *_] = await until(lambda: _events(api, WAITING, "vm"))
        assert "it waits without a deadline: what ran in it may run still" in told
        assert "node n, which has not reported since 2026-11-27T11:00:00Z" in told
        await asyncio.sleep(5 * DEADLINE_SECONDS)
        assert api.get(_VMIS, "vm", "ns") is not None
        assert _events(api, GIVEN_UP, "vm") == []
        api.remove(PODS, "virt-launcher-vm", "ns")  # what the taint out-of-service does
        await _gone(api, _VMIS, "vm")


async def test_the_ended_instance_of_a_machine_that_cannot_be_read_goes(api: MemoryApi) -> None:
    machine = _put(api, _VMS, "vm", labels.FINALIZER_MACHINE, spec={"runStrategy": ["no", "text"]})
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "controller": True}
    of = {"ownerReferences": [{**owner, "uid": machine["metadata"]["uid"]}], "uid": "uid-vmi", **_DELETED}
    _put(
        api,
        _VMIS,
        "vm",
        labels.FINALIZER_INSTANCE,
        labels.FINALIZER_MACHINE,
        metadata=of,
        spec={"domain": {"devices": {}}},
        status={"phase": "Succeeded"},
    )
    async with _running(api):
        assert await _gone(api, _VMIS, "vm") < 60
        assert api.get(_VMS, "vm", "ns") is not None


async def test_of_a_deletion_that_goes_as_it_should_nothing_is_told(api: MemoryApi) -> None:
    _machine(api, labels.FINALIZER_MACHINE)
    async with _running(api):
        async with api.client() as client:
            await client.delete(_VMS, "vm", "ns")
        await _gone(api, _VMS, "vm")
        asked = len(api.requests)
        await asyncio.sleep(2 * DEADLINE_SECONDS)
        later = [each.path for each in api.requests[asked:] if each.path.endswith("/virtualmachines/vm")]
    assert (later, _events(api, WAITING, "vm")) == ([], [])


async def test_a_wait_that_goes_as_it_should_is_no_warning(api: MemoryApi) -> None:
    spec = {"source": _OF_VM, "failureDeadline": "2h"}
    created = {"creationTimestamp": _SINCE}
    _put(api, kinds.VIRTUAL_MACHINE_SNAPSHOTS, "snap", metadata=created, spec=spec)
    held = {"snapshotInProgress": "snap"}
    _machine(api, labels.FINALIZER_SNAPSHOT_SOURCE, metadata=_DELETED, status=held)
    _refuse_writes(api, "/virtualmachinesnapshots/snap")
    async with _running(api):
        await until(lambda: _events(api, WAITING, "vm"))
    [event] = [each for each in api.list(EVENTS) if each["reason"] == WAITING]
    assert event["type"] == "Normal"
    assert "until 2026-11-27T14:00:00Z at the latest: snapshot snap of it is being taken" in event["message"]
