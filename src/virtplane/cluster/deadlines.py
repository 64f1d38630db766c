"""The deadline of cleaning up after a deleted object, where going on without it harms nothing."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import datetime

from kubecore.errors import StatusError, is_lost_race
from kubecore.objects import times
from kubecore.runtime import EventRecorder
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.objects import Object, described

logger = logging.getLogger(__name__)

DEADLINE_SECONDS = 600.0
"""So long after its deletion an object waits for what can be done without it just as well."""
GIVEN_UP = "DeletionDeadlineExceeded"
"""The event on an object that is let go although something could not be cleaned up."""


def is_overdue(metadata: ObjectMeta, now: datetime) -> bool:
    """Whether the object has been deleted for longer than `DEADLINE_SECONDS`."""
    if not metadata.deletion_timestamp:
        return False
    return (now - times.parse_time(metadata.deletion_timestamp)).total_seconds() > DEADLINE_SECONDS


@contextmanager
def until_deadline(obj: Object, recorder: EventRecorder, work: str) -> Iterator[None]:
    """Let `work` fail without keeping a deleted object for longer than its deadline.

    Before the deadline the error is raised, so that the controller tries again; afterwards an event says what
    was left. Only for work that others finish later, or whose omission loses nothing. Raises StatusError.
    """
    try:
        yield
    except StatusError as error:
        if is_lost_race(error) or not is_overdue(obj.metadata, times.now()):
            raise
        text = (
            f"Deleted without {work}, {DEADLINE_SECONDS / 60:.0f} minutes after the request: {error.message}"
        )
        logger.warning("%s %s/%s: %s", obj.kind, obj.metadata.namespace, obj.metadata.name, text)
        recorder.event(described(obj), "Warning", GIVEN_UP, text)


ABANDONED_SECONDS = 60.0
"""So long a machine stays locked for an object that does not exist: who wrote that may still make it."""


class Patience:
    """Since when things were found to be so, by their keys. Times are of a clock that does not go back."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Hashable, float] = {}

    def left(self, key: Hashable, now: float) -> float:
        """How long to wait before acting on what is so; 0 where that is over."""
        return max(0.0, self._since.setdefault(key, now) + self._seconds - now)

    def forget(self, key: Hashable) -> None:
        """It is so no longer, or was acted on."""
        self._since.pop(key, None)
