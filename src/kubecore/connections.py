"""How many connections strangers may have to a server, counted before TLS costs anything.

A connection takes a quarter of a megabyte as soon as its handshake begins, whether or not anything is ever
asked: any pod that opens thousands would end a process that everybody waits for. Who has once shown the
certificate of an API server is no stranger: all users' requests come from its address.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web

logger = logging.getLogger(__name__)

_FEW = 4
"""Whoever has fewer gets in although all strangers together have too many."""
_MOST_KNOWN = 256
"""Addresses of API servers."""
_EVERYWHERE = ("0.0.0.0", "::")
_BACKLOG = 128
_HANDSHAKE_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
"""How long nothing is accepted after the process ran out of file descriptors."""
_WITHOUT_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors of a node that has only one of IPv4 and IPv6."""


@dataclass(slots=True)
class Connections:
    """The connections of one server. One address has at most `most_each`, all strangers at most `most`."""

    most_each: int = 128
    most: int = 1024
    _open: Counter[str] = field(default_factory=Counter)
    _known: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    """Whose refusal is in the log: once, however often they try."""

    def trust(self, address: str) -> None:
        """Whoever connects from this address has shown that he is no stranger."""
        if len(self._known) < _MOST_KNOWN:
            self._known.add(address)

    def admit(self, address: str) -> bool:
        """Count one more connection; False where the client has too many."""
        if address not in self._known and self._has_too_many(self._open[address]):
            if address not in self._refused:
                self._refused.add(address)
                text = "%s has %d connections open: more are refused until it closes some"
                logger.warning(text, address, self._open[address])
            return False
        self._open[address] += 1
        return True

    def _has_too_many(self, own: int) -> bool:
        if own >= self.most_each:
            return True
        if own < _FEW:
            return False
        return sum(count for each, count in self._open.items() if each not in self._known) >= self.most

    def release(self, address: str) -> None:
        """A connection has ended."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
            self._refused.discard(address)


class CountedSite(web.BaseSite):
    """Serves on a port, like aiohttp's TCPSite, to those whom `connections` admit.

    It accepts itself, one connection for each turn of the event loop: event loops begin the handshake of
    whatever they accept.
    """

    def __init__(
        self,
        runner: web.AppRunner,
        port: int,
        tls: ssl.SSLContext | None,
        connections: Connections,
        *,
        host: str = "",
        is_shared: bool = False,
    ) -> None:
        """`host` is an address, empty for all. `is_shared`: several processes may listen on the port."""
        super().__init__(runner, ssl_context=tls)
        self.port = port
        """0 becomes the one that was chosen."""
        self._tls, self._connections = tls, connections
        self._host, self._is_shared = host, is_shared
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """Its address."""
        return f"{self._host or '*'}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        await super().start()
        for address in [self._host] if self._host else _EVERYWHERE:
            try:
                self._sockets.append(_bound(address, self.port, is_shared=self._is_shared))
            except OSError as error:
                is_last = address == _EVERYWHERE[-1] and self._sockets
                if error.errno not in _WITHOUT_FAMILY or not (address == _EVERYWHERE[0] or is_last):
                    raise
            else:
                self.port = self._sockets[0].getsockname()[1]
        self._watch()

    async def stop(self) -> None:
        """Accept no more. The runner ends what was accepted."""
        if self._pause is not None:
            self._pause.cancel()
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()
        self._sockets.clear()
        for task in self._handshakes:
            task.cancel()
        await super().stop()

    def _watch(self) -> None:
        for each in self._sockets:
            asyncio.get_running_loop().add_reader(each.fileno(), self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, (address, *_) = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            text = "connections cannot be accepted, trying again in %g s; raise the limit of open files: %s"
            logger.error(text, _PAUSE_SECONDS, error)
            loop = asyncio.get_running_loop()
            for each in self._sockets:
                loop.remove_reader(each.fileno())
            self._pause = loop.call_later(_PAUSE_SECONDS, self._watch)
            return
        if not self._connections.admit(address):
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.create_task(self._hand_over(_Counted(accepted, self._connections, address)))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _hand_over(self, accepted: socket.socket) -> None:
        """Give a connection to the server after its handshake."""
        server = self._runner.server
        assert server is not None  # while the site is there
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._tls is not None else None,
            )
        except (OSError, TimeoutError) as error:
            # Clients may hang up or not speak TLS; that is no error of the server.
            logger.debug("a TLS handshake failed: %s", error)
            accepted.close()


def _bound(address: str, port: int, *, is_shared: bool) -> socket.socket:
    """A listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class _Counted(socket.socket):
    """A connection that is released when its event loop is done with it: asyncio closes, uvloop detaches."""

    def __init__(self, accepted: socket.socket, connections: Connections, address: str) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._held: tuple[Connections, str] | None = (connections, address)

    def close(self) -> None:
        """Close it, once or more often."""
        super().close()
        self._release()

    def detach(self) -> int:
        """Give the descriptor to somebody who closes it."""
        self._release()
        return super().detach()

    def _release(self) -> None:
        if self._held is not None:
            connections, address = self._held
            self._held = None
            connections.release(address)
