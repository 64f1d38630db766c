"""Large requests: a few at a time, with their CPU work in threads.

One event loop serves everybody. Decoding, checking and defaulting an object of some megabytes takes it
seconds; in a thread it takes as long, but the GIL is handed over every millisecond and small requests
continue. Each large document in work takes tens of megabytes, so the number of slots is small, and the
bytes of waiting requests are bounded.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from kubecore import errors

LARGE_BYTES: Final = 16 * 1024
"""Requests up to this size are served where they arrive: handing them over would cost more than it saves."""
SWITCH_SECONDS: Final = 0.001
"""How long a thread may keep the interpreter while others want it (see ``sys.setswitchinterval``)."""

_AT_ONCE: Final = 3
_MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_RETRY_SECONDS: Final = 1

P = ParamSpec("P")
T = TypeVar("T")


class LargeRequestPool:
    """Slots and threads for large requests. Bound to one event loop; close it at the end."""

    def __init__(self, at_once: int = _AT_ONCE, max_held_bytes: int = _MAX_HELD_BYTES) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="large-request")
        self._in_work = 0
        self._is_closed = False
        # glibc keeps freed memory of threads unless malloc_trim is called (other C libraries have no such
        # function).
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def hold(self, size: int) -> None:
        """Count bytes of a request body that are held. Raises StatusError (429)."""
        if self._held_bytes + size > self._max_held_bytes:
            raise errors.too_many_requests(
                "The server has received too many requests, please try again later.", _RETRY_SECONDS
            )
        self._held_bytes += size

    def release(self, size: int) -> None:
        """Stop counting these bytes."""
        self._held_bytes -= size

    async def acquire_slot(self) -> None:
        """Wait for a slot; ``release_slot`` must follow."""
        await self._turns.acquire()
        self._in_work += 1

    def release_slot(self) -> None:
        """Release a slot. After the last one, freed memory is returned to the system."""
        self._turns.release()
        self._in_work -= 1
        if not self._in_work and self._trim is not None and not self._is_closed:
            self._threads.submit(self._trim, 0)

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

    __slots__ = ("_bytes", "_has_slot", "_large_requests")

    def __init__(self, large_requests: LargeRequestPool) -> None:
        self._large_requests = large_requests
        self._bytes = 0
        self._has_slot = False

    def hold(self, size: int) -> None:
        """See LargeRequestPool.hold."""
        self._large_requests.hold(size)
        self._bytes += size

    async def acquire_slot(self) -> None:
        """See LargeRequestPool.acquire_slot; once is enough."""
        if not self._has_slot:
            await self._large_requests.acquire_slot()
            self._has_slot = True

    def give_back(self) -> None:
        """The request is over."""
        self._large_requests.release(self._bytes)
        self._bytes = 0
        if self._has_slot:
            self._has_slot = False
            self._large_requests.release_slot()
