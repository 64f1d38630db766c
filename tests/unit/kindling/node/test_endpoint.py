"""The node's endpoint: requests, logs, websocket frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kindling.node.server import logs, streams
from kindling.node.server.http import HttpProblem, parse_request
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


def test_requests_are_parsed() -> None:
    request = parse_request(
        b"GET /exec/ns/p/c?command=a&command=b&input=1 HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n\r\n"
    )
    assert request.path == "/exec/ns/p/c"
    assert request.query["command"] == ["a", "b"]
    assert request.flag("input")
    forward = parse_request(b"GET /portForward/ns/p?port=80,443&port=22 HTTP/1.1\r\n\r\n")
    assert forwarded_ports(forward) == [80, 443, 22]


@pytest.mark.parametrize("query", ["tailLines=x", f"sinceSeconds={10**18}", f"limitBytes={'9' * 5000}"])
def test_log_options_that_are_no_numbers_are_refused(query: str) -> None:
    with pytest.raises(HttpProblem, match="invalid log options"):
        log_options(parse_request(f"GET /containerLogs/a/b/c?{query} HTTP/1.1\r\n\r\n".encode()))


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1", "", "%C2%B2", "9" * 5000])
def test_ports_that_nobody_has_are_not_forwarded(port: str) -> None:
    with pytest.raises(HttpProblem, match="no number from 1 to 65535"):
        forwarded_ports(parse_request(f"GET /portForward/ns/p?port=80,{port} HTTP/1.1\r\n\r\n".encode()))


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(HttpProblem, match="malformed address"):
        parse_request(b"GET http://[::1/pods HTTP/1.1\r\n\r\n")


def test_websocket_frames_carry_every_length() -> None:
    assert streams.frame(2, b"ab") == b"\x82\x02ab"
    assert streams.frame(2, b"x" * 300)[:4] == b"\x82\x7e\x01\x2c"
    assert streams.frame(2, b"x" * 70000)[:2] == b"\x82\x7f"
    mask = b"\x01\x02\x03\x04"
    assert streams.unmask(streams.unmask(b"hello", mask), mask) == b"hello"


class Pongs:
    """The way back of a websocket."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        return


async def messages(data: bytes, way_back: Pongs) -> list[bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    back: Any = way_back
    return [piece async for piece in streams.read_messages(reader, back)]


def masked(payload: bytes, opcode: int = 2) -> bytes:
    head = bytearray(streams.frame(opcode, payload))[: -len(payload) or None]
    head[1] |= 0x80
    return bytes(head) + b"\1\2\3\4" + streams.unmask(payload, b"\1\2\3\4")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 65537, 200_001])
async def test_messages_of_any_size_come_in_pieces_that_are_whole_together(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    pieces = await messages(masked(payload[:size]) + masked(b"end"), Pongs())
    assert b"".join(pieces) == payload[:size] + b"end"
    assert max(map(len, pieces)) <= 65536


async def test_a_message_that_claims_to_be_endless_is_handed_on_as_it_comes() -> None:
    """Holding a frame until it is whole would let a client fill the node's memory."""
    reader = asyncio.StreamReader()
    back: Any = Pongs()
    pieces = streams.read_messages(reader, back)
    reader.feed_data(b"\x82\x7f" + (1 << 62).to_bytes(8, "big"))
    for _ in range(3):
        reader.feed_data(b"x" * 65536)
        assert await asyncio.wait_for(anext(pieces), 2) == b"x" * 65536
    assert isinstance(pieces, AsyncGenerator)
    await pieces.aclose()


async def test_pings_are_answered_unless_they_are_larger_than_control_frames_may_be() -> None:
    back = Pongs()
    assert await messages(masked(b"hi", 9) + masked(b"data"), back) == [b"data"]
    assert back.sent == streams.frame(10, b"hi")
    back = Pongs()
    assert await messages(masked(b"x" * 126, 9) + masked(b"data"), back) == []
    assert back.sent == b""


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
    head = b"GET /exec/a/b/c HTTP/1.1\r\nSec-WebSocket-Protocol: %s\r\n\r\n"
    assert streams.offers_only_v5(parse_request(head % b"v5.channel.k8s.io"))
    assert not streams.offers_only_v5(parse_request(head % b"v5.channel.k8s.io, v4.channel.k8s.io"))
    assert not streams.offers_only_v5(
        parse_request(b"POST /exec/a/b/c HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n\r\n")
    )
