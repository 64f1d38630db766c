"""The node's endpoint: requests, logs, websocket frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindling.node.server import logs, streams
from kindling.node.server.http import HttpProblem, parse_request
from kindling.node.server.routes import log_options

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
    with pytest.raises(HttpProblem):
        log_options(parse_request(b"GET /containerLogs/a/b/c?tailLines=x HTTP/1.1\r\n\r\n"))


def test_websocket_frames_carry_every_length() -> None:
    assert streams.frame(2, b"ab") == b"\x82\x02ab"
    assert streams.frame(2, b"x" * 300)[:4] == b"\x82\x7e\x01\x2c"
    assert streams.frame(2, b"x" * 70000)[:2] == b"\x82\x7f"
    mask = b"\x01\x02\x03\x04"
    assert streams.unmask(streams.unmask(b"hello", mask), mask) == b"hello"


def test_clients_that_only_speak_v5_are_sent_to_spdy() -> None:
    head = b"GET /exec/a/b/c HTTP/1.1\r\nSec-WebSocket-Protocol: %s\r\n\r\n"
    assert streams.offers_only_v5(parse_request(head % b"v5.channel.k8s.io"))
    assert not streams.offers_only_v5(parse_request(head % b"v5.channel.k8s.io, v4.channel.k8s.io"))
    assert not streams.offers_only_v5(
        parse_request(b"POST /exec/a/b/c HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n\r\n")
    )
