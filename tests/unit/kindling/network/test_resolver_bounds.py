"""The resolver under a hostile pod: others are still answered, and few sockets are held."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kindling.network import dns, resolver
from kindling.network.resolver import Names, Resolver

NAMES = Names(addresses={"web.n.svc.cluster.local": ("10.0.0.7",)})
LOCAL = dns.query(1, "web.n.svc.cluster.local", dns.A)
ELSEWHERE = dns.query(1, "example.com", dns.A)


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A resolver's port for TCP."""
    made = Resolver("127.0.0.1", [])
    made.names = NAMES
    async with await asyncio.start_server(made._on_connection, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])


async def connect(port: int, client: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(client, 0))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[str]:
    writer.write(struct.pack(">H", len(LOCAL)) + LOCAL)
    (size,) = struct.unpack(">H", await reader.readexactly(2))
    return [record.value for record in dns.parse_response(await reader.readexactly(size))]


async def test_one_clients_questions_to_other_servers_leave_room_for_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, asked, answers = Resolver("127.0.0.1", ["192.0.2.53"]), 0, asyncio.Event()

    async def silent(message: bytes, *, by_datagram: bool) -> bytes:
        assert not by_datagram
        nonlocal asked
        asked += 1
        await answers.wait()
        return message

    monkeypatch.setattr(made, "_ask_servers", silent)
    flood = [asyncio.create_task(made.respond(ELSEWHERE, "10.1.0.5")) for _ in range(500)]
    refused, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    assert asked == 32
    assert {answer[3] & 0xF for done in refused if (answer := done.result())} == {dns.SERVER_FAILURE}
    others = [asyncio.create_task(made.respond(ELSEWHERE, f"10.1.{index}.6")) for index in range(500)]
    await asyncio.sleep(0)
    assert asked == 256
    answers.set()
    await asyncio.gather(*flood, *others)
    assert await made.respond(ELSEWHERE, "10.1.0.5") == ELSEWHERE


async def test_a_dozen_greedy_clients_leave_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made, answers = Resolver("127.0.0.1", ["192.0.2.53"]), asyncio.Event()

    async def slow(message: bytes, *, by_datagram: bool) -> bytes:
        await answers.wait()
        return message

    monkeypatch.setattr(made, "_ask_servers", slow)
    greedy = [
        asyncio.create_task(made.respond(ELSEWHERE, f"10.1.0.{client}"))
        for _ in range(100)
        for client in range(12)
    ]
    await asyncio.sleep(0)
    other = asyncio.create_task(made.respond(ELSEWHERE, "10.1.1.1"))
    await asyncio.sleep(0)
    assert not other.done()
    answers.set()
    assert await other == ELSEWHERE
    await asyncio.gather(*greedy)


async def test_one_clients_connections_leave_room_for_anothers() -> None:
    async with serving() as port, asyncio.timeout(10):
        held = [await connect(port) for _ in range(16)]
        reader, writer = await connect(port)
        assert await reader.read() == b""
        writer.close()
        other = await connect(port, "127.0.0.2")
        assert await ask(*other) == ["10.0.0.7"]
        assert await ask(*held[0]) == ["10.0.0.7"]
        for _, writer in (*held, other):
            writer.close()
        for reader, _ in held:
            assert await reader.read() == b""
        again = await connect(port)
        assert await ask(*again) == ["10.0.0.7"]
        again[1].close()


async def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_IDLE_SECONDS", 0.05)
    async with serving() as port, asyncio.timeout(10):
        reader, writer = await connect(port)
        writer.write(b"\x00")
        assert await reader.read() == b""
        writer.close()
