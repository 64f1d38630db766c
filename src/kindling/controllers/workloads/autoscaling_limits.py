"""How fast and how far an autoscaler may change replicas (``spec.behavior``); pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kubecore.json import JsonObject, get_list, get_object, get_str

_DOWN_WINDOW_SECONDS = 300
"""So long, the highest number that was asked for counts before replicas are taken away."""
_UP: JsonObject = {
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]
}
_DOWN: JsonObject = {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
_LONGEST = timedelta(hours=1)
"""The longest window and period that the API accepts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A number of replicas, and when it was asked for, added or taken away."""

    time: datetime
    replicas: int


@dataclass(frozen=True, slots=True)
class History:
    """What an autoscaler remembers: what was asked for, and how many replicas came and went."""

    wanted: tuple[Moment, ...] = ()
    added: tuple[Moment, ...] = ()
    removed: tuple[Moment, ...] = ()

    def changed(self, before: int, after: int, now: datetime) -> History:
        """With one more change."""
        if after > before:
            return replace(self, added=(*self.added, Moment(now, after - before)))
        return replace(self, removed=(*self.removed, Moment(now, before - after)))


@dataclass(frozen=True, slots=True)
class Words:
    """Status, reason and message of a condition."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of replicas, what limited it, and the history that the next decision needs."""

    replicas: int
    able: Words
    limited: Words
    history: History = field(default_factory=History)


_READY = Words("True", "ReadyForNewScale", "recommended size matches current size")
_WITHIN = Words("False", "DesiredWithinRange", "the desired count is within the acceptable range")


def decide(desired: int, current: int, spec: JsonObject, history: History, now: datetime) -> Decision:
    """How many of the `desired` replicas the autoscaler's `spec` allows now."""
    behavior = get_object(spec, "behavior")
    up, down = get_object(behavior, "scaleUp") or _UP, get_object(behavior, "scaleDown") or _DOWN
    kept = _forget(history, now)
    before = kept.wanted or (Moment(now, current),)
    steady, able = _steady(desired, current, before, (up, down), now)
    kept = replace(kept, wanted=(*before, Moment(now, desired)))
    low, high = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
    if steady > current:
        rate = max(current, _rate(current, up, kept, now, rises=True))
        if steady > min(high, rate):
            return Decision(min(high, rate), able, _too_many(rate < high), kept)
    elif steady < current:
        rate = min(current, _rate(current, down, kept, now, rises=False))
        if steady < max(low, rate):
            return Decision(max(low, rate), able, _too_few(rate > low), kept)
    return Decision(steady, able, _WITHIN, kept)


def _too_many(is_rate: bool) -> Words:
    if is_rate:
        text = "the desired replica count is increasing faster than the maximum scale rate"
        return Words("True", "ScaleUpLimit", text)
    return Words(
        "True", "TooManyReplicas", "the desired replica count is more than the maximum replica count"
    )


def _too_few(is_rate: bool) -> Words:
    if is_rate:
        text = "the desired replica count is decreasing faster than the maximum scale rate"
        return Words("True", "ScaleDownLimit", text)
    return Words("True", "TooFewReplicas", "the desired replica count is less than the minimum replica count")


def _forget(history: History, now: datetime) -> History:
    def recent(moments: Sequence[Moment]) -> tuple[Moment, ...]:
        return tuple(each for each in moments if each.time > now - _LONGEST)

    return History(recent(history.wanted), recent(history.added), recent(history.removed))


def _steady(
    desired: int, current: int, before: Sequence[Moment], rules: tuple[JsonObject, JsonObject], now: datetime
) -> tuple[int, Words]:
    """The number that recent ones agree on: no rise above the lowest, no fall below the highest of them."""
    up, down = rules
    rising = _within(before, up.get("stabilizationWindowSeconds", 0), now)
    falling = _within(before, down.get("stabilizationWindowSeconds", _DOWN_WINDOW_SECONDS), now)
    steady = max(current, min([desired, *rising]))
    steady = min(steady, max([desired, *falling]))
    if steady == desired:
        return steady, _READY
    if steady > desired:
        text = (
            "recent recommendations were higher than current one, applying the highest recent recommendation"
        )
        return steady, Words("True", "ScaleDownStabilized", text)
    text = "recent recommendations were lower than current one, applying the lowest recent recommendation"
    return steady, Words("True", "ScaleUpStabilized", text)


def _within(moments: Sequence[Moment], seconds: int, now: datetime) -> list[int]:
    return [each.replicas for each in moments if each.time > now - timedelta(seconds=seconds)]


def _rate(current: int, rules: JsonObject, history: History, now: datetime, *, rises: bool) -> int:
    """The furthest number that the policies allow now, counted from the beginning of their periods."""
    if get_str(rules, "selectPolicy") == "Disabled":
        return current
    found = []
    for policy in get_list(rules, "policies"):
        seconds, value = int(policy["periodSeconds"]), int(policy["value"])
        start = (
            current - sum(_within(history.added, seconds, now)) + sum(_within(history.removed, seconds, now))
        )
        if policy["type"] == "Pods":
            found.append(start + value if rises else start - value)
        elif rises:
            found.append(math.ceil(start * (100 + value) / 100))
        else:
            found.append(start * (100 - value) // 100)
    furthest: Callable[[list[int]], int] = max if rises else min
    nearest: Callable[[list[int]], int] = min if rises else max
    return (nearest if get_str(rules, "selectPolicy") == "Min" else furthest)(found)
