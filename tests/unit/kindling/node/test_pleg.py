"""Watching the runtime although pods and containers are odd."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kindling.node.pods import identity
from kindling.node.pods.pleg import RELIST_SECONDS, Pleg
from kindling.node.runtime.containerd import change_of
from kindling.node.runtime.interface import Change, Container, ContainerState, RuntimeFailure, Sandbox
from kubecore.wire import load_interface

pytestmark = pytest.mark.looptime


class Runtime:
    """Containers by id; `trouble` raises or waits when one is asked for."""

    def __init__(self) -> None:
        self.containers: dict[str, Container] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.trouble: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []
        self.relists = 0
        self.events: asyncio.Queue[Change | None] = asyncio.Queue()

    def add(self, id: str, uid: str, **fields: Any) -> None:
        fields = {"state": ContainerState.RUNNING, **fields}
        labels = {identity.LABEL_UID: uid}
        self.containers[id] = Container(id, f"s-{uid}", "main", 0, created_at=1, labels=labels, **fields)
        self.sandboxes[f"s-{uid}"] = Sandbox(f"s-{uid}", "p", "ns", uid, 0, True, 1, ips=("10.0.0.1",))

    async def list_sandboxes(self, known: Mapping[str, Sandbox]) -> list[Sandbox]:
        self.relists += 1
        listed = [replace(item, ips=()) for item in self.sandboxes.values()]
        return [
            same if (same := known.get(item.id)) is not None and same.ready is item.ready else item
            for item in listed
        ]

    async def list_containers(self, known: Mapping[str, Container]) -> list[Container]:
        listed = [replace(item, exit_code=0, log_path="") for item in self.containers.values()]
        return [
            same if (same := known.get(item.id)) is not None and same.state is item.state else item
            for item in listed
        ]

    async def _tell(self, id: str) -> None:
        self.asked.append(id)
        if id in self.trouble:
            await self.trouble[id]()

    async def sandbox_status(self, id: str) -> Sandbox:
        await self._tell(id)
        return self.sandboxes[id]

    async def container_status(self, id: str) -> Container:
        await self._tell(id)
        return replace(self.containers[id], sandbox_id="")

    async def changes(self) -> AsyncIterator[Change | None]:
        yield None
        while True:
            yield await self.events.get()


def fails(code: str) -> Callable[[], Any]:
    async def failing() -> None:
        raise RuntimeFailure("the container is broken", code)

    return failing


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.fixture
def runtime() -> Runtime:
    made = Runtime()
    made.add("odd", "u1")
    made.add("good", "u2")
    return made


def observer_of(runtime: Any, changed: Callable[[str], None] = lambda _uid: None) -> Pleg:
    return Pleg(runtime, changed)


@pytest.mark.parametrize("trouble", [fails("INTERNAL"), fails("UNKNOWN"), fails("RESOURCE_EXHAUSTED"), hangs])
@pytest.mark.parametrize("thing", ["odd", "s-u1"])
async def test_one_odd_container_does_not_keep_others_from_being_seen(
    runtime: Runtime, trouble: Callable[[], Any], thing: str
) -> None:
    runtime.trouble[thing] = trouble
    pleg = observer_of(runtime)
    await pleg.relist()
    seen = pleg.runtime_status("u2").current("main")
    assert seen is not None and seen.state is ContainerState.RUNNING
    assert pleg.runtime_status("u2").ips == ("10.0.0.1",)
    assert pleg.runtime_status("u1").sandbox is not None
    del runtime.trouble[thing]
    await pleg.relist()
    assert pleg.runtime_status("u1").ips == ("10.0.0.1",)
    assert pleg.runtime_status("u1").current("main") is not None


async def test_a_container_has_not_ended_before_the_runtime_tells_how(runtime: Runtime) -> None:
    pleg = observer_of(runtime)
    await pleg.relist()
    runtime.add("odd", "u1", state=ContainerState.EXITED, exit_code=7)
    runtime.trouble["odd"] = fails("INTERNAL")
    await pleg.relist()
    seen = pleg.runtime_status("u1").current("main")
    assert seen is not None and seen.state is ContainerState.RUNNING
    del runtime.trouble["odd"]
    await pleg.relist()
    seen = pleg.runtime_status("u1").current("main")
    assert seen is not None and (seen.state, seen.exit_code) == (ContainerState.EXITED, 7)


async def test_a_runtime_that_is_away_is_no_answer(runtime: Runtime) -> None:
    pleg = observer_of(runtime)
    await pleg.relist()
    runtime.add("odd", "u1", state=ContainerState.EXITED)
    runtime.trouble["odd"] = fails("UNAVAILABLE")
    with pytest.raises(RuntimeFailure):
        await pleg.relist()
    assert pleg.uids() == {"u1", "u2"}


async def test_what_is_known_is_not_asked_for_again(runtime: Runtime) -> None:
    pleg = observer_of(runtime)
    await pleg.relist()
    assert sorted(runtime.asked) == ["good", "odd", "s-u1", "s-u2"]
    await pleg.relist()
    assert len(runtime.asked) == 4


@pytest.mark.timeout(20)
async def test_termination_files_of_any_kind_leave_the_observer_running(
    runtime: Runtime, tmp_path: Path
) -> None:
    """A file of 16 TiB, a pipe, a link, a directory, bytes that are no text: only the text counts."""
    huge = tmp_path / "huge"
    with huge.open("wb") as stream:
        stream.seek(1 << 43)
        stream.write(b"\xffout of cheese")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "directory").mkdir()
    for name in ("huge", "pipe", "link", "directory"):
        file = {identity.ANNOTATION_TERMINATION_FILE: str(tmp_path / name)}
        runtime.add(name, name, state=ContainerState.EXITED, annotations=file)
    pleg = observer_of(runtime)
    await pleg.relist()
    messages = {}
    for name in ("huge", "pipe", "link", "directory"):
        seen = pleg.runtime_status(name).current("main")
        assert seen is not None
        messages[name] = seen.message
    assert messages["huge"].endswith("\N{REPLACEMENT CHARACTER}out of cheese")
    assert len(messages["huge"]) == 4096
    assert (messages["pipe"], messages["link"], messages["directory"]) == ("", "", "")


@asynccontextmanager
async def observing(runtime: Runtime) -> AsyncIterator[tuple[Pleg, asyncio.Queue[str]]]:
    """An observer that has seen all there is, and which pods it found changed since."""
    changed: asyncio.Queue[str] = asyncio.Queue()
    pleg = observer_of(runtime, changed.put_nowait)
    running = asyncio.create_task(pleg.run())
    await asyncio.sleep(RELIST_SECONDS / 2)
    while not changed.empty():
        changed.get_nowait()
    runtime.relists = 0
    yield pleg, changed
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_event_is_followed_until_the_runtime_lists_what_it_says(runtime: Runtime) -> None:
    async with observing(runtime) as (_, changed):
        runtime.events.put_nowait(Change("odd", ContainerState.EXITED))
        await asyncio.sleep(0.3)
        assert (runtime.relists, changed.qsize()) == (3, 0)
        runtime.add("odd", "u1", state=ContainerState.EXITED)
        async with asyncio.timeout(0.5):
            assert await changed.get() == "u1"
        await asyncio.sleep(3)
        assert runtime.relists == 4


async def test_what_a_worker_has_seen_is_not_listed_for_its_event_again(runtime: Runtime) -> None:
    async with observing(runtime) as (pleg, _):
        runtime.add("new", "u3")
        await pleg.relist()
        for change in (Change("new", ContainerState.RUNNING), Change("s-u3", ContainerState.RUNNING)):
            runtime.events.put_nowait(change)
        await asyncio.sleep(3)
        assert runtime.relists == 1


async def test_an_event_of_what_is_never_listed_does_not_stop_regular_relists(runtime: Runtime) -> None:
    async with observing(runtime) as (_, changed):
        runtime.events.put_nowait(Change("never", ContainerState.RUNNING))
        await asyncio.sleep(5)
        assert runtime.relists == 5
        runtime.add("odd", "u1", state=ContainerState.EXITED)
        async with asyncio.timeout(RELIST_SECONDS + 1):
            assert await changed.get() == "u1"
        await asyncio.sleep(RELIST_SECONDS + 1)
        assert runtime.relists == 7


async def test_when_events_may_be_lost_all_is_listed(runtime: Runtime) -> None:
    async with observing(runtime) as (_, changed):
        runtime.add("odd", "u1", state=ContainerState.EXITED)
        runtime.events.put_nowait(None)
        async with asyncio.timeout(0.1):
            assert await changed.get() == "u1"


def _envelope(topic: str, kind: str, **fields: str) -> Any:
    events = load_interface("containerd-events-v1")
    value = events.message(kind, fields).SerializeToString()
    return events.message("Envelope", {"topic": topic, "event": {"value": value}})


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        (_envelope("/tasks/start", "TaskStart", container_id="c"), Change("c", ContainerState.RUNNING)),
        (_envelope("/tasks/exit", "TaskExit", container_id="c", id="c"), Change("c", ContainerState.EXITED)),
        (_envelope("/tasks/delete", "TaskDelete", container_id="c"), Change("c", ContainerState.EXITED)),
        (_envelope("/tasks/exit", "TaskExit", container_id="c", id="probe"), None),
        (_envelope("/tasks/delete", "TaskDelete", container_id="c", id="probe"), None),
    ],
)
def test_containerds_events_tell_which_container_changed(envelope: Any, expected: Change | None) -> None:
    assert change_of(envelope) == expected


async def test_the_observer_relists_after_events_and_from_time_to_time(runtime: Runtime) -> None:
    changed: asyncio.Queue[str] = asyncio.Queue()
    pleg = observer_of(runtime, changed.put_nowait)
    running = asyncio.create_task(pleg.run())
    async with asyncio.timeout(5):
        assert {await changed.get(), await changed.get()} == {"u1", "u2"}
    await asyncio.sleep(5)
    assert changed.empty()
    runtime.add("odd", "u1", state=ContainerState.EXITED)
    async with asyncio.timeout(RELIST_SECONDS + 1):
        assert await changed.get() == "u1"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
