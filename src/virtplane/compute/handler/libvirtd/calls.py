"""Calls to libvirt: timeouts, errors, and the meaning of its constants."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import libvirt

from virtplane.compute.handler.threads import in_thread

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

CALL_SECONDS = 15.0
LONG_CALL_SECONDS = 90.0
"""For calls that start or end a process: QEMU under emulation on a busy node takes its time."""

_EVENTS_RETRY_SECONDS = 1.0

_QUOTED = 300
"""Characters of libvirt's own words that are repeated to others."""
_KEPT = 8192
"""Characters that are kept to be looked at."""

_STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: "NoState",
    libvirt.VIR_DOMAIN_RUNNING: "Running",
    libvirt.VIR_DOMAIN_BLOCKED: "Blocked",
    libvirt.VIR_DOMAIN_PAUSED: "Paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "ShuttingDown",
    libvirt.VIR_DOMAIN_SHUTOFF: "Shutoff",
    libvirt.VIR_DOMAIN_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "PMSuspended",
}
_SHUTOFF_REASONS = {
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: "Shutdown",
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "Destroyed",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED: "Migrated",
    libvirt.VIR_DOMAIN_SHUTOFF_SAVED: "Saved",
    # libvirt reports a guest whose process was killed from outside as "failed".
    libvirt.VIR_DOMAIN_SHUTOFF_FAILED: "Failed",
    libvirt.VIR_DOMAIN_SHUTOFF_FROM_SNAPSHOT: "FromSnapshot",
}
_PAUSED_REASONS = {
    libvirt.VIR_DOMAIN_PAUSED_USER: "Paused",
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION: "Migration",
    libvirt.VIR_DOMAIN_PAUSED_IOERROR: "IOError",
    libvirt.VIR_DOMAIN_PAUSED_STARTING_UP: "StartingUp",
    libvirt.VIR_DOMAIN_PAUSED_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY: "PostCopy",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED: "PostcopyFailed",
}


@dataclass(frozen=True, slots=True)
class DomainState:
    """The state of a domain and its reason, as libvirt reports them."""

    status: str
    reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the guest has a QEMU process."""
        return self.status not in ("Shutoff", "Crashed")


class HypervisorError(Exception):
    """A libvirt call failed. `code` is libvirt's error number, 0 if the daemon did not answer; `why` are its
    own words, of which the text has the beginning and, as QEMU says last what is wrong, the end.
    """

    def __init__(self, operation: str, why: str, code: int = 0) -> None:
        super().__init__(f"{operation} failed: {_shortened(why)}")
        self.code = code
        self.why = why[:_KEPT]


class DaemonSilent(HypervisorError):
    """The daemon did not answer in time."""


def _shortened(why: str) -> str:
    if len(why) <= _QUOTED:
        return why
    half = _QUOTED // 2
    return f"{why[:half]} ... {why[-half:]}"


@cache
def start_events() -> None:
    """Start libvirt's event loop in a thread; once per process, before the first connection.

    Also stop libvirt from printing errors, some of which are no failures (no such domain): they are raised as
    exceptions, and callers log them with the name of the guest.
    """
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_deliver_events, name="libvirt-events", daemon=True).start()


def _deliver_events() -> None:
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            why = error.get_error_message() or str(error)
            logger.error(
                "libvirt's events cannot be read, so guests' changes are noticed late; restart virt-handler"
                " if this lasts",
                extra={"err": why[:_QUOTED]},
            )
            time.sleep(_EVENTS_RETRY_SECONDS)


def domain_state(status: int, reason: int) -> DomainState:
    """The names of libvirt's numeric state and reason; NoState and Unknown for other numbers."""
    found = _STATES.get(status, "NoState")
    reasons = {"Shutoff": _SHUTOFF_REASONS, "Paused": _PAUSED_REASONS}.get(found, {})
    return DomainState(found, reasons.get(reason, "Unknown"))


async def call_daemon(
    operation: str,
    function: Callable[..., _Result],
    *arguments: object,
    seconds: float | None = None,
) -> _Result:
    """Make a blocking call in a thread, with a timeout of `seconds` (default: `CALL_SECONDS`).

    Raises HypervisorError (DaemonSilent after the deadline).
    """
    seconds = CALL_SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds):
            return await in_thread(f"libvirt-{operation}", function, *arguments)
    except TimeoutError as error:
        raise DaemonSilent(operation, f"libvirt's daemon did not answer within {seconds:g} s") from error
    except UnicodeDecodeError as error:
        raise HypervisorError(operation, f"the answer is not valid UTF-8: {error}") from error
    except MemoryError as error:
        # libvirt's binding makes room for as many things as the daemon says that there are.
        raise HypervisorError(operation, "the answer is too large") from error
    except libvirt.libvirtError as error:
        why = error.get_error_message() or str(error)
        raise HypervisorError(operation, why, error.get_error_code() or 0) from error
