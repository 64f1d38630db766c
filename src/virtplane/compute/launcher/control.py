"""The control socket: virt-handler's line to one launcher.

Newline-separated JSON objects. Requests carry ``command`` (and whatever it needs) and are answered with
``{"done": command}`` or ``{"error": …}``; events carry ``event``. Losing the connection says nothing about
the guest: virt-handler may come back at any time. That the launcher is gone shows at once as end of file.
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

_LIMIT = 1 << 20


class ControlServer:
    """Accepts connections and hands each request to `handle`, which returns the answer.

    `left_alone` is called when the last connection has ended.
    """

    def __init__(
        self,
        settings: Settings,
        selector: selectors.BaseSelector,
        handle: Callable[[dict[str, Any]], dict[str, Any]],
        left_alone: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._handle = handle
        self._left_alone = left_alone
        self._buffers: dict[socket.socket, bytes] = {}
        self._settings = settings
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

    @property
    def connected(self) -> bool:
        """True while somebody listens to events."""
        return bool(self._buffers)

    def open(self) -> None:
        """Listen; the socket gets its final name only now that requests can be served."""
        first, final = self._settings.initial_socket, self._settings.control_socket
        os.makedirs(os.path.dirname(first), exist_ok=True)
        if os.path.lexists(first):
            os.unlink(first)
        self._listener.bind(first)
        os.chmod(first, 0o700)
        self._listener.listen(8)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        os.rename(first, final)

    def send(self, event: dict[str, Any]) -> None:
        """Tell everybody who is connected."""
        for connection in list(self._buffers):
            self._write(connection, event)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(5)
        self._buffers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data or len(self._buffers[connection]) > _LIMIT:
            self._drop(connection)
            return
        *lines, rest = (self._buffers[connection] + data).split(b"\n")
        self._buffers[connection] = rest
        for line in lines:
            self._serve(connection, line)

    def _serve(self, connection: socket.socket, line: bytes) -> None:
        try:
            request = json.loads(line)
            answer = self._handle(request)
        except (ValueError, KeyError, TypeError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        self._write(connection, answer)

    def _write(self, connection: socket.socket, message: dict[str, Any]) -> None:
        try:
            connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        if self._buffers.pop(connection, None) is not None:
            self._selector.unregister(connection)
            connection.close()
            if not self._buffers:
                self._left_alone()
