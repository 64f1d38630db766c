"""The control socket: virt-handler's connection to one launcher.

Newline-separated JSON objects. Requests carry an ``id``, ``command`` and whatever that needs, and are
answered with ``{"id": id, "done": command}`` or ``{"id": id, "error": …}``; events carry ``event``. Losing
the connection says nothing about the guest: virt-handler may come back at any time. That the launcher is
gone shows at once as end of file.

A client may be faulty or stopped: the length of lines, the number of connections and the answers that wait to
be read are bounded, and nothing here blocks on a client.
"""

from __future__ import annotations

import json
import os
import selectors
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from virtplane.compute.launcher.settings import Settings

LINE_BYTES = 1 << 20
"""The longest request."""

UNREAD_BYTES = 1 << 18
"""A connection on which more than this waits to be read is closed."""

CONNECTIONS = 8
_QUOTED = 500
_FAILURES = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What a malformed request raises."""

_CHUNK = 65536


class _Connection:
    """One connection, with received bytes of an incomplete line and bytes that are not sent yet."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self.received = b""
        self.unsent = b""


class ControlServer:
    """Accepts connections and passes each request to `handle`, which returns the answer.

    `on_disconnect` is called when the last connection has ended.
    """

    def __init__(
        self,
        settings: Settings,
        selector: selectors.BaseSelector,
        handle: Callable[[dict[str, Any]], dict[str, Any]],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._handle = handle
        self._on_disconnect = on_disconnect
        self._connections: list[_Connection] = []
        self._settings = settings
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

    @property
    def connected(self) -> bool:
        """Whether a client is connected."""
        return bool(self._connections)

    def open(self) -> None:
        """Listen; the socket gets its final name only when requests can be served."""
        first, final = self._settings.initial_socket, self._settings.control_socket
        os.makedirs(os.path.dirname(first), exist_ok=True)
        if os.path.lexists(first):
            os.unlink(first)
        self._listener.bind(first)
        os.chmod(first, 0o700)
        self._listener.listen(8)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        os.rename(first, final)

    def close(self) -> None:
        """Close all connections, and listen no more; the socket's name stays."""
        self._listener.close()
        for connection in self._connections:
            connection.socket.close()

    def send(self, event: dict[str, Any]) -> None:
        """Send an event to all clients."""
        for connection in list(self._connections):
            self._write(connection, event)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the client has disconnected already
        if len(self._connections) >= CONNECTIONS:
            # Close the oldest connection: virt-handler connects last after its restart, and must get through.
            self._drop(self._connections[0])
        peer.setblocking(False)
        connection = _Connection(peer)
        self._connections.append(connection)
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._serve(connection))

    def _serve(self, connection: _Connection) -> None:
        """Handle a connection that is readable or writable."""
        self._flush(connection)
        try:
            data = connection.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, connection.received = (connection.received + data).split(b"\n")
        if not data or len(connection.received) > LINE_BYTES:
            self._drop(connection)
            return
        for line in lines:
            if connection in self._connections:
                self._write(connection, self._answer(line))

    def _answer(self, line: bytes) -> dict[str, Any]:
        number = None
        try:
            request = json.loads(line)
            number = request.get("id") if isinstance(request, dict) else None
            return {"id": number, **self._handle(request)}
        except _FAILURES as error:
            return {"id": number, "error": f"{type(error).__name__}: {error}"[:_QUOTED]}

    def _write(self, connection: _Connection, message: dict[str, Any]) -> None:
        connection.unsent += json.dumps(message).encode() + b"\n"
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.unsent) if connection.unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        connection.unsent = connection.unsent[sent:]
        if len(connection.unsent) > UNREAD_BYTES:
            self._drop(connection)
        elif connection in self._connections:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
            key = self._selector.get_key(connection.socket)
            if key.events != events:
                self._selector.modify(connection.socket, events, key.data)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._selector.unregister(connection.socket)
            connection.socket.close()
            if not self._connections:
                self._on_disconnect()


def leave_refusing(settings: Settings) -> None:
    """Leave a control socket that refuses connections, as a launcher leaves it that has ended."""
    path = settings.control_socket
    if os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ended:
        ended.bind(path)
