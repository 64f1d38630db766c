"""Running mutating webhooks and policies again when the object changed after they saw it."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from kubecore.json import JsonObject


@dataclass(slots=True)
class Reinvocation:
    """Which plugins of one request have run, and which must be reinvoked."""

    is_second_round: bool = False
    seen: dict[str, bytes] = field(default_factory=dict)
    """What each of those who ask for reinvocation left behind, by its key."""
    waiting: set[str] = field(default_factory=set)

    @property
    def is_wanted(self) -> bool:
        """Whether a second round is needed."""
        return bool(self.waiting) and not self.is_second_round

    def is_due(self, key: str) -> bool:
        """Whether the plugin with this key runs in the current round."""
        return not self.is_second_round or key in self.waiting

    def note(self, key: str, obj: JsonObject | None) -> None:
        """Record that the plugin with this key has run, supports reinvocation, and resulted in `obj`."""
        self.seen[key] = _fingerprint(obj)

    def changed(self, by: str, obj: JsonObject | None) -> None:
        """Record that the object changed: all plugins that ran before (except `by`) are reinvoked."""
        if not self.seen:
            return
        now = _fingerprint(obj)
        self.waiting |= {key for key, then in self.seen.items() if key != by and then != now}


def _fingerprint(obj: JsonObject | None) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
