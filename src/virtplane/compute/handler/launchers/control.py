"""virt-handler's side of a launcher's control socket. // The launcher is not trusted: the size and rate of
its messages are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubecore.json import JsonObject, get_str
from virtplane.compute.handler.launchers.process import ForeignProcess, Process, peer_process
from virtplane.compute.handler.launchers.sockets import reachable
from virtplane.compute.handler.rate import RateLimit

ANSWER_SECONDS = 10.0
LINE_BYTES = 65536
"""The longest message; launchers' own are shorter than 200 bytes."""

UNSOLICITED = (100, 10.0)
"""A launcher that sends more messages than this without a request, in so many seconds, is disconnected."""

_ENDING_SECONDS = 2.0
"""A process that ends closes its sockets a moment before it counts as ended."""

_QUOTED = 200
"""Characters of a launcher's own words that are repeated to others."""


class LauncherNotReady(Exception):
    """The launcher has not opened its control socket yet."""


class LauncherGone(Exception):
    """The launcher has ended, and its guest with it."""


class LauncherBroken(Exception):
    """The launcher does not answer, or answers wrongly. Its guest may still run."""


class LauncherLink:
    """One connection to a launcher.

    `on_event` gets its events. `on_end` is called once, when the connection has broken: with True when the
    launcher's process has ended, with False when it lives on.
    """

    def __init__(
        self, process: Process, on_event: Callable[[JsonObject], None], on_end: Callable[[bool], None]
    ) -> None:
        self.process = process
        """The launcher: the door to its mounts and network."""
        self.broken = ""
        """Why the connection has broken though the launcher lives, or the empty string."""
        self._on_event = on_event
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._unsolicited = RateLimit(*UNSOLICITED)
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return not self.broken and self._reading is not None and not self._reading.done()

    @property
    def is_ending(self) -> bool:
        """True after the connection has broken, until it is known whether the launcher has ended."""
        return bool(self.broken) and self._reading is not None and not self._reading.done()

    async def request(self, command: str, **arguments: Any) -> JsonObject:
        """Send a command and return the answer.

        Raises LauncherGone, LauncherBroken, and ValueError for a command that the launcher refused.
        """
        if self._writer is None or not self.alive:
            raise await self._failure(command)
        number = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                text = json.dumps({"id": number, "command": command, **arguments})
                self._writer.write(text.encode() + b"\n")
                await self._writer.drain()
                message = await answer
        except TimeoutError as error:
            self._break(f"it did not answer {command!r} within {ANSWER_SECONDS:g} s")
            raise await self._failure(command) from error
        except (ConnectionError, RuntimeError) as error:
            # uvloop raises RuntimeError where the connection was closed a moment ago.
            self._break(f"its control socket failed: {error}")
            raise await self._failure(command) from error
        finally:
            self._waiting.pop(number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # Where sending failed first, nothing else retrieves it.
        if "error" in message:
            raise ValueError(f"the launcher refused {command!r}: {str(message['error'])[:_QUOTED]}")
        return message

    async def close(self) -> None:
        """Close the connection; the launcher keeps running."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._release()
        self.process.close()

    def start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start listening for messages."""
        self._writer = writer
        asyncio.get_running_loop().add_reader(self.process.ended, self._ended.set)
        self._reading = asyncio.create_task(self._listen(reader), name=f"launcher-{self.process.pid}")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Receive messages until the process has ended or the connection has broken."""
        reading = asyncio.create_task(self._read(reader), name=f"launcher-{self.process.pid}-lines")
        ending = asyncio.create_task(self._ended.wait(), name=f"launcher-{self.process.pid}-end")
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENDING_SECONDS):
                    await ending
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)
            self._release()
        self._on_end(self._ended.is_set())

    def _release(self) -> None:
        asyncio.get_running_loop().remove_reader(self.process.ended)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the line was closed"))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(line)
            self.broken = self.broken or "it closed its control socket"
        except ConnectionError as error:
            self.broken = self.broken or f"its control socket failed: {error}"
        except (ValueError, RecursionError) as error:
            # readline raises ValueError for a line of more than LINE_BYTES.
            self.broken = self.broken or f"it does not keep to the protocol: {str(error)[:_QUOTED]}"

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message that is no object")
        number = message.get("id", self._oldest_request(message))
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            answer.set_result(message)
            return
        if self._unsolicited.exceeded():
            raise ValueError(f"more than {UNSOLICITED[0]} messages in {UNSOLICITED[1]:g} s without a request")
        if get_str(message, "event"):
            self._on_event(message)

    def _oldest_request(self, message: JsonObject) -> int | None:
        """Match an answer without a number to the oldest request: launchers from before an upgrade send
        none.
        """
        if "done" not in message and "error" not in message:
            return None
        return min((number for number, answer in self._waiting.items() if not answer.done()), default=None)

    def _break(self, why: str) -> None:
        self.broken = self.broken or why
        if self._writer is not None and not self._writer.is_closing():
            self._writer.transport.abort()

    async def _failure(self, command: str) -> LauncherGone | LauncherBroken:
        """The reason for the broken connection, once it is known."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))
        if self.process.is_alive:
            return LauncherBroken(f"launcher {self.process.pid}: {self.broken or 'the line is closed'}")
        return LauncherGone(f"launcher {self.process.pid} ended before it answered {command!r}")


async def connect(
    path: Path,
    on_event: Callable[[JsonObject], None],
    on_end: Callable[[bool], None],
    *,
    pod_uid: str = "",
) -> LauncherLink:
    """Connect to the launcher behind `path`, a process of the pod `pod_uid` (see ``peer_process``).

    Raises LauncherNotReady while there is no socket, LauncherGone when no process listens on it any more, and
    LauncherBroken when a process outside the pod does, or when it accepts no connection.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(peer.close)
        try:
            with reachable(path) as address:
                # Connecting to a local socket never waits: where it would, it fails.
                peer.connect(address)
            process = peer_process(peer, pod_uid)
        except FileNotFoundError as error:
            raise LauncherNotReady(str(path)) from error
        except (ConnectionRefusedError, ProcessLookupError) as error:
            raise LauncherGone(str(path)) from error
        except (ForeignProcess, OSError) as error:
            raise LauncherBroken(str(error)) from error
        on_failure.callback(process.close)
        reader, writer = await asyncio.open_unix_connection(sock=peer, limit=LINE_BYTES)
        link = LauncherLink(process, on_event, on_end)
        link.start(reader, writer)
        on_failure.pop_all()
    return link
