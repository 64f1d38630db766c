"""What is said of a deletion that waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kubecore.objects import times
from virtplane.cluster.deadlines import DEADLINE_SECONDS

WAITING = "DeletionWaiting"
"""The event on a deleted object that waits."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a deleted object is still there."""

    why: str
    """A clause: what it waits for."""
    advice: str = ""
    """What to do, with the exact command where there is one."""
    until: str = ""
    """When it ends by itself at the latest; empty where nothing but the advice ends it for certain."""
    unsafe: str = ""
    """What would be at stake if the wait simply ended."""
    is_expected: bool = False
    """Nothing is wrong: it goes on as it should."""
    is_up_to_component: bool = False
    """Nothing else is in the way, as far as can be seen."""
    finalizer: str = ""
    since: str = ""

    def end(self) -> str:
        """Until when it waits, and why not only until then."""
        if self.until:
            return f"until {self.until} at the latest"
        return f"without a deadline: {self.unsafe}" if self.unsafe else "without a deadline"

    def message(self) -> str:
        """The text of the event."""
        advice = f" {self.advice[0].upper()}{self.advice[1:]}." if self.advice else ""
        return f"Deleted at {self.since}, it waits {self.end()}: {self.why}.{advice}"


def deadline(since: str) -> str:
    """When clean-up that may be left out is given up, for an object deleted at `since`."""
    return later(since, DEADLINE_SECONDS)


def later(since: str, seconds: float) -> str:
    """The time so many seconds after `since`; empty where that is no time."""
    try:
        return times.format_time(times.parse_time(since) + timedelta(seconds=seconds))
    except (ValueError, OverflowError):
        return ""


def has_passed(moment: str, now: datetime) -> bool:
    """Whether a time is over; false where it is none."""
    try:
        return bool(moment) and times.parse_time(moment) < now
    except ValueError:
        return False
