"""UDP through streams of the subresources API: one stream to each local client, one datagram to a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
import click

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from virtplane.cli.virtctl.talking.streams import StreamLost, received

Address = tuple[str | Any, int]
Open = Callable[[], Awaitable[aiohttp.ClientWebSocketResponse]]
_WAITING = 1024
"""Datagrams that wait for a stream; the newest are lost when there are more."""


class DatagramForwarder(asyncio.DatagramProtocol):
    """Opens a stream by `open_stream` for each client; `label` names the target in messages."""

    def __init__(self, open_stream: Open, label: str) -> None:
        self._open = open_stream
        self._label = label
        self._clients: dict[Address, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # Not every event loop's transport derives from DatagramTransport, so it cannot be checked.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Called by the event loop."""
        queue = self._clients.get(addr)
        if queue is None:
            queue = self._clients[addr] = asyncio.Queue(_WAITING)
            task = asyncio.create_task(self._serve(addr, queue), name="datagrams")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not queue.full():
            queue.put_nowait(data)

    async def close(self) -> None:
        """End all streams."""
        if self._transport is not None:
            self._transport.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: Address, queue: asyncio.Queue[bytes]) -> None:
        try:
            stream = await self._open()
            upwards = asyncio.create_task(_send(queue, stream), name="datagrams-upwards")
            try:
                async for data in received(stream):
                    assert self._transport is not None
                    self._transport.sendto(data, client)
            finally:
                upwards.cancel()
                await asyncio.gather(upwards, return_exceptions=True)
                await stream.close()
        except (StatusError, ConnectionFailed) as error:
            click.echo(f"can't access {self._label}: {error}", err=True)
        except StreamLost as error:
            click.echo(f"error handling connection for {self._label}: {error}", err=True)
        finally:
            del self._clients[client]


async def _send(queue: asyncio.Queue[bytes], stream: aiohttp.ClientWebSocketResponse) -> None:
    while True:
        await stream.send_bytes(await queue.get())
