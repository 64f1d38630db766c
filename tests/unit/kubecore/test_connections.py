"""A stranger's connections to a server are counted, and those beyond his number are hung up on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
import trustme
import uvloop
from aiohttp import web

from kubecore.connections import Connections, CountedSite
from kubecore.runtime import Health, serve_health

_AUTHORITY = trustme.CA()
_Loop = Callable[[], asyncio.AbstractEventLoop]


@asynccontextmanager
async def _serving(connections: Connections) -> AsyncIterator[int]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        connections.trust(request.remote or "")
        return web.Response(text="yes")

    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = CountedSite(runner, 0, tls, connections)
    try:
        await site.start()
        yield site.port
    finally:
        await runner.cleanup()


def _client() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    _AUTHORITY.configure_trust(tls)
    return tls


async def _opened(port: int) -> asyncio.StreamWriter | None:
    """A connection after its handshake; None where the server has hung up."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_client())
    except OSError:
        return None
    return writer


async def _opened_at_last(port: int) -> asyncio.StreamWriter:
    """A connection, once the server has seen the end of another."""
    found = await _opened(port)
    return found if found is not None else await _opened_at_last(port)


async def _idle_connections(port: int) -> list[asyncio.StreamWriter]:
    return [each for each in [await _opened(port) for _ in range(20)] if each is not None]


def _run(loop: _Loop, work: Coroutine[None, None, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await work

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(in_time())


_LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@_LOOPS
def test_who_opens_connections_and_says_nothing_has_no_more_than_his_number(loop: _Loop) -> None:
    async def work() -> None:
        connections = Connections(most_each=5, most=100)
        async with _serving(connections) as port:
            idle = await _idle_connections(port)
            assert len(idle) == 5
            idle[0].close()
            with contextlib.suppress(OSError):
                await idle[0].wait_closed()
            for each in [await _opened_at_last(port), *idle[1:]]:
                each.close()

    _run(loop, work())


@_LOOPS
def test_whom_the_server_knows_has_as_many_as_he_needs(loop: _Loop) -> None:
    async def work() -> None:
        connections = Connections(most_each=5, most=5)
        async with _serving(connections) as port:
            url = f"https://127.0.0.1:{port}/"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=_client()) as answer:
                assert await answer.text() == "yes"
            idle = await _idle_connections(port)
            assert len(idle) == 20
            for each in idle:
                each.close()

    _run(loop, work())


@_LOOPS
def test_a_handshake_that_fails_counts_no_longer(loop: _Loop) -> None:
    async def work() -> None:
        connections = Connections(most_each=2, most=100)
        async with _serving(connections) as port:
            for _ in range(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                with contextlib.suppress(OSError):
                    await reader.read()
                writer.close()
            (await _opened_at_last(port)).close()

    _run(loop, work())


async def test_health_is_told_to_somebody_else_than_who_keeps_connections_open() -> None:
    async with serve_health(Health(), 0, host="127.0.0.1") as port, AsyncExitStack() as open_ones:
        answered = 0
        for _ in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            open_ones.callback(writer.close)
            with contextlib.suppress(OSError):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
                answered += (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert answered == Connections().most_each
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        open_ones.callback(writer.close)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


def test_strangers_together_have_a_number_and_newcomers_get_in_nevertheless() -> None:
    connections = Connections(most_each=10, most=30)
    crowd = [f"10.0.0.{number}" for number in range(4)]
    admitted = [address for address in crowd for _ in range(10) if connections.admit(address)]
    assert [admitted.count(address) for address in crowd] == [10, 10, 10, 4]
    connections.trust("192.0.2.1")
    assert all(connections.admit("192.0.2.1") for _ in range(1000))
    for address in admitted:
        connections.release(address)
    assert all(connections.admit(crowd[3]) for _ in range(10))
