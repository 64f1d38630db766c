"""Launchers that lie, flood and fall silent: they cost nobody but their own guest."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.launchers import Talk, answer, behave, launcher, open_descriptors, pod_paths

from virtplane.compute.handler.launchers import control as handler_side
from virtplane.compute.handler.launchers.control import LauncherBroken, LauncherLink, connect
from virtplane.compute.handler.libvirtd.connections import Connections

POD = "0a1b2c3d-0000-1111-2222-333344445555"


class Watcher:
    """What a line tells virt-handler."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.ends: list[bool] = []
        self.ended = asyncio.Event()

    def end(self, process_ended: bool) -> None:
        self.ends.append(process_ended)
        self.ended.set()

    async def to(self, path: Path) -> LauncherLink:
        return await connect(path, self.events.append, self.end)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launchers here live in this process, which does not end with their connections."""
    monkeypatch.setattr(handler_side, "_ENDING_SECONDS", 0.01)


@pytest.fixture
async def descriptors() -> AsyncIterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() <= before


async def endless_line(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_events(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b'{"event": "terminating"}\n' * 1000)
        await writer.drain()


async def endless_answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b'{"id": 4711, "done": "ping"}\n' * 1000)
        await writer.drain()


def says(text: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text + b"\n")
        await reader.read()

    return talk


async def hangs_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Ends the connection at once."""


MISBEHAVIOUR: dict[str, Talk] = {
    "endless line": endless_line,
    "endless events": endless_events,
    "endless answers": endless_answers,
    "no JSON": says(b"\xff\xfe{"),
    "no object": says(b"[1]"),
    "deep": says(b"[" * 60000),
    "huge number": says(b'{"id": ' + b"9" * 60000 + b"}"),
    "hang up": hangs_up,
}


@pytest.mark.parametrize("kind", MISBEHAVIOUR)
async def test_misbehaviour_breaks_the_line_and_nothing_else(
    tmp_path: Path, descriptors: None, kind: str
) -> None:
    watcher = Watcher()
    async with launcher(tmp_path / "s", MISBEHAVIOUR[kind]):
        link = await watcher.to(tmp_path / "s")
        await asyncio.wait_for(watcher.ended.wait(), 5)
        assert (watcher.ends, link.alive) == ([False], False)
        assert len(watcher.events) <= 100
        with pytest.raises(LauncherBroken, match=r"protocol|closed its control socket"):
            await link.request("ping")
        await link.close()


async def test_silent_launcher_is_given_up_after_its_deadline(
    tmp_path: Path, descriptors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr(handler_side, "ANSWER_SECONDS", 0.05)
    watcher = Watcher()
    async with launcher(tmp_path / "s", silent):
        link = await watcher.to(tmp_path / "s")
        with pytest.raises(LauncherBroken, match=r"did not answer 'ping' within 0\.05 s"):
            await link.request("ping")
        await asyncio.wait_for(watcher.ended.wait(), 5)
        await link.close()


async def test_launcher_that_reads_nothing_is_given_up(
    tmp_path: Path, descriptors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast(asyncio.Transport, writer.transport).pause_reading()  # both directions are one transport
        await asyncio.Event().wait()

    monkeypatch.setattr(handler_side, "ANSWER_SECONDS", 0.05)
    async with launcher(tmp_path / "s", deaf):
        link = await Watcher().to(tmp_path / "s")
        with pytest.raises(LauncherBroken, match="did not answer"):
            await link.request("dhcp", lease="x" * 10_000_000)
        await link.close()


def test_requests_just_after_the_end_of_the_line_fail_as_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virt-handler's own loop, whose closed connections are told in another way."""
    monkeypatch.setattr(handler_side, "_ENDING_SECONDS", 0.2)

    async def answers_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)

    async def attempt() -> None:
        async with launcher(tmp_path / "s", answers_once):
            link = await Watcher().to(tmp_path / "s")
            await link.request("ping")
            requests = []
            for _ in range(5):
                requests.append(asyncio.create_task(link.request("ping")))
                await asyncio.sleep(0.01)
            ended = await asyncio.gather(*requests, return_exceptions=True)
            assert {type(each) for each in ended} == {LauncherBroken}
            await link.close()

    uvloop.run(attempt())


async def test_answers_find_their_requests_in_any_order(tmp_path: Path, descriptors: None) -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [json.loads(await reader.readline()) for _ in range(2)]
        writer.write(b'{"id": 99, "done": "nobody asked"}\n')
        for request in reversed(requests):
            said = {"id": request["id"], "done": request["command"]}
            writer.write(json.dumps(said).encode() + b"\n")
        await reader.read()

    async with launcher(tmp_path / "s", backwards):
        link = await Watcher().to(tmp_path / "s")
        first, second = await asyncio.gather(link.request("ping"), link.request("start"))
        assert (first["done"], second["done"]) == ("ping", "start")
        await link.close()


async def test_refusal_is_quoted_in_part(tmp_path: Path, descriptors: None) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer, error="no" * 10_000)
        await reader.read()

    async with launcher(tmp_path / "s", refuses):
        link = await Watcher().to(tmp_path / "s")
        with pytest.raises(ValueError, match="refused 'ping': nono") as caught:
            await link.request("ping")
        assert len(str(caught.value)) < 300
        await link.close()


