"""Large requests: a few at a time, with their CPU work in threads.

One event loop serves everybody. Decoding, checking and defaulting an object of some megabytes takes it
seconds; in a thread it takes as long, but the GIL is handed over every millisecond and small requests
continue. Each large document in work takes tens of megabytes, so the number of slots is small, and the
bytes of waiting requests are bounded. Both are shared: nobody has all of them, or one tenant's slow or costly
requests would have everybody else's refused.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from kubecore import errors

LARGE_BYTES: Final = 16 * 1024
"""Requests up to this size are served where they arrive: handing them over would cost more than it saves."""
SWITCH_SECONDS: Final = 0.001
"""How long a thread may keep the interpreter while others want it (see ``sys.setswitchinterval``)."""

_AT_ONCE: Final = 3
_MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_OF_EACH: Final = 4
"""One sender may hold this part of the bytes, and has one slot less than there are."""
_RETRY_SECONDS: Final = 1
_ACCOUNTS: Final = "system:serviceaccount:"

P = ParamSpec("P")
T = TypeVar("T")


def sender(user: str) -> str:
    """Who counts as the sender of a user's requests: the service accounts of a namespace are one."""
    return user.rpartition(":")[0] if user.startswith(_ACCOUNTS) else user


@dataclass(slots=True)
class _Sender:
    """What one sender has of a pool."""

    turns: asyncio.Semaphore
    held_bytes: int = 0
    requests: int = 0
    """Requests that have a slot or wait for one."""


class LargeRequestPool:
    """Slots and threads for large requests. Bound to one event loop; close it at the end."""

    def __init__(self, at_once: int = _AT_ONCE, max_held_bytes: int = _MAX_HELD_BYTES) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._turns_of_each = max(1, at_once - 1)
        self._senders: dict[str, _Sender] = {}
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="large-request")
        self._in_work = 0
        self._is_closed = False
        # glibc keeps freed memory of threads unless malloc_trim is called (other C libraries have no such
        # function).
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def hold(self, size: int, who: str) -> None:
        """Count bytes of a request body of the sender `who` that are held. Raises StatusError (429)."""
        of_sender = self._sender(who).held_bytes + size
        if self._held_bytes + size > self._max_held_bytes or of_sender > self._max_held_bytes // _OF_EACH:
            self._forget_idle(who)
            raise errors.too_many_requests(
                "The server has received too many requests, please try again later.", _RETRY_SECONDS
            )
        self._held_bytes += size
        self._senders[who].held_bytes = of_sender

    def release(self, size: int, who: str) -> None:
        """Stop counting these bytes."""
        self._held_bytes -= size
        self._senders[who].held_bytes -= size
        self._forget_idle(who)

    async def acquire_slot(self, who: str) -> None:
        """Wait for a slot for the sender `who`; ``release_slot`` must follow."""
        sender = self._sender(who)
        sender.requests += 1
        try:
            # First in its own row: in that of all, each sender has no more requests than it may have slots.
            await sender.turns.acquire()
            try:
                await self._turns.acquire()
            except BaseException:
                sender.turns.release()
                raise
        except BaseException:
            sender.requests -= 1
            self._forget_idle(who)
            raise
        self._in_work += 1

    def release_slot(self, who: str) -> None:
        """Release a slot. After the last one, freed memory is returned to the system."""
        self._turns.release()
        sender = self._senders[who]
        sender.turns.release()
        sender.requests -= 1
        self._forget_idle(who)
        self._in_work -= 1
        if not self._in_work and self._trim is not None and not self._is_closed:
            self._threads.submit(self._trim, 0)

    def _sender(self, who: str) -> _Sender:
        if who not in self._senders:
            self._senders[who] = _Sender(asyncio.Semaphore(self._turns_of_each))
        return self._senders[who]

    def _forget_idle(self, who: str) -> None:
        """Names of senders are anybody's invention: none is kept longer than its requests."""
        found = self._senders.get(who)
        if found is not None and not found.held_bytes and not found.requests:
            del self._senders[who]

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The outcome of `work` in a thread. It must not touch what belongs to the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Let the threads end."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


class RequestShare:
    """The bytes and the slot that one request holds; both are released at its end."""

    __slots__ = ("_bytes", "_has_slot", "_large_requests", "_who")

    def __init__(self, large_requests: LargeRequestPool) -> None:
        self._large_requests = large_requests
        self._bytes = 0
        self._has_slot = False
        self._who = ""

    def belongs_to(self, user: str) -> None:
        """Say whose request this is, before it holds anything."""
        self._who = sender(user)

    def hold(self, size: int) -> None:
        """See LargeRequestPool.hold."""
        self._large_requests.hold(size, self._who)
        self._bytes += size

    async def acquire_slot(self) -> None:
        """See LargeRequestPool.acquire_slot; once is enough."""
        if not self._has_slot:
            await self._large_requests.acquire_slot(self._who)
            self._has_slot = True

    def give_back(self) -> None:
        """The request is over."""
        if self._bytes:
            self._large_requests.release(self._bytes, self._who)
            self._bytes = 0
        if self._has_slot:
            self._has_slot = False
            self._large_requests.release_slot(self._who)
        self._who = ""
