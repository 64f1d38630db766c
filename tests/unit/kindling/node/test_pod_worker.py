"""A pod's worker beside a slow or missing API."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kindling.node.networks.problems import NetworkProblem
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.pod_services import PodServices
from kindling.node.pods.pod_worker import PodWorker
from kindling.node.pods.runtime_status import PodRuntimeStatus, ProbeResults
from kindling.node.runtime.interface import Container, ContainerState, Sandbox
from kindling.node.volumes.manager import VolumeProblem
from kubecore.client import ConnectionFailed

pytestmark = pytest.mark.looptime

SANDBOX = Sandbox("s1", "p", "ns", "u", 0, True, 1, ips=("10.64.1.2",))
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {"restartPolicy": "Always", "containers": [{"name": "main", "ports": [{"hostPort": 80}]}]},
    "status": {"phase": "Pending"},
}


class Node:
    """What a worker has around it: a runtime whose containers run once started, and an API."""

    def __init__(self) -> None:
        self.seen = PodRuntimeStatus((SANDBOX,))
        self.started = asyncio.Event()
        self.told: list[list[str]] = []
        self.reports_running = asyncio.Event()
        self.api = asyncio.Event()
        self.api_is_away = False
        self.statuses: list[dict[str, Any]] = []
        self.has_ended = asyncio.Event()
        self.volumes = Mock(prepare=AsyncMock(return_value={}), refresh=AsyncMock())
        self.networks = Mock(sync=AsyncMock(return_value=30.0), check=AsyncMock())
        self.published: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.events: list[tuple[str, ...]] = []

    def event(self, _pod: object, kind: str, reason: str, message: str, where: str) -> None:
        self.events.append((kind, reason, message, where))

    async def start(self, _session: object, _observed: PodRuntimeStatus, name: str) -> None:
        running = Container(name, SANDBOX.id, name, 0, ContainerState.RUNNING, 1, started_at=2)
        self.seen = PodRuntimeStatus((SANDBOX,), {name: (running,)})
        self.started.set()

    async def publish(self, _pod: object, status: dict[str, Any]) -> None:
        if self.api_is_away:
            raise ConnectionFailed("the API server is away")
        await self.api.wait()
        self.statuses.append(status)
        self.published.put_nowait(status)
        if status["phase"] == "Failed":
            self.has_ended.set()
        self.told.append([next(iter(each["state"])) for each in status["containerStatuses"]])
        if self.told[-1] == ["running"]:
            self.reports_running.set()

    def worker(self, beside: Sequence[dict[str, Any]] = (), pod: dict[str, Any] = POD) -> PodWorker:
        pleg = Mock(runtime_status=lambda _uid: self.seen, relist=AsyncMock())
        services = PodServices(
            runtime=Mock(),
            pleg=pleg,
            status_manager=Mock(publish=self.publish, confirm_deletion=AsyncMock()),
            volumes=self.volumes,
            probes=Mock(probe_results=lambda _id: ProbeResults()),
            starter=Mock(start=self.start),
            stopper=Mock(),
            recorder=Mock(event=self.event),
            node=lambda: NodeFacts("node01", ("10.64.0.1",), {}),
            release=AsyncMock(),
            networks=self.networks,
            admitted=lambda: list(beside),
            pressure=lambda: (),
            reserve=lambda _pod: None,
            resizer=Mock(
                view=lambda pod: pod,
                actuate=AsyncMock(return_value=frozenset()),
                actuated=lambda _uid: {},
                conditions=lambda _uid: [],
            ),
        )
        return PodWorker(pod, services)


async def _end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_containers_start_without_waiting_for_the_api_and_statuses_keep_their_order() -> None:
    node = Node()
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(node.started.wait(), 2)
    assert node.told == []
    node.api.set()
    await asyncio.wait_for(node.reports_running.wait(), 2)
    assert node.told[:2] == [["waiting"], ["running"]]
    await _end(running)


async def test_containers_start_while_the_api_is_away_and_it_is_told_when_it_is_back() -> None:
    node = Node()
    node.api_is_away = True
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(node.started.wait(), 2)
    node.api_is_away = False
    node.api.set()
    await asyncio.wait_for(node.reports_running.wait(), 3)
    await _end(running)


async def test_a_pod_that_the_node_has_no_room_for_fails_with_the_reason_and_starts_nothing() -> None:
    node = Node()
    node.seen = PodRuntimeStatus()
    node.api.set()
    worker = node.worker(beside=[{"spec": {"containers": [{"ports": [{"hostPort": 80}]}]}}])
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(node.has_ended.wait(), 2)
    assert node.statuses[-1]["phase"] == "Failed"
    assert node.statuses[-1]["reason"] == "NodePorts"
    assert node.statuses[-1]["message"].startswith("Pod was rejected: Predicate NodePorts failed: ")
    assert not node.started.is_set()
    assert not worker.is_admitted
    await _end(running)


async def test_a_pod_that_ran_before_the_agent_started_again_is_not_refused() -> None:
    node = Node()
    node.api.set()
    worker = node.worker(beside=[{"spec": {"containers": [{"ports": [{"hostPort": 80}]}]}}])
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(node.reports_running.wait(), 2)
    assert worker.is_admitted
    await _end(running)


async def test_no_container_starts_before_the_pod_has_its_networks() -> None:
    node = Node()
    node.api.set()
    asked = asyncio.Event()
    missing = [NetworkProblem("not yet"), NetworkProblem("not yet")]

    async def sync(_pod: object, _observed: PodRuntimeStatus) -> float:
        asked.set()
        if missing:
            raise missing.pop()
        return 30.0

    node.networks.sync = sync
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(asked.wait(), 2)
    assert not node.started.is_set()
    await asyncio.wait_for(node.reports_running.wait(), 10)
    assert not missing
    await _end(running)


async def test_no_sandbox_is_made_for_networks_that_nobody_defined() -> None:
    node = Node()
    node.seen = PodRuntimeStatus()
    node.api.set()
    asked = asyncio.Event()

    async def check(_pod: object) -> None:
        asked.set()
        raise NetworkProblem("cannot find a network-attachment-definition (lan) in namespace (ns): gone")

    node.networks.check = check
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(asked.wait(), 2)
    status = await asyncio.wait_for(node.published.get(), 2)
    assert _waiting(status)["main"]["reason"] == "ContainerCreating"
    assert not node.started.is_set()
    said = (
        "Failed to create pod sandbox: rpc error: code = Unknown desc = cannot find a "
        "network-attachment-definition (lan) in namespace (ns): gone"
    )
    assert ("Warning", "FailedCreatePodSandBox", said, "") in node.events
    await _end(running)


def _waiting(status: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {each["name"]: each["state"]["waiting"] for each in status["containerStatuses"]}


@pytest.mark.feature("SUP-23")
async def test_containers_wait_for_the_image_of_a_volume_that_they_mount() -> None:
    """As a kubelet has it: the reason is the image's, not that of a mount."""
    problems = [
        VolumeProblem("disk", "no such host", reason) for reason in ("ErrImagePull", "ImagePullBackOff")
    ]
    problems.append(VolumeProblem("other", "not bound"))

    async def prepare(_pod: object) -> dict[str, Any]:
        await asyncio.sleep(0)
        raise problems.pop(0) if len(problems) > 1 else problems[0]

    node = Node()
    node.seen = PodRuntimeStatus()
    node.api.set()
    node.volumes.prepare = prepare
    containers = [{"name": "main", "volumeMounts": [{"name": "disk"}]}, {"name": "side"}]
    worker = node.worker(pod={**POD, "spec": {"restartPolicy": "Never", "containers": containers}})
    running = asyncio.create_task(worker.run())
    creating = {"reason": "ContainerCreating"}
    for reason in ("", "ErrImagePull", "ImagePullBackOff", ""):
        main = {"reason": reason, "message": "no such host"} if reason else creating
        async with asyncio.timeout(5):
            while _waiting(await node.published.get()) != {"main": main, "side": creating}:
                worker.wake()
        worker.wake()
    await _end(running)
    assert node.events[:3] == [
        ("Warning", "Failed", "Error: ErrImagePull", "spec.containers{main}"),
        ("Warning", "Failed", "Error: ImagePullBackOff", "spec.containers{main}"),
        ("Warning", "FailedMount", 'MountVolume.SetUp failed for volume "other" : not bound', ""),
    ]


