"""Eviction: when the node is under pressure, whom it evicts, with which words; limits of disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kindling.node.eviction import limits, ranking
from kindling.node.eviction import manager as eviction
from kindling.node.eviction.manager import EvictionManager, EvictionServices
from kindling.node.eviction.thresholds import (
    HARD_DEFAULTS,
    Observation,
    Pressure,
    Threshold,
    met,
    observe,
    with_allocatable,
)
from kindling.node.options import NodeOptions, parse
from kindling.node.pods import ending
from kindling.node.pods.admission import refusal
from kindling.node.pods.ending import Ending
from kindling.node.registration import conditions
from kindling.node.stats.cgroups import CgroupUsage
from kindling.node.stats.disk import DiskUsage, FileSystem
from kindling.node.stats.machine import MachineUsage
from kindling.node.stats.usage import ContainerUsage, NodeUsage, PodUsage, Reading, VolumeUsage
from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity

MIB = 1 << 20


def machine(available: int = 500 * MIB, processes: int = 10) -> MachineUsage:
    return MachineUsage(0, 1000 * MIB, 0, 1000 * MIB - available, 0, 0, 0, processes, 1000, 0)


def system(available: int = 50, inodes_free: int = 50) -> FileSystem:
    return FileSystem(100 * MIB, 0, available * MIB, 100, inodes_free)


def node(
    memory: int = 500 * MIB, disk: FileSystem | None = None, pods: tuple[PodUsage, ...] = ()
) -> NodeUsage:
    return NodeUsage(
        "n", 0, machine(memory), None, pods, node_disk=disk or system(), image_disk=disk or system()
    )


def pod(name: str, memory: str = "", priority: int = 0, **more: Any) -> JsonObject:
    requests = {"requests": {"memory": memory}} if memory else {}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": requests}], **more},
        "status": {"qosClass": "Burstable" if memory else "BestEffort"},
    }


def used(name: str, memory: int = 0, disk: int = 0, processes: int = 1) -> PodUsage:
    reading = Reading(CgroupUsage(0, memory, memory, 0, 0, 0, None))
    container = ContainerUsage("c", 0, reading, DiskUsage(disk, 1), DiskUsage(0, 0))
    return PodUsage("ns", name, name, "", reading, [container], processes)


def order(resource: str, pods: list[JsonObject], usages: list[PodUsage]) -> list[str]:
    by_uid = {usage.uid: usage for usage in usages}
    return [each["metadata"]["name"] for each in ranking.ranked(resource, pods, by_uid)]


def test_those_who_use_more_than_they_request_go_first_then_low_priorities_then_large_users() -> None:
    pods = [
        pod("within", "100Mi"),
        pod("little", "10Mi"),
        pod("much", "10Mi"),
        pod("important", "10Mi", 100),
        pod("unimportant-within", "100Mi", -5),
    ]
    usages = [
        used("within", 90 * MIB),
        used("little", 11 * MIB),
        used("much", 50 * MIB),
        used("important", 500 * MIB),
        used("unimportant-within", MIB),
    ]
    assert order("memory", pods, usages) == ["much", "little", "important", "unimportant-within", "within"]


def test_pods_of_which_nothing_is_known_go_first() -> None:
    assert order("memory", [pod("known"), pod("unknown", priority=9)], [used("known", MIB)]) == [
        "unknown",
        "known",
    ]


def test_where_disk_runs_out_a_pod_whose_files_could_not_be_counted_goes_first() -> None:
    """It would hide behind those that can be measured."""
    hidden = VolumeUsage("v", DiskUsage(), is_local=True, is_measured=False)
    pods = [pod("large"), pod("hiding", priority=9)]
    usages = [used("large", MIB, disk=500 * MIB), replace(used("hiding"), volumes=[hidden])]
    for resource in ("ephemeral-storage", "inodes"):
        assert order(resource, pods, usages) == ["hiding", "large"]
    assert order("memory", pods, usages) == ["large", "hiding"]


def test_for_disks_writable_layers_logs_and_local_volumes_count() -> None:
    volumes = [
        VolumeUsage("v", DiskUsage(30 * MIB, 5), is_local=True),
        VolumeUsage("w", DiskUsage(90 * MIB, 9)),
    ]
    large = replace(used("large"), volumes=volumes)
    assert order(
        "ephemeral-storage", [pod("small"), pod("large")], [used("small", disk=20 * MIB), large]
    ) == [
        "large",
        "small",
    ]


def test_for_process_ids_requests_do_not_count() -> None:
    pods = [pod("few"), pod("many"), pod("lower", priority=-1)]
    usages = [used("few", processes=2), used("many", processes=50), used("lower")]
    assert order("pids", pods, usages) == ["lower", "many", "few"]


def test_messages_are_those_of_a_kubelet() -> None:
    observations = {"memory.available": Observation(Quantity.parse("51200Ki"), Quantity.parse("1000Mi"))}
    text = ranking.message(
        "memory", pod("p", "10Mi"), used("p", 64 * MIB), [HARD_DEFAULTS["memory.available"]], observations
    )
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container c was using 64Mi, request is 10Mi, has larger consumption of memory. "
    )
    within = ranking.message("memory", pod("p", "1Gi"), used("p", 64 * MIB), [], {})
    assert within == "The node was low on resource: memory. "
    disk = ranking.message("ephemeral-storage", pod("p"), used("p", disk=8192), [], {})
    assert disk.endswith(
        "Container c was using 8Ki, request is 0, has larger consumption of ephemeral-storage. "
    )


def test_thresholds_are_amounts_or_shares_of_the_capacity() -> None:
    def crossed(usage: NodeUsage) -> list[str]:
        return [threshold.signal for threshold in met(HARD_DEFAULTS, observe(usage))]

    assert crossed(node()) == []
    assert crossed(node(memory=100 * MIB)) == []
    assert crossed(node(memory=100 * MIB - 1)) == ["memory.available"]
    assert crossed(node(disk=system(available=14))) == ["imagefs.available"]
    both = crossed(node(99 * MIB, system(available=9, inodes_free=4)))
    assert both[0] == "memory.available" and len(both) == 5
    no_inodes = FileSystem(100, 0, 50, 0, 0)
    assert crossed(node(disk=no_inodes)) == [], "a file system without a number of inodes"
    pids = {"pid.available": Threshold.parse("pid.available", "10%")}
    assert met(pids, observe(replace(node(), machine=machine(processes=901))))
    assert not met(pids, observe(replace(node(), machine=machine(processes=900))))


def test_pods_are_evicted_before_they_use_up_what_is_theirs() -> None:
    """Where something is reserved, the limit of all pods is below the machine's memory."""
    thresholds = with_allocatable(HARD_DEFAULTS)
    pods = CgroupUsage(0, 0, 350 * MIB, 0, 0, 0, 400 * MIB)
    crossed = met(thresholds, observe(replace(node(), every_pod=pods)))
    assert [each.signal for each in crossed] == ["allocatableMemory.available"]
    text = ranking.message("memory", pod("p"), None, crossed, observe(replace(node(), every_pod=pods)))
    assert text == "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    unlimited = replace(pods, memory_limit=None)
    assert met(thresholds, observe(replace(node(), every_pod=unlimited))) == []
    assert with_allocatable({}) == {}


