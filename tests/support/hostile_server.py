"""A web server that writes what a test wants, byte for byte, and ends connections as servers do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
"""Gets the request's head and writes the response."""


@asynccontextmanager
async def answering(answer: Answer, port: int = 0) -> AsyncIterator[str]:
    """The address of a server on loopback that handles each connection's first request by `answer`."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await answer((await reader.readuntil(b"\r\n\r\n")).decode(), writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def endless(writer: asyncio.StreamWriter, head: bytes, beginning: bytes, more: bytes) -> None:
    """Write `head` and `beginning`, then `more` again and again until the client has gone."""
    writer.write(head + b"\r\n" + beginning)
    while True:
        await writer.drain()
        writer.write(more)


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection by a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
