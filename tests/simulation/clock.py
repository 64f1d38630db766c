"""Virtual time: an event loop whose clock jumps, and wall clocks and chance that follow from a seed."""

from __future__ import annotations

import asyncio
import random
import selectors
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import kindling.controllers.environment
import kubecore.objects.times
import kubecore.runtime.events
import kubecore.runtime.leader
import kubecore.testing.memory
import virtplane.compute.handler.controller

T = TypeVar("T")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""When every simulation begins."""


class Deadlock(Exception):
    """Nothing is ready and nothing will ever be."""


class _Selector(selectors.BaseSelector):
    """Waits for nothing: time passes instead."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, number, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that does no I/O and never waits: its clock goes to the next timer at once."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self._virtual.now


def wall_time() -> datetime:
    """The virtual time of day."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Datetime:
        moment = wall_time().astimezone(tz or UTC)
        return cls.fromtimestamp(moment.timestamp(), tz or UTC)


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


_TIME = SimpleNamespace(monotonic=_monotonic, time=_monotonic, time_ns=lambda: int(_monotonic() * 1e9))
_CLOCKS = (
    kindling.controllers.environment,
    kubecore.objects.times,
    kubecore.runtime.events,
    kubecore.runtime.leader,
    virtplane.compute.handler.controller,
)
"""The modules that ask what time it is."""


@contextmanager
def determined(seed: int) -> Iterator[None]:
    """Time is virtual; chance and identities follow from `seed`. The one place where they are replaced."""
    state = random.getstate()
    identities = random.Random(f"identities {seed}")
    unique = SimpleNamespace(uuid4=lambda: uuid.UUID(int=identities.getrandbits(128), version=4))
    with ExitStack() as stack:
        for module in _CLOCKS:
            stack.enter_context(mock.patch.object(module, "datetime", _Datetime))
        stack.enter_context(mock.patch.object(kubecore.runtime.events, "time", _TIME))
        stack.enter_context(mock.patch.object(kubecore.testing.memory, "uuid", unique))
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


def run_virtually(main: Callable[[], Any]) -> Any:
    """Run a coroutine function on a loop of virtual time; all its tasks have ended afterwards."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
