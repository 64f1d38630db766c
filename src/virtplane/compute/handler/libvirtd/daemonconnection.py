"""The connection to one launcher's libvirt daemon: calls in threads, events in the event loop.

Every call has a timeout. When a call times out, the connection is closed, which ends all its calls. Calls to
the guest agent have their own queue: an agent that does not answer delays neither other guests nor other
calls for its own guest. The size of answers is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import libvirt

from virtplane.compute.handler.libvirtd.calls import (
    LONG_CALL_SECONDS,
    DaemonSilent,
    HypervisorError,
    call_daemon,
)
from virtplane.compute.handler.libvirtd.relay import Relay
from virtplane.compute.handler.rate import RateLimit

_Result = TypeVar("_Result")

AGENT_SECONDS = 5
"""How long an agent may take to answer; libvirt would wait for ever."""

_MOST_ASKED = 16
"""Calls that may wait for one guest's agent, which answers one after the other, or never."""

CLOSE_SECONDS = 5.0

_KEEPALIVE = (10, 3)
"""After so many seconds of silence the daemon is asked whether it is there; after so many tries it is not."""

_EVENTS = (1000, 10.0)
"""A daemon that sends more events than this, in so many seconds, is given up."""
_PROMPT = (20, 10.0)
"""So many events, in so many seconds, are told at once: each has the guest looked at, which takes time."""
_LATE_SECONDS = 1.0
"""After how long the others are told, all together."""


class DaemonConnection:
    """One connection. `on_change` is called in the event loop: for the events announced, and at its end."""

    def __init__(self, connection: libvirt.virConnect, relay: Relay, on_change: Callable[[], None]) -> None:
        self.libvirt = connection
        """For the functions to `call`."""
        self.is_open = True
        self._relay = relay
        self._slots = asyncio.Semaphore(2)
        self._agent_slot = asyncio.Semaphore(1)
        self._asked = 0
        """Calls that the agent has not answered, or has not got yet."""
        self._running: set[asyncio.Task[Any]] = set()
        self._events = RateLimit(*_EVENTS)
        self._prompt = RateLimit(*_PROMPT)
        self._late: asyncio.TimerHandle | None = None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._callbacks: list[int] = []

    @classmethod
    async def open(cls, path: Path, on_change: Callable[[], None]) -> DaemonConnection:
        """Connect to the daemon behind the socket `path`. Raises HypervisorError."""
        try:
            relay = Relay(path)
        except OSError as error:
            raise HypervisorError("open", error.strerror or str(error)) from error
        try:
            address = f"qemu+unix:///session?socket={relay.address}"
            connection = await call_daemon("open", libvirt.open, address)
        except BaseException:
            await relay.close()
            raise
        self = cls(connection, relay, on_change)
        try:
            await self.call("register", connection.registerCloseCallback, self._on_close, None)
            await self.call("keepalive", connection.setKeepAlive, *_KEEPALIVE)
        except BaseException:
            await self.close()
            raise
        return self

    async def watch(self, event: int, callback: Callable[..., None]) -> None:
        """Let `callback` be called, in libvirt's event thread, whenever `event` happens. Raises
        HypervisorError.
        """
        register = self.libvirt.domainEventRegisterAny
        self._callbacks.append(await self.call("register", register, None, event, callback, None))

    def announce(self) -> None:
        """Call `on_change` for an event, from libvirt's event thread.

        Many events are told together, and the connection is closed when there are too many.
        """
        if self._events.exceeded():
            self._in_loop(self.give_up)
        elif self._prompt.exceeded():
            self._in_loop(self._tell_later)
        else:
            self._in_loop(self._on_change)

    def _tell_later(self) -> None:
        if self._late is None and self.is_open:
            self._late = self._loop.call_later(_LATE_SECONDS, self._tell)

    def _tell(self) -> None:
        self._late = None
        self._on_change()

    async def call(
        self,
        operation: str,
        function: Callable[..., _Result],
        *arguments: object,
        seconds: float | None = None,
        slots: asyncio.Semaphore | None = None,
    ) -> _Result:
        """Run a blocking call. Raises HypervisorError.

        Whoever has asked may be cancelled: the call's thread runs on, so it keeps its slot and its timeout.
        """
        slot = slots or self._slots
        await slot.acquire()
        task = asyncio.create_task(self._call(operation, function, *arguments, seconds=seconds))
        self._running.add(task)
        task.add_done_callback(partial(self._has_come_back, slot))
        await asyncio.wait((task,))
        return task.result()

    async def _call(
        self, operation: str, function: Callable[..., _Result], *arguments: object, seconds: float | None
    ) -> _Result:
        if not self.is_open:
            raise HypervisorError(operation, "the connection is closed")
        try:
            return await call_daemon(operation, function, *arguments, seconds=seconds)
        except DaemonSilent:
            self.give_up()
            raise

    def _has_come_back(self, slot: asyncio.Semaphore, task: asyncio.Task[Any]) -> None:
        slot.release()
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # of which nobody may be left to hear

    async def on(
        self,
        name: str,
        operation: str,
        call: Callable[[libvirt.virDomain], _Result],
        seconds: float | None = None,
    ) -> _Result:
        """Make a call on the domain `name`. Raises HypervisorError."""
        domain = await self.call("lookup", self.libvirt.lookupByName, name)
        return await self.call(operation, call, domain, seconds=seconds)

    async def ask(self, name: str, operation: str, call: Callable[[libvirt.virDomain], _Result]) -> _Result:
        """Make a call that the guest agent must answer.

        Raises HypervisorError, also where as many others wait for it as may: whoever asks through the API
        goes away after a while, and the calls would pile up.
        """
        if self._asked >= _MOST_ASKED:
            raise HypervisorError(operation, f"{_MOST_ASKED} other calls wait for the guest's agent")
        self._asked += 1
        try:
            return await self._ask(name, operation, call)
        finally:
            self._asked -= 1

    async def _ask(self, name: str, operation: str, call: Callable[[libvirt.virDomain], _Result]) -> _Result:
        domain = await self.call("lookup", self.libvirt.lookupByName, name)

        def ask() -> _Result:
            domain.agentSetResponseTimeout(AGENT_SECONDS)
            return call(domain)

        # libvirt may send several commands to the agent for one call: a slow agent must not look like a
        # silent daemon.
        return await self.call(operation, ask, seconds=LONG_CALL_SECONDS, slots=self._agent_slot)

    async def close(self) -> None:
        """Close the connection; daemon and guest keep running."""
        if not self.is_open:
            await self._relay.close()
        self.is_open = False
        if self._late is not None:
            self._late.cancel()
        with contextlib.suppress(DaemonSilent):
            await call_daemon("close", self._hang_up, seconds=CLOSE_SECONDS)
        await self._relay.close()

    def give_up(self) -> None:
        """Close the connection: pending calls fail."""
        self._relay.cut()
        self._has_ended()

    def _hang_up(self) -> None:
        steps: list[Callable[[], object]] = [self.libvirt.unregisterCloseCallback]
        steps += [partial(self.libvirt.domainEventDeregisterAny, each) for each in self._callbacks]
        for step in (*steps, self.libvirt.close):
            # If the daemon has ended or the connection was closed, the daemon needs no clean-up.
            with contextlib.suppress(libvirt.libvirtError):
                step()

    def _on_close(self, *_: object) -> None:
        self._in_loop(self._has_ended)

    def _has_ended(self) -> None:
        if self.is_open:
            self.is_open = False
            self._on_change()

    def _in_loop(self, callback: Callable[[], None]) -> None:
        # The event loop may be closed already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
