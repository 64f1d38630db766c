"""Websockets of the subprotocol ``plain.kubevirt.io``: bytes in binary messages, nothing around them."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from kubecore.directions import until_one_ends
from virtplane.api.streams import MAX_MESSAGE_BYTES, SUBPROTOCOL

_CHUNK = 65536
_KEEPALIVE_SECONDS = 30.0
MOST_HELD_BYTES = 256 << 10
"""Of the datagrams for one client."""
_DATAGRAM_BYTES = 64
"""What a datagram takes beside its content, of which it may have none."""

_AnySocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def accept(request: web.Request) -> web.WebSocketResponse:
    """Upgrades the client's request."""
    socket = web.WebSocketResponse(
        protocols=(SUBPROTOCOL,), heartbeat=_KEEPALIVE_SECONDS, max_msg_size=MAX_MESSAGE_BYTES
    )
    await socket.prepare(request)
    return socket


async def splice(
    request: web.Request, client: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse
) -> None:
    """Copies both ways until one side ends.

    Like virt-handler's side, the client's side ends without a closing handshake: this tells clients that the
    guest has ended or that another session took over.
    """
    await until_one_ends(_copy(client, upstream), _copy(upstream, client))
    if request.transport is not None:
        request.transport.close()


async def forward(
    client: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copies between a websocket and a TCP connection until one side ends."""

    async def upload() -> None:
        async for message in client:
            if message.type == aiohttp.WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()

    async def download() -> None:
        while data := await reader.read(_CHUNK):
            await client.send_bytes(data)

    try:
        await until_one_ends(upload(), download())
    finally:
        writer.close()
        await client.close()


class DatagramForwarder(asyncio.DatagramProtocol):
    """Holds received datagrams until they are taken; what is more than `MOST_HELD_BYTES` is dropped.

    Guests send as many as they like, to clients that need not read: a kernel holds as much for a socket.
    """

    def __init__(self) -> None:
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self.held = 0
        """The bytes that wait, with what each datagram takes beside its content."""

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        """Called by the event loop."""
        size = len(data) + _DATAGRAM_BYTES
        if self.held + size <= MOST_HELD_BYTES:
            self.held += size
            self._received.put_nowait(data)

    async def take(self) -> bytes:
        """The oldest datagram that is held."""
        data = await self._received.get()
        self.held -= len(data) + _DATAGRAM_BYTES
        return data


async def forward_datagrams(client: web.WebSocketResponse, address: str, port: int) -> None:
    """Copies between a websocket and a UDP port, one datagram to a message."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(DatagramForwarder, remote_addr=(address, port))

    async def upload() -> None:
        async for message in client:
            if message.type == aiohttp.WSMsgType.BINARY:
                transport.sendto(message.data)

    async def download() -> None:
        while True:
            await client.send_bytes(await protocol.take())

    try:
        await until_one_ends(upload(), download())
    finally:
        transport.close()
        await client.close()


async def _copy(source: _AnySocket, target: _AnySocket) -> None:
    async for message in source:
        if message.type == aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)
