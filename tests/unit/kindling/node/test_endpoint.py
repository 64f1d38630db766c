"""The node's endpoint: queries and logs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web import Request

from kindling.node.server import logs, streams
from kindling.node.server.http import HttpProblem
from kindling.node.server.routes import forwarded_ports, log_options

LOG = (
    b"2026-01-01T00:00:00.1Z stdout F one\n"
    b"2026-01-01T00:00:01.2Z stderr F two\n"
    b"2026-01-01T00:00:02.3Z stdout P thr\n"
    b"2026-01-01T00:00:02.4Z stdout F ee\n"
)


async def read(path: Path, options: logs.LogOptions) -> bytes:
    return b"".join([piece async for piece in logs.read_log(path, options, lambda: False)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(LOG)
    return path


async def test_logs_are_joined_without_their_prefixes(log: Path) -> None:
    assert await read(log, logs.LogOptions()) == b"one\ntwo\nthree\n"


async def test_logs_are_cut_by_time_stream_lines_and_bytes(log: Path) -> None:
    assert await read(log, logs.LogOptions(since="2026-01-01T00:00:01Z")) == b"two\nthree\n"
    assert await read(log, logs.LogOptions(stream="Stderr")) == b"two\n"
    assert await read(log, logs.LogOptions(tail_lines=3)) == b"two\nthree\n"
    assert await read(log, logs.LogOptions(tail_lines=0)) == b""
    assert await read(log, logs.LogOptions(limit_bytes=5)) == b"one\nt"
    assert (await read(log, logs.LogOptions(timestamps=True))).startswith(b"2026-01-01T00:00:00.1Z one\n")


async def test_the_end_of_a_large_log_is_found_while_other_work_goes_on(tmp_path: Path) -> None:
    path, blocks, turns = tmp_path / "0.log", 20, 0
    path.write_bytes(b"\n" * blocks * 65536)

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    total = blocks * 65536
    assert await logs.tail_offset(path, 10**12) == 0
    working.cancel()
    assert turns >= blocks
    for lines in (1, 65535, 65536, 65537, total - 1):
        assert await logs.tail_offset(path, lines) == total - lines
    assert await logs.tail_offset(path, total) == 0


@pytest.mark.looptime
async def test_following_ends_after_the_container_has(log: Path) -> None:
    assert await read(log, logs.LogOptions(follow=True)) == b"one\ntwo\nthree\n"


def test_large_logs_are_rotated(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        assert logs.rotate(path, 1, 2)
    assert (tmp_path / "0.log.1").read_bytes() == b"third"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["0.log.1"]
    assert not logs.rotate(path, 1, 2)


def test_queries_name_every_port_that_is_forwarded() -> None:
    assert forwarded_ports(make_mocked_request("GET", "/portForward/ns/p?port=80,443&port=22")) == [
        80,
        443,
        22,
    ]


@pytest.mark.parametrize("query", ["tailLines=x", f"sinceSeconds={10**18}", f"limitBytes={'9' * 5000}"])
def test_log_options_that_are_no_numbers_are_refused(query: str) -> None:
    with pytest.raises(HttpProblem, match="invalid log options"):
        log_options(make_mocked_request("GET", f"/containerLogs/a/b/c?{query}"))


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1", "", "%C2%B2", "9" * 5000])
def test_ports_that_nobody_has_are_not_forwarded(port: str) -> None:
    with pytest.raises(HttpProblem, match="not a number from 1 to 65535"):
        forwarded_ports(make_mocked_request("GET", f"/portForward/ns/p?port=80,{port}"))


async def test_reading_a_long_log_of_which_nothing_is_wanted_lets_others_run(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LOG * 4000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    assert await read(path, logs.LogOptions(since="2030-01-01T00:00:00Z")) == b""
    beside.cancel()
    assert turns >= 5


async def test_a_log_without_lines_is_not_gathered_whole(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    with path.open("wb") as stream:
        stream.truncate(5 * 1024 * 1024)
    pieces = [piece async for piece in logs.read_log(path, logs.LogOptions(), lambda: False)]
    assert max(map(len, pieces)) <= 2 * 1024 * 1024


async def test_a_log_line_that_is_no_text_is_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"\xff \xff F one\n" + LOG)
    assert await read(path, logs.LogOptions(since="2026-01-01T00:00:02Z")) == b"one\nthree\n"


def test_clients_that_only_speak_v5_are_sent_to_spdy() -> None:
    def exec_request(**headers: str) -> Request:
        return make_mocked_request("GET", "/exec/a/b/c", headers=headers)

    assert streams.offers_only_v5(exec_request(**{"Sec-WebSocket-Protocol": "v5.channel.k8s.io"}))
    both = "v5.channel.k8s.io, v4.channel.k8s.io"
    assert not streams.offers_only_v5(exec_request(**{"Sec-WebSocket-Protocol": both}))
    assert not streams.offers_only_v5(exec_request(Upgrade="SPDY/3.1"))
