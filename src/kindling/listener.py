"""Accepting connections, one per event loop iteration.

asyncio's server accepts all pending connections at once and then runs the expensive first step of all their
TLS handshakes in one iteration: a thousand clients connecting together would block the server for a second.
Here each iteration accepts one, and other requests are served in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
_HANDSHAKE_SECONDS = 10.0
_SEND_BUFFER_BYTES = 256 * 1024
"""What the kernel holds for a client who does not read; by itself it would grow to megabytes for each."""
_PAUSE_SECONDS = 1.0
"""How long nothing is accepted after the process ran out of file descriptors."""


class Listener:
    """The listening sockets, and the connections in their TLS handshake."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        addresses: Sequence[str],
        port: int,
        *,
        max_per_client: int | None = None,
    ) -> None:
        """Bind to `addresses`, without accepting yet. Port 0 chooses one. Raises OSError.

        `max_per_client` bounds the connections of one address; their protocols call `release` when they end.
        """
        self._protocol = protocol
        self._max_per_client = max_per_client
        self._connections: Counter[str] = Counter()
        self._refused: set[str] = set()
        """Clients whose refusal is in the log: once, however often they try."""
        self._context: ssl.SSLContext | None = None
        self._handshake_seconds = _HANDSHAKE_SECONDS
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._resumption: asyncio.TimerHandle | None = None
        try:
            for address in addresses:
                self._sockets.append(_bound(address, port))
        except OSError:
            self.close()
            raise
        self.port: int = self._sockets[0].getsockname()[1]

    def start(self, context: ssl.SSLContext | None, patience: float) -> None:
        """Accept connections from now on; plain ones without a `context`. `patience`: see Settings."""
        self._context = context
        self._handshake_seconds = min(_HANDSHAKE_SECONDS, patience)
        for each in self._sockets:
            each.listen(_BACKLOG)
        self._watch()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.add_reader(each.fileno(), self._accept, each)

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each.fileno())

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, (address, *_) = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            text = "connections cannot be accepted, trying again in %g s; raise the limit of open files: %s"
            _LOG.error(text, _PAUSE_SECONDS, error)
            self._unwatch()
            self._resumption = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._watch)
            return
        if self._max_per_client is not None:
            if self._connections[address] >= self._max_per_client:
                connection.close()
                self._log_refusal(address)
                return
            self._connections[address] += 1
        connection.setblocking(False)
        task = asyncio.create_task(self._handshake(connection, address), name="handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def release(self, address: str) -> None:
        """A connection of this client has ended."""
        self._connections[address] -= 1
        if self._connections[address] <= 0:
            del self._connections[address]
            self._refused.discard(address)

    def _log_refusal(self, address: str) -> None:
        if address not in self._refused:
            self._refused.add(address)
            text = "%s has %d connections open: more are refused until it closes some"
            _LOG.warning(text, address, self._max_per_client)

    async def _handshake(self, connection: socket.socket, address: str) -> None:
        """Hand a connection over to its protocol, after the handshake if there is one."""
        context = self._context
        patience = self._handshake_seconds if context is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, connection, ssl=context, ssl_handshake_timeout=patience
            )
        except (OSError, TimeoutError) as error:
            # Clients may disconnect or not speak TLS; that is no error of the server.
            _LOG.debug("TLS handshake with %s failed: %s", address, error)
            connection.close()
            if self._max_per_client is not None:
                self.release(address)

    def close(self) -> None:
        """Stop accepting and cancel handshakes. Established connections stay."""
        if self._resumption is not None:
            self._resumption.cancel()
        for each in self._sockets:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()
        for task in self._handshakes:
            task.cancel()


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
