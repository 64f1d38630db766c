"""Ends freezes of file systems after the timeout that was given with the request.

Each timeout is a file in a directory of the node: it survives a restart of virt-handler, and neither a
launcher nor its guest can change it. Times are CLOCK_BOOTTIME, which cannot be set, and guests do not survive
a boot of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.machine import Machine

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
_CONNECT_SECONDS = 1.0
"""How often libvirt is looked for while it is not connected, as after a restart of virt-handler."""


class Guests(Protocol):
    """The guests of this node, by their instances' UIDs."""

    machines: dict[str, Machine]

    def has_ended(self, uid: str) -> bool:
        """Whether a guest runs here no more; False while that is not known."""
        ...


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Thaws:
    """Keeps the planned ends in `folder`; `clock` gives seconds."""

    def __init__(self, folder: Path, guests: Guests, clock: Callable[[], float] = _since_boot) -> None:
        self._folder = folder
        self._guests = guests
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def plan(self, uid: str, seconds: float) -> None:
        """End a freeze of that guest in `seconds`; an earlier plan is forgotten. Raises OSError."""
        deadline = self._clock() + seconds
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._folder / f".{uid}"
        fresh.write_text(str(deadline))
        fresh.replace(self._folder / uid)
        self._begin(uid, deadline)

    def forget(self, uid: str) -> None:
        """The freeze has ended, or is not to end by itself."""
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()
        try:
            (self._folder / uid).unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "The planned end of a freeze cannot be removed: the guest will be unfrozen when virt-handler"
                " starts again. Remove the file",
                extra={"file": str(self._folder / uid), "err": str(error)},
            )

    def resume(self) -> None:
        """Resume the timeouts after a restart of virt-handler."""
        with contextlib.suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                if not file.name.startswith("."):
                    self._begin(file.name, _deadline(file))

    async def close(self) -> None:
        """Stop waiting; the files of the timeouts are kept."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, uid: str, deadline: float) -> None:
        earlier = self._tasks.pop(uid, None)
        if earlier is not None:
            earlier.cancel()
        self._tasks[uid] = asyncio.create_task(self._end(uid, deadline), name=f"thaw-{uid}")

    async def _end(self, uid: str, deadline: float) -> None:
        """Thaw when the time has come, with as many tries as it takes while the guest is here."""
        await asyncio.sleep(deadline - self._clock())
        is_told = False
        while not self._guests.has_ended(uid):
            machine = self._guests.machines.get(uid)
            hypervisor = machine.hypervisor if machine is not None else None
            if machine is None or hypervisor is None or not hypervisor.is_open:
                await asyncio.sleep(_CONNECT_SECONDS)
                continue
            try:
                await machine.agent.thaw()
                break
            except HypervisorError as error:
                if not is_told:
                    text = "The guest could not be unfrozen in time; trying again. Look at its guest agent"
                    logger.warning(text, extra={"vmi": machine.vmi, "err": str(error)})
                is_told = True
            await asyncio.sleep(RETRY_SECONDS)
        self._tasks.pop(uid)
        self.forget(uid)


def _deadline(file: Path) -> float:
    """When the freeze ends; now if the file is unreadable."""
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return 0.0