def test_a_condition_outlasts_its_cause_by_the_transition_period() -> None:
    pressure = Pressure(300)
    pressure.update([HARD_DEFAULTS["nodefs.available"]], 1000)
    pressure.update([], 1299)
    assert pressure.conditions(1299) == ["DiskPressure"]
    assert pressure.conditions(1300) == []


def test_the_node_tells_its_pressure() -> None:
    told = {each["type"]: each for each in conditions({}, [], ["MemoryPressure"], "now")}
    memory = told["MemoryPressure"]
    assert (memory["status"], memory["reason"]) == ("True", "KubeletHasInsufficientMemory")
    assert memory["message"] == "kubelet has insufficient memory available"
    assert (told["DiskPressure"]["status"], told["DiskPressure"]["reason"]) == (
        "False",
        "KubeletHasNoDiskPressure",
    )


def test_under_pressure_pods_are_refused() -> None:
    def refused(each: JsonObject, *pressure: str) -> str:
        found = refusal(each, [], {}, pressure)
        return found.message if found is not None else ""

    assert refused(pod("p"), "MemoryPressure") == "The node had condition: [MemoryPressure]. "
    assert refused(pod("p", "1Mi"), "MemoryPressure") == ""
    assert refused(pod("p", "1Mi"), "DiskPressure", "MemoryPressure").endswith(
        "[DiskPressure MemoryPressure]. "
    )
    assert refused(pod("p", priority=2_000_000_000), "DiskPressure") == ""
    tolerating = pod("p", tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}])
    assert refused(tolerating, "MemoryPressure") == ""
    assert refused(tolerating, "DiskPressure") != ""


