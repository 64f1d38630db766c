"""Many TCP connections between network namespaces at once, without a process for each."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tests.support.namespaces import Namespace, T

_UNACCEPTED = 4096
"""Connections are completed and never accepted: this many, then no more."""
_DROPPED_SECONDS = 0.25
"""Links between namespaces answer within the call that sends; what has no answer after this was dropped."""


@dataclass(frozen=True, order=True)
class Call:
    """A connection to try: the caller's name, the address and the port."""

    caller: str
    address: str
    port: int


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextmanager
def listening(where: Namespace, places: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Listen on addresses and ports of a namespace; the kernel completes the connections."""

    def opened() -> list[socket.socket]:
        found = []
        for address, port in places:
            listener = socket.socket(family_of(address), socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(_UNACCEPTED)
            found.append(listener)
        return found

    with ExitStack() as stack:
        for listener in where.inside(opened):
            stack.enter_context(listener)
        yield


class Place(Protocol):
    """Where calls are made from."""

    def inside(self, act: Callable[[], T]) -> T:
        """What `act` returns, called in that network namespace."""


def answered(
    callers: Mapping[str, Place], calls: Iterable[Call], *, seconds: float = _DROPPED_SECONDS
) -> set[Call]:
    """The calls that were answered, of many made at once."""
    by_caller: dict[str, list[Call]] = {}
    for call in calls:
        by_caller.setdefault(call.caller, []).append(call)
    with ExitStack() as stack:
        waiting: dict[int, tuple[Call, socket.socket]] = {}
        for caller, own in by_caller.items():
            for call, made in zip(own, callers[caller].inside(partial(_dialled, own)), strict=True):
                stack.enter_context(made)
                waiting[made.fileno()] = (call, made)
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLOUT)
        found = set()
        while waiting and (events := poll.poll(seconds * 1000)):
            for descriptor, _ in events:
                poll.unregister(descriptor)
                call, made = waiting.pop(descriptor)
                if made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.add(call)
        return found


def _dialled(calls: list[Call]) -> list[socket.socket]:
    found = []
    for call in calls:
        made = socket.socket(family_of(call.address), socket.SOCK_STREAM)
        made.setblocking(False)
        made.connect_ex((call.address, call.port))
        found.append(made)
    return found
