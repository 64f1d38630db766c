"""Back-off of automatic migrations after failures: twenty seconds, doubled after each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubecore.objects import times
from virtplane.api import labels
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration

_FIRST_SECONDS = 20.0
_MAX_DOUBLINGS = 10
_AUTOMATIC = (labels.EVACUATION_MIGRATION, labels.WORKLOAD_UPDATE_MIGRATION)


def remaining_seconds(migrations: Iterable[VirtualMachineInstanceMigration], now: datetime) -> float:
    """The seconds until the next automatic migration of an instance, computed from its previous
    migrations.
    """
    failures, last = 0, ""
    for migration in sorted(migrations, key=lambda item: item.metadata.created, reverse=True):
        if not any(key in migration.metadata.annotations for key in _AUTOMATIC):
            continue
        if migration.status.phase != "Failed":
            break
        failures += 1
        last = last or _failed_at(migration)
    if not failures or not last:
        return 0.0
    wait: float = _FIRST_SECONDS * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
    return max(0.0, wait - (now - times.parse_time(last)).total_seconds())


def _failed_at(migration: VirtualMachineInstanceMigration) -> str:
    for item in migration.status.phase_transition_timestamps:
        if item.phase == "Failed":
            return item.phase_transition_timestamp or ""
    return migration.metadata.created
