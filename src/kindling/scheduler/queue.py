"""The scheduling queue: pods by priority, namespaces in turn, with back-off after failures.

Whoever has thousands of pods that fit nowhere would have them tried over and over before all others: each
namespace has its turn, and in it the pod that was not tried for longest.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.runtime import Key

FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 10.0
BLOCKED_SECONDS = 300.0
"""Blocked pods are tried again after so long even if nothing changed (as kube-scheduler does it)."""
REPEAT_SECONDS = 1800.0
"""An event that says the same is repeated once, and from then on as seldom (as client-go's series are)."""


@dataclass(slots=True)
class Waiting:
    """A queued pod. After a failure it is unschedulable until an event that could help it, or until a
    timeout.
    """

    key: Key
    priority: int
    since: float
    """When it came, or was tried last."""
    attempts: int = 0
    not_before: float = 0.0
    blocked_until: float = 0.0
    _told: str = ""
    _times: int = 0
    _told_at: float = 0.0

    @property
    def due(self) -> float:
        """When the pod may be tried again."""
        return max(self.not_before, self.blocked_until)

    def is_news(self, message: str, now: float) -> bool:
        """Whether to report (again) why the pod is unschedulable; it counts as reported then."""
        if message != self._told:
            self._told, self._times = message, 0
        elif self._times > 1 and now - self._told_at < REPEAT_SECONDS:
            return False
        self._times += 1
        self._told_at = now
        return True


class SchedulingQueue:
    """The queue. All times are those of the event loop's clock."""

    def __init__(self) -> None:
        self._pods: dict[Key, Waiting] = {}
        self._busy: set[Key] = set()
        self._turns: dict[str, int] = {}
        """The last turn of each namespace that has pods here."""
        self._turn = 0

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, key: Key, priority: int, now: float) -> None:
        """Add a pod, or one that changed and may be schedulable now."""
        waiting = self._pods.get(key)
        if waiting is None:
            self._pods[key] = Waiting(key, priority, now)
        else:
            waiting.blocked_until = 0.0
            waiting.priority = priority

    def waiting(self) -> list[Key]:
        """The pods that wait."""
        return list(self._pods)

    def hasten(self, key: Key) -> None:
        """What kept a pod waiting is there: it is tried without further back-off."""
        waiting = self._pods.get(key)
        if waiting is not None:
            waiting.not_before = waiting.blocked_until = 0.0

    def remove(self, key: Key) -> None:
        """Remove a pod that needs no node any more."""
        self._pods.pop(key, None)
        self._busy.discard(key)

    def wake(self) -> None:
        """Move all unschedulable pods back: something changed that may help any of them."""
        for waiting in self._pods.values():
            waiting.blocked_until = 0.0

    def next(self, now: float) -> Waiting | None:
        """The pod of highest priority that is not backing off; of several, one of the namespace whose turn is
        longest ago, and of those the one that has waited longest.
        """
        ready = [
            waiting for waiting in self._pods.values() if waiting.due <= now and waiting.key not in self._busy
        ]
        found = min(
            ready,
            key=lambda waiting: (-waiting.priority, self._turns.get(waiting.key[0], 0), waiting.since),
            default=None,
        )
        if found is not None:
            self._take_turn(found.key[0])
        return found

    def _take_turn(self, namespace: str) -> None:
        self._turn += 1
        self._turns[namespace] = self._turn
        if len(self._turns) > 2 * len(self._pods):  # most are of namespaces without pods here
            names = {key[0] for key in self._pods}
            self._turns = {name: turn for name, turn in self._turns.items() if name in names}

    def seconds_to_next(self, now: float) -> float | None:
        """The seconds until the next pod may be tried; None if no pod waits."""
        pauses = [waiting.due - now for waiting in self._pods.values() if waiting.key not in self._busy]
        return max(0.0, min(pauses)) if pauses else None

    def failed(self, key: Key, now: float) -> None:
        """The pod is unschedulable: it backs off, and waits for a change."""
        waiting = self._pods.get(key)
        self._busy.discard(key)
        if waiting is not None:
            pause = min(FIRST_PAUSE_SECONDS * 2**waiting.attempts, LAST_PAUSE_SECONDS)
            waiting.attempts = min(waiting.attempts + 1, 10)
            waiting.since = now
            waiting.not_before = now + pause
            waiting.blocked_until = now + BLOCKED_SECONDS

    def retry(self, key: Key, now: float) -> None:
        """The pod's binding failed: it backs off and is tried again without waiting for a change."""
        self.failed(key, now)
        waiting = self._pods.get(key)
        if waiting is not None:
            waiting.blocked_until = 0.0

    def take(self, key: Key) -> None:
        """Take a pod out while it is being bound, so that `next` does not return it again."""
        self._busy.add(key)
