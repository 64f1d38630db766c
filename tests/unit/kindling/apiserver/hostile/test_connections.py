"""Clients who send slowly, read slowly, or come in crowds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from tests.support.hostile import ADMIN_TOKEN, NEIGHBOUR_TOKEN, Target, bystander_unharmed, head, read_reply

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

_MAPS = "/api/v1/namespaces/attacked/configmaps"
_PATIENCE_SECONDS = 3.0
"""What the server was started with, see conftest."""
_WATCHES = 2000
_AT_A_TIME = 25

_Connections = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@contextlib.asynccontextmanager
async def _crowd(
    target: Target, size: int, first: bytes = b"", *, reads: bool = True
) -> AsyncIterator[_Connections]:
    """So many connections which have each sent `first`."""
    made: _Connections = []

    async def join() -> None:
        reader, writer = await target.open(reads=reads)
        made.append((reader, writer))
        writer.write(first)

    try:
        for _ in range(0, size, _AT_A_TIME):
            await asyncio.gather(*(join() for _ in range(_AT_A_TIME)))
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()


async def _hung_up(connections: _Connections, seconds: float) -> int:
    """How many the server has closed in that time, reading nothing that it sends."""

    async def is_closed(reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), seconds)
        return True

    found = await asyncio.gather(*(is_closed(reader) for reader, _ in connections), return_exceptions=True)
    return sum(each is True for each in found)


async def test_heads_that_never_end_are_waited_for_only_so_long(target: Target) -> None:
    slow = b"GET /api HTTP/1.1\r\nHost: x\r\nX-"
    async with bystander_unharmed(target, growth_mib=60), _crowd(target, 200, slow) as crowd:
        begun = time.monotonic()
        for _ in range(4):
            for _, writer in crowd:
                writer.write(b"a")
            await asyncio.sleep(_PATIENCE_SECONDS / 8)
        assert await _hung_up(crowd, 3 * _PATIENCE_SECONDS + 10) == len(crowd)
        assert time.monotonic() - begun < 30


async def test_large_bodies_that_never_end_keep_nobody_elses_waiting(target: Target) -> None:
    begun = head("POST", _MAPS).removesuffix(b"\r\n") + b"Content-Length: 2000000\r\n\r\n" + b" " * 1_000_000
    document = b'{"metadata":{"name":"large"},"data":{"a":"%s"}}' % (b"x" * 500_000)
    asked = head("POST", "/api/v1/namespaces/quiet/configmaps", document)
    asked = asked.replace(ADMIN_TOKEN.encode(), NEIGHBOUR_TOKEN.encode())

    async def send(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    async with _crowd(target, 75, begun) as crowd:
        await asyncio.gather(*(send(writer) for _, writer in crowd))
        reply = await target.raw(asked + document)
        assert reply.status == 201, reply.body[:300]


async def test_a_connection_in_use_is_not_taken_for_a_slow_one(target: Target) -> None:
    reader, writer = await target.open()
    for _ in range(3):
        writer.write(head("GET", "/version"))
        assert (await read_reply(reader)).status == 200
        await asyncio.sleep(_PATIENCE_SECONDS / 2)
    writer.close()


@pytest.mark.parametrize("ending", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_bodies_that_never_end_are_waited_for_only_so_long(target: Target, ending: str) -> None:
    slow = f"POST {_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n{ending}\r\n\r\n"
    async with bystander_unharmed(target, growth_mib=60), _crowd(target, 50, slow.encode()) as crowd:
        for _, writer in crowd:
            writer.write(b"4\r\n{   \r\n")
        replies = await asyncio.gather(
            *(asyncio.wait_for(read_reply(reader), 30) for reader, _ in crowd), return_exceptions=True
        )
    for reply in replies:
        assert not isinstance(reply, BaseException), reply
        assert (reply.status, reply.reason) == (504, "Timeout")
        assert "request did not complete within requested timeout" in reply.message


async def test_handshakes_that_are_not_finished_end_by_themselves(target: Target) -> None:
    async with bystander_unharmed(target, growth_mib=60):
        halves = [await asyncio.open_connection("127.0.0.1", target.port) for _ in range(200)]
        for _, writer in halves:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert await _hung_up(halves, 30) == len(halves)
        for _, writer in halves:
            writer.close()


async def test_two_thousand_connections_idle_or_watching_without_reading_are_bounded(target: Target) -> None:
    """Big events would take two gigabytes in the buffers of connections."""
    big = {"metadata": {"name": "big"}, "data": {"text": "x" * 900_000}}
    async with contextlib.AsyncExitStack() as stack:
        async with bystander_unharmed(target, growth_mib=150):
            # Each asks for something first: who never does is not waited for.
            asking = head("GET", "/livez")
            crowd = await stack.enter_async_context(_crowd(target, _WATCHES, asking, reads=False))
            assert target.descriptors() > _WATCHES
        async with bystander_unharmed(target, growth_mib=350):
            for number, (_, writer) in enumerate(crowd):
                writer.write(head("GET", f"{_MAPS}?watch=true"))
                if number % _AT_A_TIME == 0:
                    await asyncio.sleep(0.03)
            assert (await target.request("POST", _MAPS, big, patience=60)).status == 201
            assert target.descriptors() > _WATCHES
            for number in range(3):
                big["data"]["number"] = str(number)
                reply = await target.request("PUT", f"{_MAPS}/big", big, patience=60)
                assert reply.status == 200, reply.body[:300]


async def test_a_watcher_who_reads_gets_everything_while_others_do_not(target: Target) -> None:
    texts = [str(number) * 300_000 for number in range(6)]
    async with _crowd(target, 50, head("GET", f"{_MAPS}?watch=true"), reads=False):
        listed = (await target.request("GET", f"{_MAPS}?limit=1")).document["metadata"]["resourceVersion"]
        reader, writer = await target.open()
        writer.write(head("GET", f"{_MAPS}?watch=true&resourceVersion={listed}"))
        for number, text in enumerate(texts):
            body = {"metadata": {"name": f"seen-{number}"}, "data": {"text": text}}
            assert (await target.request("POST", _MAPS, body)).status == 201
        seen = b""
        limit = time.monotonic() + 40
        while seen.count(b'"ADDED"') < len(texts) or not seen.endswith(b"}\n\r\n"):
            assert time.monotonic() < limit, f"only {len(seen)} bytes came"
            seen += await asyncio.wait_for(reader.read(1 << 20), 40)
        writer.close()
    assert all(text.encode() in seen.replace(b"\r\n", b"") for text in texts)


async def test_a_watcher_who_stops_reading_is_cut_off(target: Target) -> None:
    reader, writer = await target.open(reads=False)
    writer.write(head("GET", f"{_MAPS}?watch=true"))
    body = {"metadata": {"name": "often"}, "data": {"text": "x" * 500_000}}
    assert (await target.request("POST", _MAPS, body)).status == 201
    async with bystander_unharmed(target, growth_mib=150):
        for number in range(40):
            body["data"]["number"] = str(number)
            assert (await target.request("PUT", f"{_MAPS}/often", body)).status == 200
    cast(asyncio.Transport, writer.transport).resume_reading()  # both directions are one transport
    assert await _hung_up([(reader, writer)], 20) == 1
    writer.close()
