"""What is said of the node with every heartbeat, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError, not_found
from kubecore.resources import NODES
from kubecore.testing import MemoryApi
from virtplane.compute.handler.node.heartbeat import Heartbeat
from virtplane.compute.handler.node.kvm import KvmVerdict

pytestmark = pytest.mark.looptime

NODE = "node01"
SCHEDULABLE = "kubevirt.io/schedulable"


class Events:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, _about: Any, _kind: str, reason: str, _message: str) -> None:
        self.reasons.append(reason)


class Setup:
    """A node and its heartbeat; `ready` is what the heartbeat is told."""

    def __init__(self, *, kvm: bool = True) -> None:
        self.api = MemoryApi()
        self.api.put(NODES, {"metadata": {"name": NODE, "labels": {"zone": "a"}}, "status": {}})
        self.events = Events()
        self.ready = True
        verdict = KvmVerdict(kvm, "no KVM")
        self.client = self.api.client()
        events: Any = self.events
        self.heartbeat = Heartbeat(self.client, events, NODE, verdict, lambda: self.ready)

    def labels(self) -> dict[str, str]:
        return dict((self.api.get(NODES, NODE) or {})["metadata"]["labels"])

    def beats(self) -> int:
        return sum(request.method == "PATCH" for request in self.api.requests)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.heartbeat.run())
        await asyncio.sleep(0.1)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.client.close()


async def test_ready_node_takes_guests_until_virt_handler_ends() -> None:
    setup = Setup()
    async with setup.beating():
        assert setup.labels()[SCHEDULABLE] == "true"
        assert setup.labels()["zone"] == "a"
    assert setup.labels()[SCHEDULABLE] == "false"


async def test_node_takes_guests_within_a_second_of_being_ready() -> None:
    setup = Setup()
    setup.ready = False
    async with setup.beating():
        assert setup.labels()[SCHEDULABLE] == "false"
        setup.ready = True
        await asyncio.sleep(1)
        assert setup.labels()[SCHEDULABLE] == "true"


async def test_steady_node_beats_about_once_a_minute() -> None:
    setup = Setup()
    async with setup.beating():
        before = setup.beats()
        await asyncio.sleep(600)
        assert 8 <= setup.beats() - before <= 10


@pytest.mark.parametrize(
    ("kvm", "status", "reasons"), [(True, "True", []), (False, "False", ["KVMUnusable"])]
)
async def test_condition_tells_how_guests_run_and_is_announced_once(
    kvm: bool, status: str, reasons: list[str]
) -> None:
    setup = Setup(kvm=kvm)
    async with setup.beating():
        await asyncio.sleep(300)
        conditions = (setup.api.get(NODES, NODE) or {})["status"]["conditions"]
        assert [item["status"] for item in conditions] == [status]
        assert setup.events.reasons == reasons


@pytest.mark.parametrize(
    "failure",
    [
        lambda: StatusError(500, "InternalError", "broken"),
        lambda: StatusError(409, "Conflict", "changed"),
        lambda: not_found(NODES, NODE),
        lambda: ConnectionFailed("gone"),
    ],
    ids=["broken", "conflict", "node is missing", "unreachable"],
)
async def test_trouble_of_the_api_is_outlasted(
    failure: Callable[[], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    is_broken = True

    def react(_request: object) -> None:
        if is_broken:
            raise failure()

    setup.api.reactions.append(react)
    async with setup.beating():
        await asyncio.sleep(120)
        assert SCHEDULABLE not in setup.labels()
        assert len(caplog.records) == 1
        is_broken = False
        await asyncio.sleep(2)
        assert setup.labels()[SCHEDULABLE] == "true"
