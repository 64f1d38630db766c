"""virt-handler's end of a launcher's control socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtplane.compute.handler.sockets import reachable

_ANSWER_SECONDS = 10.0


class LauncherNotReady(Exception):
    """The launcher has not opened its control socket yet."""


class LauncherGone(Exception):
    """The launcher has ended; its guest went with it."""


class LauncherLink:
    """One open line to a launcher: `on_event` gets its events, `on_end` is called when the line breaks."""

    def __init__(
        self, on_event: Callable[[dict[str, Any]], None], on_end: Callable[[], None], *, pid: int
    ) -> None:
        self.pid = pid
        """The launcher's process as this PID namespace sees it: the door to its mounts and network."""
        self._on_event = on_event
        self._on_end = on_end
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._lock = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """True until the line breaks."""
        return self._reading is not None and not self._reading.done()

    @property
    def root(self) -> Path:
        """The launcher's file system."""
        return Path(f"/proc/{self.pid}/root")

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises LauncherGone, ValueError for a refused command."""
        async with self._lock:
            if self._writer is None or not self.alive:
                raise LauncherGone(command)
            self._writer.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
            try:
                await self._writer.drain()
                answer = await asyncio.wait_for(self._answers.get(), _ANSWER_SECONDS)
            except (TimeoutError, ConnectionError) as error:
                raise LauncherGone(f"no answer to {command}") from error
        if "closed" in answer:
            raise LauncherGone(command)
        if "error" in answer:
            raise ValueError(f"the launcher refused {command}: {answer['error']}")
        return answer

    async def close(self) -> None:
        """Hang up; the launcher goes on."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if self._writer is not None:
            self._writer.close()

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader), name=f"launcher-{self.pid}")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if "event" in message:
                    self._on_event(message)
                else:
                    self._answers.put_nowait(message)
        self._answers.put_nowait({"closed": True})
        if self._writer is not None:
            self._writer.close()
        self._on_end()


async def connect(
    path: Path, on_event: Callable[[dict[str, Any]], None], on_end: Callable[[], None]
) -> LauncherLink:
    """Open the line to the launcher behind `path`.

    Raises LauncherNotReady while there is no socket, LauncherGone when nobody listens on it any more.
    """
    try:
        with reachable(path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
    except FileNotFoundError as error:
        raise LauncherNotReady(str(path)) from error
    except ConnectionRefusedError as error:
        raise LauncherGone(str(path)) from error
    peer: socket.socket = writer.get_extra_info("socket")
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    link = LauncherLink(on_event, on_end, pid=pid)
    link._start(reader, writer)
    return link
