"""A relay between the libvirt client in this process and the daemon in a launcher's pod, which can be closed
at any time.

libvirt opens its own connections and waits without a timeout. A call to a stopped daemon ends only with its
connection, so this process must own the connection: the client connects to a socket of this module, which
forwards the bytes. It also ends the connection of a daemon whose answers are too long: libvirt takes 32 MiB,
of which its binding makes objects with ten and more times as many bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import tempfile
from pathlib import Path

from kubecore.directions import until_one_ends
from virtplane.compute.handler.launchers.sockets import reachable

_CHUNK = 65536
_LENGTH = struct.Struct(">I")
"""Before each message; it counts itself."""
_HEADER_BYTES = 28
"""Of each message, with its length."""
MESSAGE_BYTES = 2 << 20
"""The longest message of a daemon: enough to describe a domain with two thousand disks."""


class UnfitMessage(ConnectionError):
    """A daemon has sent what no daemon has reason to send."""


class Messages:
    """Counts the messages in a stream of libvirt's protocol, as its bytes come."""

    def __init__(self) -> None:
        self._left = 0
        """Bytes of a message that are still to come."""
        self._length = b""
        """What has come of the next message's length."""

    def take(self, data: bytes) -> None:
        """Look at the next bytes. Raises UnfitMessage."""
        position = 0
        while position < len(data):
            if self._left:
                step = min(self._left, len(data) - position)
                self._left -= step
            else:
                step = min(_LENGTH.size - len(self._length), len(data) - position)
                self._length += data[position : position + step]
                if len(self._length) == _LENGTH.size:
                    self._begin(*_LENGTH.unpack(self._length))
            position += step

    def _begin(self, length: int) -> None:
        if not _HEADER_BYTES <= length <= MESSAGE_BYTES:
            raise UnfitMessage(f"a message of {length} bytes")
        self._left, self._length = length - _LENGTH.size, b""


class Relay:
    """A connection to the socket `path` of a launcher for one client, who finds it at `address`.

    The constructor raises OSError if no process listens on `path`. It lasts until either side ends it or
    ``cut``.
    """

    def __init__(self, path: Path) -> None:
        with contextlib.ExitStack() as owned:
            daemon = owned.enter_context(_socket())
            with reachable(path) as there:
                # Connecting to a local socket never waits: where it would, it fails.
                daemon.connect(there)
            folder = owned.enter_context(tempfile.TemporaryDirectory(prefix="libvirt-"))
            self.address = f"{folder}/socket"
            listener = owned.enter_context(_socket())
            listener.bind(self.address)
            listener.listen(1)
            self._owned = owned.pop_all()
        self._task = asyncio.create_task(self._carry(listener, daemon), name="relay")

    def cut(self) -> None:
        """Close both sides soon: pending calls of the client then fail."""
        self._task.cancel()

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._owned.close()

    async def _carry(self, listener: socket.socket, daemon: socket.socket) -> None:
        with self._owned:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            with client:
                await until_one_ends(_copy(client, daemon), _copy(daemon, client, Messages()))


async def _copy(source: socket.socket, target: socket.socket, messages: Messages | None = None) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        if messages is not None:
            messages.take(data)
        await loop.sock_sendall(target, data)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
