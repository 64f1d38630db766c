"""The hosts that probes and hooks name, looked up without keeping anybody else waiting.

A lookup blocks its thread for as long as servers that the tenant has chosen do not answer, also when nobody
waits for it any more. In the threads that the agent has for all its work, a few probes would bring that to a
stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

Found = list[tuple[Any, ...]]
"""As ``getaddrinfo`` returns it."""


def _addresses(host: str) -> Found:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)


class HostNames:
    """Looks names up, each in a thread of its own, for each container one at a time."""

    def __init__(self, look_up: Callable[[str], Found] = _addresses) -> None:
        self._look_up = look_up
        self._running: dict[str, asyncio.Future[Found]] = {}

    async def find(self, container_id: str, host: str) -> list[tuple[int, str]]:
        """Family and address of a host, best first; never empty. Raises OSError."""
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(host)
            return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, host)]
        while (running := self._running.get(container_id)) is not None:
            await asyncio.wait([running])
        running = asyncio.wrap_future(self._begin(host))
        self._running[container_id] = running
        running.add_done_callback(lambda done: self._ended(container_id, done))
        await asyncio.wait([running])  # which leaves it running where the caller is cancelled
        return [(family, str(place[0])) for family, _, _, _, place in running.result()]

    def _ended(self, container_id: str, done: asyncio.Future[Found]) -> None:
        del self._running[container_id]
        if not done.cancelled():
            done.exception()  # of which nobody may be left to hear

    def _begin(self, host: str) -> Future[Found]:
        future: Future[Found] = Future()

        def run() -> None:
            try:
                future.set_result(self._look_up(host))
            except UnicodeError as error:  # an empty label, or one that is too long
                future.set_exception(socket.gaierror(socket.EAI_NONAME, str(error)))
            except BaseException as error:
                future.set_exception(error)

        future.set_running_or_notify_cancel()
        threading.Thread(target=run, name="host-name", daemon=True).start()
        return future


class ResolverOf(AbstractResolver):
    """`HostNames` for aiohttp, asked by one container."""

    def __init__(self, names: HostNames, container_id: str) -> None:
        self._names, self._container_id = names, container_id

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises OSError."""
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST
            )
            for kind, address in await self._names.find(self._container_id, host)
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Nothing is open."""
