"""Guests of old launchers: how many there are, and how they are evicted, on an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.kubevirt import KubeVirtWorkloadUpdateStrategy
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller import workloadupdates
from virtplane.compute.controller.migration.updates import is_rolled_out
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_VMIS = kinds.VIRTUAL_MACHINE_INSTANCES
_STATUS: JsonObject = {"phase": "Deployed", "observedGeneration": 1}


def _vmi(
    name: str, *, image: str = "launcher:1", phase: str = "Running", migratable: bool = False
) -> JsonObject:
    condition = {"type": "LiveMigratable", "status": "True" if migratable else "False"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}},
        "status": {
            "phase": phase,
            "nodeName": "node",
            "activePods": {f"p-{name}": "node"},
            "launcherContainerImageVersion": image,
            "conditions": [condition],
        },
    }


def _pod(name: str, image: str) -> JsonObject:
    owner = {"kind": "VirtualMachineInstance", "name": name, "uid": name, "controller": True}
    status = {"name": "compute", "ready": True, "state": {"running": {}}}
    return {
        "metadata": {
            "name": f"p-{name}",
            "namespace": "ns",
            "uid": f"p-{name}",
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": name},
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", **owner}],
        },
        "spec": {"nodeName": "node", "containers": [{"name": "compute", "image": image}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def _api(strategy: JsonObject, status: JsonObject = _STATUS) -> MemoryApi:
    server = MemoryApi(_KINDS, whole=[_VMIS])
    metadata = {"name": "kubevirt", "namespace": "kubevirt", "generation": 1}
    spec = {"workloadUpdateStrategy": strategy}
    server.put(kinds.KUBEVIRTS, {"metadata": metadata, "spec": spec, "status": status})
    return server


def _add(api: MemoryApi, name: str, image: str = "launcher:1") -> None:
    api.put(resources.PODS, _pod(name, image))
    api.put(_VMIS, _vmi(name, image=image))


def _pods(api: MemoryApi) -> list[str]:
    return sorted(meta.name(pod) for pod in api.list(resources.PODS, "ns"))


def _count(api: MemoryApi) -> object:
    kubevirt = api.get(kinds.KUBEVIRTS, "kubevirt", "kubevirt")
    return get_object(kubevirt, "status").get("outdatedVirtualMachineInstanceWorkloads")


def _events(api: MemoryApi) -> set[tuple[str, str]]:
    return {(event["reason"], event["message"]) for event in api.list(resources.EVENTS, "ns")}


@pytest.mark.looptime
async def test_guests_are_evicted_in_batches_and_counted() -> None:
    strategy = {"workloadUpdateMethods": ["Evict"], "batchEvictionSize": 2, "batchEvictionInterval": "80s"}
    api = _api(strategy)
    async with running_controllers(api, Images("launcher:2", "sidecar:2")):
        _add(api, "new", "launcher:2")
        for name in ("a", "b", "c"):
            _add(api, name)
        await until(lambda: _pods(api) == ["p-c", "p-new"])
        await asyncio.sleep(60.0)
        assert _pods(api) == ["p-c", "p-new"], "the next batch waits for its time"
        assert _count(api) == 1, "the ended ones do not count"
        await until(lambda: _pods(api) == ["p-new"])
        await until(lambda: _count(api) == 0)
    text = "Initiated eviction of VMI as part of automated workload update"
    assert ("SuccessfulEvict", text) in _events(api)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "status", [{**_STATUS, "observedGeneration": 0}, {**_STATUS, "targetDeploymentID": "x"}]
)
async def test_nobody_is_evicted_before_the_new_version_is_rolled_out(status: JsonObject) -> None:
    api = _api({"workloadUpdateMethods": ["Evict"]}, status)
    async with running_controllers(api, Images("launcher:2", "sidecar:2")):
        _add(api, "old")
        await asyncio.sleep(60.0)
        assert _pods(api) == ["p-old"]
        api.put(
            kinds.KUBEVIRTS, {**(api.get(kinds.KUBEVIRTS, "kubevirt", "kubevirt") or {}), "status": _STATUS}
        )
        await until(lambda: _pods(api) == [])


@pytest.mark.looptime
async def test_guests_are_counted_where_none_is_evicted() -> None:
    api = _api({})
    async with running_controllers(api, Images("launcher:2", "sidecar:2")):
        _add(api, "old")
        await until(lambda: _count(api) == 1)
        await asyncio.sleep(60.0)
        assert _pods(api) == ["p-old"]


@pytest.mark.looptime
async def test_a_refused_eviction_is_an_event_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    api = _api({"workloadUpdateMethods": ["Evict"], "batchEvictionInterval": "10s"})
    asked: list[str] = []
    post = api._post  # the only way in which the server in memory can be made to refuse

    def refuse(target: object, body: JsonObject) -> JsonObject:
        asked.append(meta.name(body))
        if len(asked) < 3:
            raise StatusError(429, "TooManyRequests", "Evacuation in progress")
        return post(target, body)  # type: ignore[arg-type]  # it passes through

    monkeypatch.setattr(api, "_post", refuse)
    async with running_controllers(api, Images("launcher:2", "sidecar:2")):
        _add(api, "old")
        await until(lambda: _pods(api) == [])
    text = "Error deleting VMI during automated workload update: Evacuation in progress"
    assert ("FailedEvict", text) in _events(api)
    assert asked == ["p-old"] * 3


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ([], []),
        (["LiveMigrate"], []),
        (["Evict"], ["fixed", "movable"]),
        (["LiveMigrate", "Evict"], ["fixed"]),
    ],
)
def test_movable_guests_are_evicted_only_where_they_may_not_move(
    methods: Sequence[str], expected: list[str]
) -> None:
    documents = [
        _vmi("movable", migratable=True),
        _vmi("fixed"),
        _vmi("moves"),
        _vmi("starts", phase="Scheduled"),
    ]
    found = [decode(VirtualMachineInstance, document) for document in documents]
    chosen = workloadupdates.evictable(
        workloadupdates.outdated(found, "launcher:2"), methods, {("ns", "moves")}
    )
    assert [vmi.metadata.name for vmi in chosen] == expected


def test_guests_that_cannot_be_evicted_do_not_keep_others_waiting() -> None:
    waiting = [decode(VirtualMachineInstance, _vmi(name)) for name in ("a", "b", "c", "d", "e")]
    last, tried = ("", ""), []
    for _ in range(3):
        batch = workloadupdates.next_batch(waiting, 2, last)
        tried.append([vmi.metadata.name for vmi in batch])
        last = ("ns", batch[-1].metadata.name)
    assert tried == [["a", "b"], ["c", "d"], ["e", "a"]]


def test_batches_have_ten_guests_a_minute_unless_said_otherwise() -> None:
    usual = KubeVirtWorkloadUpdateStrategy()
    assert (workloadupdates.batch_size(usual), workloadupdates.interval_seconds(usual)) == (10, 60.0)
    own = KubeVirtWorkloadUpdateStrategy(batch_eviction_size=3, batch_eviction_interval="2m")
    assert (workloadupdates.batch_size(own), workloadupdates.interval_seconds(own)) == (3, 120.0)


def test_nothing_is_rolled_out_without_an_installation() -> None:
    assert not is_rolled_out(None)
