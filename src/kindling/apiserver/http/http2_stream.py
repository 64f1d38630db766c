"""One request over HTTP/2, as the transport of a `Connection` that speaks HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import h11
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import StreamClosedError

from .connection import Connection

_HIGH_WATER_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 256 * 1024
"""Of our own responses: warnings and audit ids, far below this."""
_CONNECTION_HEADERS = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
"""What HTTP/1.1 says of a connection has no place in HTTP/2 (RFC 9113, 8.2.2)."""


class Carrier(Protocol):
    """The connection that carries a stream beside others."""

    h2: H2Connection
    is_blocked: bool
    """The client's socket takes no more bytes at present."""

    def flush(self) -> None:
        """Send what `h2` has ready."""

    def credit(self, count: int) -> None:
        """Give the client's window `count` bytes back that belong to no stream any more."""

    def forget(self, number: int) -> None:
        """Stream `number` has ended."""

    def extra_info(self, name: str, default: Any) -> Any:
        """Information about the client's socket."""


class Stream(asyncio.Transport):
    """A stream; `protocol` serves its one request."""

    def __init__(self, connection: Carrier, number: int, protocol: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._number = number
        self._protocol = protocol
        self._http1 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._unsent = bytearray()
        self._is_complete = False
        """All of the response is there."""
        self._is_over = False
        self._is_paused = False
        self._high_water = _HIGH_WATER_BYTES
        self._unacknowledged = 0
        """Bytes of the request that count against the client's window until the protocol reads again."""
        self._is_reading = True

    def begin(self, headers: Sequence[tuple[bytes, bytes]], *, has_body: bool) -> None:
        """Hand the head of the request over. Raises h11.LocalProtocolError for one that HTTP/1.1 lacks."""
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        if pseudo[b":method"] == b"CONNECT":
            self.reset(ErrorCodes.HTTP_1_1_REQUIRED)
            return
        plain = [(name, value) for name, value in headers if not name.startswith(b":") and name != b"host"]
        authority = pseudo.get(b":authority") or dict(headers).get(b"host", b"")
        plain += [(b"host", authority), (b"connection", b"close")]
        if has_body and not any(name == b"content-length" for name, _ in plain):
            plain.append((b"transfer-encoding", b"chunked"))
        request = h11.Request(method=pseudo[b":method"], target=pseudo[b":path"], headers=plain)
        self._feed(self._http1.send(request))

    def receive(self, data: bytes, counted: int) -> None:
        """A piece of the request's body; `counted` bytes of the client's window were used for it."""
        self._unacknowledged += counted
        if data and not self._is_over:
            self._feed(self._http1.send(h11.Data(data=data)))
        self._acknowledge()

    def receive_end(self) -> None:
        """The request is complete."""
        if not self._is_over:
            self._feed(self._http1.send(h11.EndOfMessage()))

    def _feed(self, data: bytes | None) -> None:
        if data:
            self._protocol.data_received(data)

    def _acknowledge(self) -> None:
        if self._is_reading and self._unacknowledged and not self._is_over:
            self._connection.h2.acknowledge_received_data(self._unacknowledged, self._number)
            self._unacknowledged = 0

    def pause_reading(self) -> None:
        """The protocol's buffer is full: the client's window is not renewed."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """The protocol reads again."""
        self._is_reading = True
        self._acknowledge()
        self._connection.flush()

    def is_reading(self) -> bool:
        """Whether the protocol takes bytes."""
        return self._is_reading

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes of the HTTP/1.1 response; bytes after its end are dropped."""
        if self._is_over or self._is_complete:
            return
        self._http1.receive_data(bytes(data))
        self._read_response()
        self.send_what_fits()
        self._connection.flush()

    def _read_response(self) -> None:
        while True:
            event = self._http1.next_event()
            if isinstance(event, h11.Response):
                head = [(name, value) for name, value in event.headers if name not in _CONNECTION_HEADERS]
                status = (b":status", str(event.status_code).encode())
                self._connection.h2.send_headers(self._number, [status, *head])
            elif isinstance(event, h11.Data):
                self._unsent += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._is_complete = True
                return
            elif not isinstance(event, h11.InformationalResponse):
                return

    def send_what_fits(self) -> None:
        """Send as much as the client's flow control windows allow, and pause or resume the writer."""
        h2 = self._connection.h2
        try:
            while self._unsent and not self._connection.is_blocked and not self._is_over:
                room = min(h2.local_flow_control_window(self._number), h2.max_outbound_frame_size)
                if room <= 0:
                    break
                h2.send_data(self._number, bytes(self._unsent[:room]))
                del self._unsent[:room]
                if len(self._unsent) > self._high_water:
                    self._connection.flush()
            if self._is_complete and not self._unsent and not self._is_over:
                h2.end_stream(self._number)
                self._stop_upload()
                self.lose(None)
                return
        except StreamClosedError:
            self.lose(None)
            return
        self._apply_backpressure()

    def _stop_upload(self) -> None:
        """The response is complete: tell the client to stop sending the request's body."""
        if self._http1.our_state is h11.SEND_BODY:
            self._connection.h2.reset_stream(self._number, ErrorCodes.NO_ERROR)

    def _apply_backpressure(self) -> None:
        if self._is_over:
            return
        if not self._is_paused and len(self._unsent) > self._high_water:
            self._is_paused = True
            self._protocol.pause_writing()
        elif self._is_paused and len(self._unsent) <= self._high_water // 4:
            self._is_paused = False
            self._protocol.resume_writing()

    def close(self) -> None:
        """Send the rest of a complete response; one that is not complete is aborted."""
        if not self._is_complete:
            self.abort()

    def abort(self) -> None:
        """Reset the stream, so that a truncated response does not look complete."""
        self.reset(ErrorCodes.INTERNAL_ERROR)

    def reset(self, code: ErrorCodes) -> None:
        """End the stream with an error."""
        if not self._is_over:
            self._connection.h2.reset_stream(self._number, code)
            self.lose(None)
            self._connection.flush()

    def lose(self, error: Exception | None) -> None:
        """The stream has ended: the protocol hears of it in the loop's next turn, as of a lost socket."""
        if self._is_over:
            return
        self._is_over = True
        self._unsent.clear()
        self._connection.credit(self._unacknowledged)
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)
        self._connection.forget(self._number)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_over or self._is_complete

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the client's socket."""
        return self._connection.extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who serves the request."""
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """Bytes of the response that wait for the client."""
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The buffer sizes at which writing is resumed and paused."""
        return self._high_water // 4, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio; the lower limit is always a quarter of the upper."""
        del low
        self._high_water = _HIGH_WATER_BYTES if high is None else high
        self._apply_backpressure()
