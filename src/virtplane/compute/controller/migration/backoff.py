"""How long automatic migrations wait after failures: twice as long after each, from twenty seconds on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta, times
from virtplane.api import labels

_FIRST_SECONDS = 20.0
_MAX_DOUBLINGS = 10
_AUTOMATIC = (labels.EVACUATION_MIGRATION, labels.WORKLOAD_UPDATE_MIGRATION)


def remaining_seconds(migrations: Iterable[JsonObject], now: datetime) -> float:
    """Seconds until the next automatic migration of an instance, given its migrations so far."""
    failures, last = 0, ""
    for migration in sorted(migrations, key=meta.creation_timestamp, reverse=True):
        if not any(key in meta.annotations(migration) for key in _AUTOMATIC):
            continue
        if get_str(migration, "status", "phase") != "Failed":
            break
        failures += 1
        last = last or _failed_at(migration)
    if not failures or not last:
        return 0.0
    wait: float = _FIRST_SECONDS * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
    return max(0.0, wait - (now - times.parse_time(last)).total_seconds())


def _failed_at(migration: JsonObject) -> str:
    for item in get_list(migration, "status", "phaseTransitionTimestamps"):
        if item.get("phase") == "Failed":
            return get_str(item, "phaseTransitionTimestamp")
    return meta.creation_timestamp(migration)
