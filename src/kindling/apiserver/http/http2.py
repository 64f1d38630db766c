"""HTTP/2 for clients that ask for it by ALPN: client-go keeps all its watches on one connection then.

h2 speaks the protocol. Each stream has a `Connection` of its own, which sees HTTP/1.1: h11 writes requests
for it and reads its responses, so that a request is served the same way over either protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, cast

import h11
from h2 import events
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hpack import Decoder, HeaderTuple

from .connection import Connection
from .http2_stream import Stream

_LOG = logging.getLogger(__name__)
_MAX_STREAMS = 100
"""Requests of one connection at a time. client-go opens another connection for more."""
_STREAM_WINDOW_BYTES = 256 * 1024
_CONNECTION_WINDOW_BYTES = 1024 * 1024
"""Bytes of request bodies that a connection may send before they are read."""
_DEFAULT_WINDOW_BYTES = 65535
_MAX_HEAD_BYTES = 64 * 1024
_MAX_RESETS = 200
_RESETS_SECONDS = 10.0
"""More resets in this time are an attack ("rapid reset"): a request costs more than its reset."""


class _TooManyResets(ProtocolError):
    error_code = ErrorCodes.ENHANCE_YOUR_CALM


class _Decoder(Decoder):
    """Takes spaces around values of headers off, as everybody does over HTTP/1.1.

    The protocol forbids them, and h2 would end the connection; Kubernetes' own server lets them pass, and
    programs that put free text into their `User-Agent` send them.
    """

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        return [
            type(header)(name, value if name.startswith(b":") else value.strip(b" \t"))
            for header in super().decode(data, raw=True)
            for name, value in [header]
        ]


class Http2Connection(asyncio.Protocol):
    """One connection of a client and its streams. Without any for `idle_seconds` it is closed."""

    def __init__(self, serve: Callable[[], Connection], idle_seconds: float) -> None:
        self._serve = serve
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: asyncio.TimerHandle | None = None
        self._streams: dict[int, Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._resets = 0
        self._resets_since = 0.0
        self._is_leaving = False
        """Set while the server stops: requests are served to their end, new ones are refused."""
        self.is_blocked = False
        """The client's socket takes no more bytes at present."""
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        decoder = _Decoder(self.h2.decoder.max_header_list_size)
        decoder.max_allowed_table_size = self.h2.decoder.max_allowed_table_size
        self.h2.decoder = decoder
        self.h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_STREAMS,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: _MAX_HEAD_BYTES,
            },
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the server's settings."""
        # uvloop's transports do not derive from asyncio.Transport, though they behave like one.
        self._transport = cast(asyncio.Transport, transport)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(_CONNECTION_WINDOW_BYTES - _DEFAULT_WINDOW_BYTES)
        self.flush()
        self._watch_idleness()

    def data_received(self, data: bytes) -> None:
        """Frames of the client. A connection that breaks the protocol is closed with GOAWAY."""
        try:
            for event in self.h2.receive_data(data):
                self._on_event(event)
        except ProtocolError as error:
            _LOG.debug("an HTTP/2 connection is closed, because the client violates the protocol: %s", error)
            self._end(error.error_code)
        self.flush()

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.RequestReceived):
            self._open(event)
        elif isinstance(event, events.DataReceived):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.receive(event.data, event.flow_controlled_length)
        elif isinstance(event, events.StreamEnded):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.receive_end()
        elif isinstance(event, events.StreamReset):
            self._count_reset()
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.lose(None)
        elif isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
            self._send_what_fits(getattr(event, "stream_id", 0))
        elif isinstance(event, events.ConnectionTerminated):
            self._end(ErrorCodes.NO_ERROR)

    def _open(self, event: events.RequestReceived) -> None:
        if self._is_leaving:
            self.h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        protocol = self._serve()
        stream = self._streams[event.stream_id] = Stream(self, event.stream_id, protocol)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        protocol.connection_made(stream)
        try:
            stream.begin(event.headers, has_body=event.stream_ended is None)
        except h11.LocalProtocolError as error:
            _LOG.debug("a request over HTTP/2 is refused: %s", error)
            stream.reset(ErrorCodes.PROTOCOL_ERROR)

    def _count_reset(self) -> None:
        now = self._loop.time()
        if now - self._resets_since > _RESETS_SECONDS:
            self._resets_since, self._resets = now, 0
        self._resets += 1
        if self._resets > _MAX_RESETS:
            raise _TooManyResets("requests are reset in quick succession")

    def _send_what_fits(self, stream_id: int | None) -> None:
        """The flow control window of one stream, or (0) of all, has grown: send more."""
        if not stream_id:
            for stream in list(self._streams.values()):
                stream.send_what_fits()
        elif stream_id in self._streams:
            self._streams[stream_id].send_what_fits()

    def forget(self, stream_id: int) -> None:
        """A stream has ended."""
        self._streams.pop(stream_id, None)
        self._close_when_empty()
        self._watch_idleness()

    def _watch_idleness(self) -> None:
        if not self._streams and self._idle is None and self._transport is not None:
            self._idle = self._loop.call_later(self._idle_seconds, self.close)

    def close(self) -> None:
        """Refuse further requests; the connection ends with its last stream."""
        self._is_leaving = True
        self._close_when_empty()

    def _close_when_empty(self) -> None:
        if self._is_leaving and not self._streams:
            self._end(ErrorCodes.NO_ERROR)

    def _end(self, code: ErrorCodes) -> None:
        """Say why, close the socket and end the streams."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if self.h2.state_machine.state is not ConnectionState.CLOSED:
            # h2 has already sent GOAWAY when the client violates the protocol.
            self.h2.close_connection(code)
        transport.write(self.h2.data_to_send())
        transport.close()
        self._lose_streams(None)

    def _lose_streams(self, error: Exception | None) -> None:
        for stream in list(self._streams.values()):
            stream.lose(error)
        if self._idle is not None:
            self._idle.cancel()

    def credit(self, size: int) -> None:
        """Bytes of a stream that ended unread no longer count against the connection's window."""
        if size and self._transport is not None:
            self.h2.increment_flow_control_window(size)

    def flush(self) -> None:
        """Hand the frames that are due to the socket."""
        data = self.h2.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        """The client reads too slowly: stop reading its frames, too, or answers to pings would pile up."""
        self.is_blocked = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_blocked = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._send_what_fits(0)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams."""
        self._transport = None
        self._lose_streams(exc)

    def extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the client's socket: addresses, the client certificate."""
        return default if self._transport is None else self._transport.get_extra_info(name, default)