def scratch(limit: str) -> JsonObject:
    return pod("p", volumes=[{"name": "x", "emptyDir": {"sizeLimit": limit}}])


def storage(limit: str) -> JsonObject:
    made = pod("p")
    made["spec"]["containers"][0]["resources"] = {"limits": {"ephemeral-storage": limit}}
    return made


def test_volumes_pods_and_containers_have_limits_of_disk() -> None:
    filled = replace(used("p"), volumes=[VolumeUsage("x", DiskUsage(2048 * MIB, 1), is_local=True)])
    assert limits.excess(scratch("1Gi"), filled) == 'Usage of EmptyDir volume "x" exceeds the limit "1Gi". '
    assert limits.excess(scratch("2Gi"), filled) == ""
    assert limits.excess(scratch("0"), filled) == ""
    assert limits.excess(storage("1Gi"), filled) == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
    )
    two = storage("1Mi")
    two["spec"]["containers"].append({"name": "d", "resources": {"limits": {"ephemeral-storage": "9Mi"}}})
    assert limits.excess(two, used("p", disk=2 * MIB)) == (
        'Container c exceeded its local ephemeral storage limit "1Mi". '
    )
    assert [limits.is_limited(each) for each in (pod("p"), scratch("1"), storage("1"))] == [False, True, True]


def test_an_eviction_that_a_stopped_agent_had_begun_goes_on() -> None:
    target = {"type": "DisruptionTarget", "message": "low"}
    status = {"phase": "Running", "reason": "Evicted", "message": "low", "conditions": [target]}
    assert ending.begun({"status": status}) == Ending("Evicted", "low", 1, "low")
    assert ending.begun({"status": status | {"phase": "Failed"}}) is None
    assert ending.begun({"status": {"phase": "Running"}}) is None
    slow = {"spec": {"terminationGracePeriodSeconds": 60}}
    assert ending.grace_seconds(slow, Ending("Evicted", "low", 1)) == 1
    assert ending.grace_seconds(slow, None) == 60


