"""Answers that do not fit into a datagram: the client is told, and gets all of them by TCP."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from kindling.network import dns
from kindling.network.resolver import Names, Resolver

ADDRESSES = tuple(f"10.1.{number // 250}.{number % 250}" for number in range(300))
NAMES = Names(addresses={"many.n.svc.cluster.local": ADDRESSES})
QUERY = dns.query(7, "many.n.svc.cluster.local", dns.A)
ELSEWHERE = dns.query(9, "example.com", dns.A)


def with_options(query: bytes, size: int) -> bytes:
    """The query of a client that takes datagrams of `size` bytes (RFC 6891)."""
    return query[:10] + struct.pack(">H", 1) + query[12:] + struct.pack(">BHHIH", 0, 41, size, 0, 0)


def resolver() -> Resolver:
    made = Resolver("127.0.0.1", [])
    made.names = NAMES
    return made


async def test_a_datagram_holds_what_fits_and_says_that_there_is_more() -> None:
    response = await resolver().respond(QUERY, by_datagram=True)
    assert response is not None
    assert 512 - 16 < len(response) <= 512
    assert dns.is_truncated(response)
    found = [record.value for record in dns.parse_response(response)]
    assert found == list(ADDRESSES[: len(found)])


async def test_a_connection_carries_all_of_them() -> None:
    response = await resolver().respond(QUERY)
    assert response is not None
    assert not dns.is_truncated(response)
    assert [record.value for record in dns.parse_response(response)] == list(ADDRESSES)


async def test_a_client_that_takes_longer_datagrams_gets_them_within_bounds() -> None:
    lengths = []
    for size in (0, 100, 800, 65_535):
        response = await resolver().respond(with_options(QUERY, size), by_datagram=True)
        assert response is not None
        assert struct.unpack_from(">H", response, 10) == (1,)
        lengths.append(len(response))
    assert lengths[0] == lengths[1] <= 512 < lengths[2] <= 800 < lengths[3] <= 1232


async def test_an_answer_that_fits_is_whole() -> None:
    made = Resolver("127.0.0.1", [])
    made.names = Names(addresses={"many.n.svc.cluster.local": ADDRESSES[:20]})
    response = await made.respond(QUERY, by_datagram=True)
    assert response is not None
    assert not dns.is_truncated(response)
    assert len(dns.parse_response(response)) == 20


class _Short(asyncio.DatagramProtocol):
    """An upstream server that has no room for its answer in a datagram."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = dns.parse_query(data)
        records = [dns.Record(dns.A, address) for address in ADDRESSES]
        self._transport.sendto(dns.answer(question, dns.NO_ERROR, records, by_datagram=True), addr)


async def _whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    (size,) = struct.unpack(">H", await reader.readexactly(2))
    question = dns.parse_query(await reader.readexactly(size))
    response = dns.answer(question, dns.NO_ERROR, [dns.Record(dns.A, address) for address in ADDRESSES])
    writer.write(struct.pack(">H", len(response)) + response)
    await writer.drain()
    writer.close()


@asynccontextmanager
async def upstream() -> AsyncIterator[int]:
    async with await asyncio.start_server(_whole, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            _Short, local_addr=("127.0.0.1", port)
        )
        try:
            yield port
        finally:
            transport.close()


async def test_long_answers_of_other_servers_come_by_tcp_too() -> None:
    async with upstream() as port, asyncio.timeout(10):
        made = Resolver("127.0.0.1", ["127.0.0.1"], upstream_port=port)
        short = await made.respond(ELSEWHERE, by_datagram=True)
        assert short is not None
        assert dns.is_truncated(short)
        whole = await made.respond(ELSEWHERE)
        assert whole is not None
        assert len(dns.parse_response(whole)) == len(ADDRESSES)
