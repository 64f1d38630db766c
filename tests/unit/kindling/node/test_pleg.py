"""Watching the runtime although pods and containers are odd."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kindling.node.pods import identity
from kindling.node.pods.pleg import RELIST_SECONDS, Pleg
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure, Sandbox

pytestmark = pytest.mark.looptime


class Runtime:
    """Containers by id; `trouble` raises or waits when one is asked for."""

    def __init__(self) -> None:
        self.containers: dict[str, Container] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.trouble: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []

    def add(self, id: str, uid: str, **fields: Any) -> None:
        fields = {"state": ContainerState.RUNNING, **fields}
        labels = {identity.LABEL_UID: uid}
        self.containers[id] = Container(id, f"s-{uid}", "main", 0, created_at=1, labels=labels, **fields)
        self.sandboxes[f"s-{uid}"] = Sandbox(f"s-{uid}", "p", "ns", uid, 0, True, 1, ips=("10.0.0.1",))

    async def list_sandboxes(self) -> list[Sandbox]:
        return [replace(item, ips=()) for item in self.sandboxes.values()]

    async def list_containers(self) -> list[Container]:
        return [replace(item, exit_code=0, log_path="") for item in self.containers.values()]

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

    async def changes(self) -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()


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