async def test_process_that_is_not_of_the_pod_is_not_spoken_to(tmp_path: Path, descriptors: None) -> None:
    heard: list[bytes] = []

    async def listens(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())

    paths = pod_paths(tmp_path, POD)
    lines = Connections("ns_vm", paths, lambda: None)
    async with launcher(paths.control_socket, listens):
        await opened(lines)
        assert (lines.is_ready, lines.gone) == (False, False)
        assert f"does not belong to pod {POD}" in lines._trouble
        await lines.close()
    assert not any(heard)


async def opened(lines: Connections) -> None:
    """One attempt to connect."""
    lines.keep()
    assert lines._opening is not None
    await asyncio.wait_for(lines._opening, 10)


@pytest.mark.parametrize("name", ["launcher-sock", "launcher-elsewhere"])
async def test_link_out_of_the_pod_is_not_followed(tmp_path: Path, descriptors: None, name: str) -> None:
    heard: list[bytes] = []

    async def other(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())

    paths = pod_paths(tmp_path)
    others = tmp_path / "other-guest"
    async with launcher(others, other):
        if name == "launcher-sock":
            paths.control_socket.symlink_to(others)
        else:
            (paths.control_socket.parent / name).symlink_to(others)
            paths.control_socket.symlink_to(name)
        with pytest.raises(LauncherBroken, match="cross-device"):
            await Watcher().to(paths.control_socket)
    assert not any(heard)


async def test_circle_of_links_is_told_instead_of_waited_for(tmp_path: Path, descriptors: None) -> None:
    paths = pod_paths(tmp_path)
    paths.control_socket.symlink_to(paths.control_socket.name)
    lines = Connections("ns_vm", paths, lambda: None)
    await opened(lines)
    assert (lines.is_ready, lines.gone) == (False, False)
    assert "symbolic links" in lines._trouble
    await lines.close()


