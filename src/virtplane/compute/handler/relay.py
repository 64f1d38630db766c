"""A relay between the libvirt client in this process and the daemon in a launcher's pod, which can be closed
at any time.

libvirt opens its own connections and waits without a timeout. A call to a stopped daemon ends only with its
connection, so this process must own the connection: the client connects to a socket of this module, which
forwards the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path

from kubecore.directions import until_one_ends
from virtplane.compute.handler.sockets import reachable

_CHUNK = 65536


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
                await until_one_ends(_copy(client, daemon), _copy(daemon, client))


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(target, data)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
