"""Byte streams between clients and guests through virt-api."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from virtplane.compute.apiserver.subresources import streams
from virtplane.compute.apiserver.subresources.instances import Instances
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgentError, NodeAgents

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{port}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _spliced(upstream: Handler) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A client's websocket that is joined with one to `upstream`."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        agent = await stack.enter_async_context(_serving(upstream))

        async def join(request: web.Request) -> web.StreamResponse:
            async with session.ws_connect(f"{agent}/0") as inner:
                client = await streams.accept(request)
                await streams.splice(request, client, inner)
                return client

        api = await stack.enter_async_context(_serving(join))
        yield await stack.enter_async_context(session.ws_connect(f"{api}/0", protocols=["plain.kubevirt.io"]))


async def test_what_the_guest_writes_last_arrives_and_no_closing_handshake_follows() -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse()
        await own.prepare(request)
        await own.send_bytes(b"off")
        assert request.transport is not None
        request.transport.close()
        return own

    async with _spliced(upstream) as client:
        assert client.protocol == "plain.kubevirt.io"
        assert await client.receive_bytes(timeout=5) == b"off"
        assert (await client.receive(5)).type == WSMsgType.CLOSED


async def test_a_client_that_takes_leave_gets_an_answer() -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse()
        await own.prepare(request)
        await own.receive()
        return own

    async with _spliced(upstream) as client:
        await client.close()
        assert client.close_code == 1000


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    vmi: JsonObject = {
        "metadata": {"name": "vm"},
        "status": {"interfaces": [{"ipAddress": "127.0.0.1"}]},
    }
    refused: list[StatusError] = []

    async def forward(request: web.Request) -> web.StreamResponse:
        try:
            # Nothing but the request and the instance matters for this.
            return await Instances.forward(object.__new__(Instances), request, vmi)
        except StatusError as error:
            refused.append(error)
            return web.Response(status=error.code)

    async with _serving(forward) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{url}/{port}")
    text = f"dialing VM: dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert refused[0].message == f"Internal error occurred: {text}"


async def test_datagrams_go_to_the_guest_and_back_one_to_a_message() -> None:
    class Guest(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.DatagramTransport", transport)

        def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
            self.transport.sendto(b"<" + data + b">", addr)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Guest, local_addr=("127.0.0.1", 0))
    vmi: JsonObject = {"status": {"interfaces": [{"ipAddress": "127.0.0.1"}]}}

    async def forward(request: web.Request) -> web.StreamResponse:
        request.match_info["protocol"] = "udp"
        return await Instances.forward(object.__new__(Instances), request, vmi)

    async with _serving(forward) as url, aiohttp.ClientSession() as session:
        port = transport.get_extra_info("sockname")[1]
        async with session.ws_connect(f"{url}/{port}", protocols=["plain.kubevirt.io"]) as client:
            for question in (b"one", b"two"):
                await client.send_bytes(question)
                assert await client.receive_bytes(timeout=5) == b"<" + question + b">"
    transport.close()


class _Agents(NodeAgents):
    """Reaches the agent at a given URL, without TLS."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._server_name = ""

    async def base_url(self, vmi: JsonObject) -> str:
        return self._url

    async def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


async def test_what_a_node_agent_says_when_it_refuses_is_passed_on() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="Active VNC connection. Request denied.")

    async with _serving(refuse) as url:
        with pytest.raises(NodeAgentError) as refused:
            async with _Agents(url).stream({}, "vnc"):
                raise AssertionError("the stream was opened")
    assert str(refused.value) == (
        "Can't connect to websocket (503): websocket: bad handshake: "
        "application info: Active VNC connection. Request denied."
    )
