"""The scheduler at work against the server in memory, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.managers import working
from tests.support.roles import RestrictedApi

from kindling.scheduler.loop import Scheduler
from kindling.scheduler.queue import SchedulingQueue
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


def node(name: str = "n1", cpu: str = "1") -> JsonObject:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


def pod(name: str, cpu: str = "1", **spec: object) -> JsonObject:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


@asynccontextmanager
async def scheduling(api: MemoryApi) -> AsyncIterator[None]:
    restricted = RestrictedApi(api, "system:kube-scheduler")
    manager = Manager(restricted.client())
    Scheduler(manager)
    async with working(manager):
        yield
    assert restricted.refused == []


def node_of(api: MemoryApi, name: str) -> str:
    found = api.get(PODS, name, "lab")
    assert found is not None
    return str(found["spec"].get("nodeName", ""))


async def test_a_pod_is_bound_and_users_are_told() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    async with scheduling(api):
        api.put(PODS, pod("p"))
        await asyncio.sleep(1)
    assert node_of(api, "p") == "n1"
    (event,) = api.list(EVENTS)
    assert (event["reason"], event["message"]) == ("Scheduled", "Successfully assigned lab/p to n1")
    assert event["reportingComponent"] == "default-scheduler"


async def test_a_pod_that_fits_nowhere_gets_a_condition_and_is_placed_when_room_appears() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    api.put(PODS, pod("first"))
    async with scheduling(api):
        await asyncio.sleep(1)
        api.put(PODS, pod("second"))
        await asyncio.sleep(1)
        waiting = api.get(PODS, "second", "lab")
        assert waiting is not None
        (condition,) = waiting["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert any(event["reason"] == "FailedScheduling" for event in api.list(EVENTS))
        api.remove(PODS, "first", "lab")
        await asyncio.sleep(15)
    assert node_of(api, "second") == "n1"


async def test_a_pod_that_the_rules_cannot_handle_keeps_no_other_waiting() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    async with scheduling(api):
        api.put(PODS, pod("broken", cpu="no amount"))
        await asyncio.sleep(1)
        api.put(PODS, pod("whole"))
        await asyncio.sleep(1)
    assert (node_of(api, "broken"), node_of(api, "whole")) == ("", "n1")


async def test_a_pod_that_names_its_node_asks_for_what_no_float_holds_and_keeps_no_other_waiting() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    api.put(PODS, pod("huge", cpu="1E380", nodeName="n1"))
    async with scheduling(api):
        api.put(PODS, pod("whole", cpu="0"))
        await asyncio.sleep(1)
    assert node_of(api, "whole") == "n1"


async def test_important_pods_go_first() -> None:
    api = MemoryApi()
    api.put(PODS, pod("plain"))
    api.put(PODS, pod("important", priority=1000))
    async with scheduling(api):
        await asyncio.sleep(1)
        api.put(NODES, node())
        await asyncio.sleep(15)
    assert (node_of(api, "important"), node_of(api, "plain")) == ("n1", "")


async def test_an_important_pod_takes_the_place_of_another() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    api.put(PODS, pod("plain"))
    async with scheduling(api):
        await asyncio.sleep(1)
        api.put(PODS, pod("important", priority=1000))
        await asyncio.sleep(15)
    assert api.get(PODS, "plain", "lab") is None
    assert node_of(api, "important") == "n1"
    assert any(event["reason"] == "Preempted" for event in api.list(EVENTS))


async def test_room_that_was_made_for_a_pod_is_kept_for_it() -> None:
    api = MemoryApi()
    api.put(NODES, node(cpu="2"))
    api.put(PODS, pod("quick"))
    slow = pod("slow")
    slow["metadata"]["finalizers"] = ["example.com/ends-slowly"]
    api.put(PODS, slow)
    async with scheduling(api):
        await asyncio.sleep(1)
        api.put(PODS, pod("important", cpu="2", priority=1000))
        await asyncio.sleep(2)
        assert api.get(PODS, "quick", "lab") is None
        important = api.get(PODS, "important", "lab")
        assert important is not None
        assert important["status"]["nominatedNodeName"] == "n1"
        api.put(PODS, pod("quick-again"))
        api.put(PODS, pod("urgent", priority=2000))
        await asyncio.sleep(60)
        assert (node_of(api, "quick-again"), node_of(api, "urgent")) == ("", "n1")
        api.remove(PODS, "urgent", "lab")
        api.remove(PODS, "slow", "lab")
        await asyncio.sleep(60)
        assert (node_of(api, "quick-again"), node_of(api, "important")) == ("", "n1")


async def test_a_scheduler_keeps_the_room_that_the_one_before_made() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    important = pod("important", cpu="2", priority=1000)
    important["status"]["nominatedNodeName"] = "n1"
    slow = pod("slow", cpu="0", nodeName="n1")
    slow["metadata"] |= {
        "finalizers": ["example.com/ends-slowly"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    api.put(PODS, important)
    api.put(PODS, slow)
    api.put(PODS, pod("plain"))
    async with scheduling(api):
        await asyncio.sleep(30)
        assert node_of(api, "plain") == ""
        api.remove(PODS, "important", "lab")
        await asyncio.sleep(60)
        assert node_of(api, "plain") == "n1"


@pytest.mark.feature("VML-68")
async def test_gated_and_foreign_pods_are_left_alone() -> None:
    api = MemoryApi()
    api.put(NODES, node(cpu="8"))
    api.put(PODS, pod("gated", schedulingGates=[{"name": "wait"}]))
    api.put(PODS, pod("foreign", schedulerName="other"))
    async with scheduling(api):
        await asyncio.sleep(5)
        assert (node_of(api, "gated"), node_of(api, "foreign")) == ("", "")
        api.put(PODS, pod("gated"))
        await asyncio.sleep(5)
    assert node_of(api, "gated") == "n1"


async def test_a_refused_binding_is_tried_again() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    api.put(PODS, pod("p"))
    refusals = [StatusError(500, "InternalError", "no")]
    api.reactions.append(
        lambda request: refusals.pop() if refusals and request.path.endswith("/binding") else None
    )
    async with scheduling(api):
        await asyncio.sleep(10)
    assert node_of(api, "p") == "n1"


async def test_a_driver_is_told_the_node_and_the_pod_waits_for_the_volume() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    provisioned = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    api.put(STORAGE_CLASSES, {"metadata": {"name": "fast"}, **provisioned})
    claim: JsonObject = {
        "metadata": {"name": "c", "namespace": "lab"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }
    api.put(PERSISTENT_VOLUME_CLAIMS, claim)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    api.put(PODS, pod("p", volumes=volumes))
    async with scheduling(api):
        await asyncio.sleep(5)
        asked = api.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        assert asked is not None
        assert asked["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1"
        assert node_of(api, "p") == ""
        asked = {**asked, "spec": {**asked["spec"], "volumeName": "pv"}}
        asked["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        api.put(PERSISTENT_VOLUME_CLAIMS, asked)
        await asyncio.sleep(5)
    assert node_of(api, "p") == "n1"


async def test_a_pod_is_not_kept_waiting_once_its_claim_is_bound() -> None:
    api = MemoryApi()
    api.put(NODES, node())
    api.put(STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "csi.example.com"})
    spec: JsonObject = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("c", "other"):
        api.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name, "namespace": "lab"}, "spec": spec})
    for name, claim in (("p", "c"), ("q", "other")):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        api.put(PODS, pod(name, "100m", volumes=volumes))
    async with scheduling(api):
        await asyncio.sleep(0.2)
        api.put(PERSISTENT_VOLUMES, {"metadata": {"name": "pv"}, "spec": {}})
        for name, done in (("c", {"pv.kubernetes.io/bind-completed": "yes"}), ("other", {})):
            found = api.get(PERSISTENT_VOLUME_CLAIMS, name, "lab")
            assert found is not None
            found["metadata"]["annotations"] = done
            api.put(PERSISTENT_VOLUME_CLAIMS, {**found, "spec": {**spec, "volumeName": "pv"}})
        await asyncio.sleep(0.2)  # of a second that the pods back off
        assert node_of(api, "p") == "n1"
        assert node_of(api, "q") == ""


def test_pauses_grow_and_end_with_a_change() -> None:
    queue = SchedulingQueue()
    key = ("lab", "p")
    queue.add(key, 0, 0.0)
    assert queue.next(0.0) is not None
    pauses = []
    now = 0.0
    for _ in range(6):
        queue.failed(key, now)
        assert queue.next(now + 100) is None
        queue.wake()
        pause = queue.seconds_to_next(now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 10, 10]
    queue.remove(key)
    assert len(queue) == 0


def test_a_blocked_pod_is_tried_again_after_five_minutes_without_a_change() -> None:
    queue = SchedulingQueue()
    queue.add(("lab", "p"), 0, 0.0)
    queue.failed(("lab", "p"), 0.0)
    assert queue.next(299.0) is None
    assert queue.seconds_to_next(100.0) == 200.0
    assert queue.next(300.0) is not None


async def test_a_pod_that_never_fits_is_told_of_twice_and_then_every_half_hour() -> None:
    api = MemoryApi()
    api.put(NODES, node(cpu="1"))
    async with scheduling(api):
        api.put(PODS, pod("big", cpu="2"))
        await asyncio.sleep(900.0)
        assert [event.get("count") for event in api.list(EVENTS)] == [2]
        told = len(api.requests)
        await asyncio.sleep(2 * 3600.0)
        writes = [request.method for request in api.requests[told:] if request.method != "GET"]
        assert writes == ["PATCH"] * 4


async def test_another_reason_why_a_pod_does_not_fit_is_told_at_once() -> None:
    api = MemoryApi()
    api.put(NODES, node(cpu="1"))
    async with scheduling(api):
        api.put(PODS, pod("big", cpu="2"))
        await asyncio.sleep(900.0)
        api.put(NODES, node("n2", cpu="1"))
        await asyncio.sleep(15.0)
        messages = [event["message"] for event in api.list(EVENTS)]
        assert [message[:3] for message in messages] == ["0/1", "0/2"]


def test_pods_that_fit_nowhere_do_not_keep_those_of_other_namespaces_waiting() -> None:
    queue, now = SchedulingQueue(), 1.0
    for number in range(1000):
        queue.add(("crowd", f"p{number}"), 0, 0.0)
    for number in range(500):
        found = queue.next(now)
        assert found is not None and found.key == ("crowd", f"p{number}")
        queue.failed(found.key, now)
        now += 0.01
        queue.wake()
    queue.add(("lab", "p"), 0, now)
    found = queue.next(now)
    assert found is not None and found.key == ("lab", "p")
    queue.failed(found.key, now)
    queue.add(("crowd", "urgent"), 10, now)
    found = queue.next(now)
    assert found is not None and found.key == ("crowd", "urgent")


def test_pods_of_one_namespace_are_tried_one_after_the_other() -> None:
    queue, tried = SchedulingQueue(), []
    for number in range(4):
        queue.add(("lab", f"p{number}"), 0, 0.0)
    for step in range(8):
        now = 20.0 * (step + 1)
        found = queue.next(now)
        assert found is not None
        tried.append(found.key[1])
        queue.failed(found.key, now)
        queue.wake()
    assert tried == ["p0", "p1", "p2", "p3"] * 2


def test_the_queue_forgets_namespaces_without_pods() -> None:
    queue = SchedulingQueue()
    for number in range(100):
        key = (f"ns{number}", "p")
        queue.add(key, 0, 0.0)
        assert queue.next(0.0) is not None
        queue.remove(key)
    assert len(queue._turns) <= 3