@dataclass
class Node:
    """A node whose usage tests change, and what the manager did to it."""

    usage: NodeUsage
    pods: list[JsonObject]
    after_reclaim: NodeUsage | None = None
    evicted: list[tuple[str, Ending]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    changes: int = 0
    looks: list[bool] = field(default_factory=list)

    async def machine(self) -> NodeUsage:
        return replace(self.usage, pods=())

    async def collect(self, *, with_disk: bool, disk_of: Any = None) -> NodeUsage:
        self.looks.append(with_disk)
        return self.usage

    def evict(self, uid: str, wanted: Ending) -> bool:
        self.evicted.append((uid, wanted))
        self.pods = [each for each in self.pods if each["metadata"]["uid"] != uid]
        return True

    async def reclaim(self) -> None:
        self.events.append("reclaim")
        self.usage = self.after_reclaim or self.usage

    def changed(self) -> None:
        self.changes += 1

    def manager(self, options: NodeOptions | None = None) -> EvictionManager:
        statistics: Any = self
        services = EvictionServices(
            statistics=statistics,
            pods=lambda: self.pods,
            evict=self.evict,
            reclaim=self.reclaim,
            record_event=lambda _pod, _kind, reason, _text, _container: self.events.append(reason),
            record_node_event=lambda reason, text: self.events.append(f"{reason}: {text}"),
            changed=self.changed,
        )
        return EvictionManager(options or NodeOptions(eviction_hard=HARD_DEFAULTS), services)


@pytest.mark.looptime
async def test_an_idle_node_is_looked_at_without_its_pods() -> None:
    seen = Node(node(), [pod("a")])
    running = asyncio.create_task(seen.manager().run())
    await asyncio.sleep(10 * eviction.PERIOD_SECONDS)
    running.cancel()
    assert (seen.evicted, seen.looks, seen.changes) == ([], [], 0)


@pytest.mark.looptime
async def test_a_look_that_fails_in_a_way_that_nobody_foresaw_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Node(node(50 * MIB, pods=(used("a", MIB),)), [pod("a")])
    read, failures = seen.machine, iter([ValueError("what a pod shows"), KeyError("of itself")])

    async def machine() -> NodeUsage:
        for error in failures:
            raise error
        return await read()

    monkeypatch.setattr(seen, "machine", machine)
    running = asyncio.create_task(seen.manager().run())
    await asyncio.sleep(3 * eviction.PERIOD_SECONDS)
    assert [uid for uid, _ in seen.evicted][:1] == ["a"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.looptime
async def test_for_memory_one_pod_is_evicted_at_a_time() -> None:
    seen = Node(node(50 * MIB, pods=(used("a", MIB), used("b", 9 * MIB))), [pod("a"), pod("b")])
    manager = seen.manager()
    assert await manager.relieve() == ["b"]
    assert manager.conditions() == ["MemoryPressure"] and seen.changes == 1
    uid, how = seen.evicted[0]
    assert (uid, how.reason, how.grace_seconds) == ("b", "Evicted", 1)
    assert how.disruption == how.message and how.message.startswith("The node was low on resource: memory. ")
    assert seen.events == ["EvictionThresholdMet: Attempting to reclaim memory", "Evicted"]
    seen.usage = node()
    assert await manager.relieve() == []
    assert manager.conditions() == ["MemoryPressure"]
    await asyncio.sleep(300)
    await manager.relieve()
    assert manager.conditions() == [] and seen.changes == 2


async def test_a_full_disk_is_first_relieved_of_what_nobody_uses() -> None:
    full = node(disk=system(available=5), pods=(used("a", disk=MIB),))
    relieved = Node(full, [pod("a")], after_reclaim=node())
    assert await relieved.manager().relieve() == []
    assert relieved.events == ["EvictionThresholdMet: Attempting to reclaim ephemeral-storage", "reclaim"]
    stuck = Node(full, [pod("a")])
    assert await stuck.manager().relieve() == ["a"]


async def test_critical_pods_are_never_evicted() -> None:
    seen = Node(node(1, pods=(used("a", MIB),)), [pod("a", priority=2_000_001_000)])
    assert await seen.manager().relieve() == []


async def test_all_pods_beyond_their_own_limits_are_evicted_without_pressure() -> None:
    filled = replace(used("p"), volumes=[VolumeUsage("x", DiskUsage(2 * MIB, 1), is_local=True)])
    seen = Node(node(pods=(filled, used("a"))), [scratch("1Mi"), pod("a")])
    manager = seen.manager(parse(["eviction-hard="]))
    assert await manager.enforce_limits() == ["p"]
    assert await manager.relieve() == []
    assert seen.evicted[0][1].disruption == "", "the node is not at fault"
    assert manager.conditions() == []


@pytest.mark.looptime
async def test_measuring_disks_does_not_keep_the_node_from_being_relieved() -> None:
    seen = Node(node(50 * MIB, pods=(used("a", MIB),)), [pod("a"), scratch("1Mi")])
    stuck = asyncio.Event()

    async def collect(*, with_disk: bool, disk_of: Any = None) -> NodeUsage:
        if with_disk:
            await stuck.wait()
        return seen.usage

    seen.collect = collect  # type: ignore[method-assign]
    running = asyncio.create_task(seen.manager().run())
    await asyncio.sleep(1)
    assert [uid for uid, _ in seen.evicted] == ["p", "a"], "first that of which nothing is known"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