async def test_a_status_seen_earlier_never_follows_one_seen_later() -> None:
    """The volumes fail before the first status has been sent: what is told last is that they did."""
    node = Node()
    node.seen = PodRuntimeStatus()
    node.api.set()
    node.volumes.prepare.side_effect = VolumeProblem("disk", "no such host", "ErrImagePull")
    containers = [{"name": "main", "volumeMounts": [{"name": "disk"}]}]
    running = asyncio.create_task(node.worker(pod={**POD, "spec": {"containers": containers}}).run())
    told = [_waiting(await asyncio.wait_for(node.published.get(), 2))["main"]["reason"]]
    while not node.published.empty():
        told.append(_waiting(node.published.get_nowait())["main"]["reason"])
    await _end(running)
    assert told == ["ErrImagePull"]


async def test_a_volume_that_fails_is_tried_again_after_half_a_second() -> None:
    node = Node()
    node.seen = PodRuntimeStatus()
    node.api.set()
    loop, tried = asyncio.get_running_loop(), asyncio.Queue[float]()

    async def prepare(_pod: object) -> dict[str, Any]:
        tried.put_nowait(loop.time())
        raise VolumeProblem("disk", "not there yet")

    node.volumes.prepare = prepare
    running = asyncio.create_task(node.worker().run())
    moments = [await asyncio.wait_for(tried.get(), 10) for _ in range(3)]
    await _end(running)
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert pauses == pytest.approx([0.5, 1.0], abs=0.1)
