"""Back-off for guests that fail before they ever run."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta, times
from virtplane.compute.controller.vm.strategy import BACKOFF_STRATEGIES
from virtplane.compute.controller.vmi.phases import is_final

_INTERVAL_SECONDS = 10
_MAX_SECONDS = 300


def has_run(vmi: JsonObject) -> bool:
    """Whether the guest ever reached phase Running."""
    transitions = get_list(vmi, "status", "phaseTransitionTimestamps")
    return any(item.get("phase") == "Running" for item in transitions)


def delay_seconds(failures: int, jitter: float) -> int:
    """Seconds to wait after `failures` failures in a row; `jitter` from 0 to 1 adds up to half of it."""
    base = _INTERVAL_SECONDS * failures * failures
    return min(int(base + jitter * base / 2), _MAX_SECONDS)


def next_failure(
    vm: JsonObject, vmi: JsonObject | None, strategy: str, now: datetime, jitter: float | None = None
) -> JsonObject | None:
    """``status.startFailure`` as it should be; None when nothing failed."""
    if strategy not in BACKOFF_STRATEGIES:
        return None
    current = get_object(vm, "status").get("startFailure")
    if vmi is not None and has_run(vmi):
        return None
    if vmi is None or not is_final(vmi) or get_str(current, "lastFailedVMIUID") == meta.uid(vmi):
        return current if isinstance(current, dict) else None
    count = get_int(current, "consecutiveFailCount") + 1
    wait = delay_seconds(count, random.random() if jitter is None else jitter)
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": meta.uid(vmi),
        "retryAfterTimestamp": times.format_time(now + timedelta(seconds=wait)),
    }


def remaining_seconds(vm: JsonObject, now: datetime) -> float:
    """How long a start has still to wait."""
    until = get_str(vm, "status", "startFailure", "retryAfterTimestamp")
    if not until:
        return 0
    return max(0.0, (times.parse_time(until) - now).total_seconds())