async def test_broken_line_is_opened_again(tmp_path: Path, descriptors: None) -> None:
    visits = 0

    async def once_bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        if visits == 1:
            await answer(reader, writer)
            writer.write(b"nonsense\n")
            return
        await behave(reader, writer)

    changed = asyncio.Event()
    paths = pod_paths(tmp_path)
    lines = Connections("ns_vm", paths, changed.set)
    async with launcher(paths.control_socket, once_bad):
        await opened(lines)
        while lines.link is not None and (lines.link.alive or lines.link.is_ending):
            changed.clear()
            await asyncio.wait_for(changed.wait(), 5)
        assert not lines.gone
        await opened(lines)
        assert lines.is_ready and visits == 2
        await lines.close()


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["hangs up", "answers senselessly", "sends events"])
async def test_launcher_that_breaks_the_line_is_not_called_without_end(
    tmp_path: Path, descriptors: None, how: str
) -> None:
    """Whenever its connections change, virt-handler looks at the guest again, and keeps what is missing."""
    calls = 0

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if how == "sends events":
            await answer(reader, writer)
            for _ in range(200):
                writer.write(b'{"event": "e"}\n')
            await writer.drain()
        elif how == "answers senselessly":
            await reader.readline()
            writer.write(b"nonsense\n")
            await writer.drain()

    paths = pod_paths(tmp_path)

    def look_again() -> None:
        asyncio.get_running_loop().call_soon(lines.keep)

    lines = Connections("ns_vm", paths, look_again)
    async with launcher(paths.control_socket, bad):
        lines.keep()
        await asyncio.sleep(60)
        await lines.close()
    assert calls == 5  # what is allowed at once; the line stays broken, so nobody looks again


@pytest.mark.parametrize(("daemon", "expected"), [(4711, True), (None, False)])
async def test_launcher_of_before_an_upgrade_is_understood(
    tmp_path: Path, descriptors: None, daemon: int | None, expected: bool
) -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            done = {"done": json.loads(line)["command"], "libvirt": daemon, "terminating": False}
            writer.write(json.dumps(done).encode() + b"\n")

    paths = pod_paths(tmp_path)
    lines = Connections("ns_vm", paths, lambda: None)
    async with launcher(paths.control_socket, old):
        await opened(lines)
        assert lines.has_daemon is expected
        assert lines.is_ready and lines.link is not None
        pings = [lines.link.request(command) for command in ("ping", "start")]
        assert [message["done"] for message in await asyncio.gather(*pings)] == ["ping", "start"]
        await lines.close()


async def test_looking_at_a_guest_never_waits_for_its_launcher(tmp_path: Path, descriptors: None) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    paths = pod_paths(tmp_path)
    lines = Connections("ns_vm", paths, lambda: None)
    async with launcher(paths.control_socket, silent):
        begun = asyncio.get_running_loop().time()
        for _ in range(100):
            lines.keep()
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() - begun < 1
        assert not lines.gone
        await lines.close()


@pytest.mark.looptime
async def test_launcher_that_never_listens_is_soon_looked_for_less_often(tmp_path: Path) -> None:
    lines = Connections("ns_vm", pod_paths(tmp_path), lambda: None)
    took = []
    for _ in range(2):
        begun = asyncio.get_running_loop().time()
        await opened(lines)
        took.append(asyncio.get_running_loop().time() - begun)
    assert took == [pytest.approx(5.0, abs=0.1), pytest.approx(0.0, abs=0.1)]
    assert not lines.gone


async def test_pod_that_has_gone_takes_its_launcher_with_it(tmp_path: Path) -> None:
    paths = pod_paths(tmp_path)
    paths.root.rename(tmp_path / "elsewhere")
    lines = Connections("ns_vm", paths, lambda: None)
    await opened(lines)
    assert lines.gone


ANSWERS = [b'{"id":1}', b'{"id":1,"error":[]}', b'{"id":true}', b'{"event":{}}', b"null"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(st.binary(max_size=200) | st.sampled_from(ANSWERS), max_size=8))
def test_nothing_that_a_launcher_says_gets_past_the_line(tmp_path: Path, said: list[bytes]) -> None:
    async def attempt() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"\n".join(said) + b"\n")

        path = tmp_path / "fuzzed"
        path.unlink(missing_ok=True)
        watcher = Watcher()
        async with launcher(path, talk):
            link = await watcher.to(path)
            with contextlib.suppress(LauncherBroken, ValueError):  # the two ways in which a launcher may fail
                assert isinstance(await link.request("ping"), dict)
            await asyncio.wait_for(watcher.ended.wait(), 5)
            assert watcher.ends == [False]
            await link.close()

    asyncio.run(attempt())
