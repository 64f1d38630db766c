"""Metrics of how long instances and migrations take from phase to phase, in KubeVirt's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import Histogram
from prometheus_client.registry import Collector

from kubecore.objects.times import seconds_between
from kubecore.runtime.informer import EventType
from virtplane.api.kubevirt_v1.migration import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstancePhaseTransitionTimestamp
from virtplane.cluster.caches import Cluster

_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600)
"""Seconds."""
_INSTANCE, _MIGRATION = "kubevirt_vmi_phase_transition_time", "kubevirt_vmi_migration_phase_transition_time"


_Reached = (
    VirtualMachineInstancePhaseTransitionTimestamp | VirtualMachineInstanceMigrationPhaseTransitionTimestamp
)


class PhaseTimes:
    """Observes changes of phases while this replica leads."""

    def __init__(self, cluster: Cluster) -> None:
        """To be made before the manager of `cluster` runs."""
        self._between = _histogram(f"{_INSTANCE}_seconds", "From phase to phase", ("phase", "last_phase"))
        self._created = _histogram(f"{_INSTANCE}_from_creation_seconds", "From creation to a phase")
        self._deleted = _histogram(f"{_INSTANCE}_from_deletion_seconds", "From deletion to a phase")
        self._migrated = _histogram(f"{_MIGRATION}_from_creation_seconds", "From creation to a phase")
        cluster.vmis.add_handler(self._observe_instance)
        cluster.migrations.add_handler(self._observe_migration)

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics."""
        return self._between, self._created, self._deleted, self._migrated

    def _observe_instance(
        self, event: EventType, old: VirtualMachineInstance | None, new: VirtualMachineInstance
    ) -> None:
        phase, before = new.status.phase or "", (old.status.phase if old is not None else None) or ""
        if event != "MODIFIED" or old is None or phase == before:
            return
        moments = _moments(new.status.phase_transition_timestamps)
        reached = moments.get(phase, "")
        _observe(self._created, (phase,), new.metadata.creation_timestamp, reached)
        _observe(self._between, (phase, before), moments.get(before), reached)
        _observe(self._deleted, (phase,), new.metadata.deletion_timestamp, reached)

    def _observe_migration(
        self,
        event: EventType,
        old: VirtualMachineInstanceMigration | None,
        new: VirtualMachineInstanceMigration,
    ) -> None:
        phase = new.status.phase or ""
        if event != "MODIFIED" or old is None or phase == (old.status.phase or ""):
            return
        reached = _moments(new.status.phase_transition_timestamps).get(phase, "")
        _observe(self._migrated, (phase,), new.metadata.creation_timestamp, reached)


def _moments(told: Iterable[_Reached]) -> dict[str, str]:
    """When each phase was reached, for the last time."""
    return {each.phase or "": each.phase_transition_timestamp or "" for each in told}


def _histogram(name: str, text: str, labels: Iterable[str] = ("phase",)) -> Histogram:
    return Histogram(name, text, tuple(labels), buckets=_BUCKETS, registry=None)


def _observe(histogram: Histogram, labels: tuple[str, ...], start: str | None, end: str) -> None:
    """Note the time between two moments of which both are known and in their order."""
    if not start or not end:
        return
    try:
        seconds = seconds_between(start, end)
    except ValueError:
        return  # a status may be anybody's who may write it
    if seconds >= 0:
        histogram.labels(*labels).observe(seconds)
