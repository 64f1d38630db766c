"""Bytes between websockets of virt-api and sockets of QEMU, in the framing of ``plain.kubevirt.io``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from aiohttp import WSMsgType, web

from virtplane.api.streams import MAX_MESSAGE_BYTES, SUBPROTOCOL
from virtplane.compute.handler.launchers.sockets import reachable

logger = logging.getLogger(__name__)

_CHUNK = 65536
_FLUSH_SECONDS = 1.0
"""How long QEMU has, at the end, to take what a client sent before; one that is stopped takes nothing."""


async def carry(request: web.Request, folder: Path, name: str, ending: asyncio.Event) -> web.StreamResponse:
    """Carry bytes between a websocket and QEMU's socket `name` below the pod's folder `folder`.

    It lasts until either side ends or `ending` is set. The websocket ends without a closing handshake, as
    KubeVirt's do: by that (close code 1006) clients recognize that the guest has ended or another session
    took over, and report it.
    """
    try:
        with reachable(folder / name, folder) as address:
            reader, writer = await asyncio.open_unix_connection(address)
    except OSError as error:
        raise web.HTTPInternalServerError(text=f"{Path(name).name}: {error.strerror}") from error
    socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), max_msg_size=MAX_MESSAGE_BYTES)
    try:
        await socket.prepare(request)
        await _both_ways(request, socket, reader, writer, ending)
    finally:
        await _close(writer)
        if request.transport is not None:
            request.transport.close()
    return socket


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except ConnectionError as error:
        logger.debug("Stream ended", extra={"err": str(error)})


async def _both_ways(
    request: web.Request,
    socket: web.WebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    ending: asyncio.Event,
) -> None:
    async def outwards() -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                await socket.send_bytes(data)
        # This ends the other direction, too: its iteration stops when the connection is closed.
        if request.transport is not None:
            request.transport.close()

    async def hang_up() -> None:
        await ending.wait()
        # A session that takes over must not wait for a client that does not read, nor for a QEMU that does
        # not.
        writer.transport.abort()
        if request.transport is not None:
            request.transport.abort()

    tasks = [
        asyncio.create_task(outwards(), name="stream-outwards"),
        asyncio.create_task(hang_up(), name="stream-taken-over"),
    ]
    try:
        async for message in socket:
            # Other kinds of messages are ignored, as KubeVirt's clients and servers do.
            if message.type == WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
    except ConnectionError as error:
        logger.debug("Stream ended", extra={"err": str(error)})
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
