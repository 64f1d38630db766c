"""A pod's worker beside a slow or missing API."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

from kindling.node.pods.fields import NodeFacts
from kindling.node.pods.observed import Observation, Verdicts
from kindling.node.pods.worker import PodServices, PodWorker
from kindling.node.runtime.interface import Container, ContainerState, Sandbox
from kubecore.client import ConnectionFailed

SANDBOX = Sandbox("s1", "p", "ns", "u", 0, True, 1, ips=("10.64.1.2",))
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {"restartPolicy": "Always", "containers": [{"name": "main"}]},
    "status": {"phase": "Pending"},
}


class Node:
    """What a worker has around it: a runtime whose containers run once started, and an API."""

    def __init__(self) -> None:
        self.seen = Observation((SANDBOX,))
        self.started = asyncio.Event()
        self.told: list[list[str]] = []
        self.says_running = asyncio.Event()
        self.api = asyncio.Event()
        self.api_is_away = False

    async def start(self, _session: object, _observed: Observation, name: str) -> None:
        running = Container(name, SANDBOX.id, name, 0, ContainerState.RUNNING, 1, started_at=2)
        self.seen = Observation((SANDBOX,), {name: (running,)})
        self.started.set()

    async def publish(self, _pod: object, status: dict[str, Any]) -> None:
        if self.api_is_away:
            raise ConnectionFailed("the API server is away")
        await self.api.wait()
        self.told.append([next(iter(each["state"])) for each in status["containerStatuses"]])
        if self.told[-1] == ["running"]:
            self.says_running.set()

    def worker(self) -> PodWorker:
        observer = Mock(observation=lambda _uid: self.seen, relist=AsyncMock())
        volumes = Mock(prepare=AsyncMock(return_value={}), refresh=AsyncMock())
        services = PodServices(
            runtime=Mock(),
            observer=observer,
            publisher=Mock(publish=self.publish),
            volumes=volumes,
            probes=Mock(verdicts=lambda _id: Verdicts()),
            starter=Mock(start=self.start),
            stopper=Mock(),
            recorder=Mock(),
            node=lambda: NodeFacts("node01", ("10.64.0.1",), {}),
            release=AsyncMock(),
        )
        return PodWorker(POD, services)


async def _end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_containers_start_without_waiting_for_the_api_and_statuses_keep_their_order() -> None:
    node = Node()
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(node.started.wait(), 2)
    assert node.told == []
    node.api.set()
    await asyncio.wait_for(node.says_running.wait(), 2)
    assert node.told[:2] == [["waiting"], ["running"]]
    await _end(running)


async def test_containers_start_while_the_api_is_away_and_it_is_told_when_it_is_back() -> None:
    node = Node()
    node.api_is_away = True
    running = asyncio.create_task(node.worker().run())
    await asyncio.wait_for(node.started.wait(), 2)
    node.api_is_away = False
    node.api.set()
    await asyncio.wait_for(node.says_running.wait(), 3)
    await _end(running)
