"""Whether a DataSource can be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.storage.cdi.controller.labels import handed_on

READY = "Ready"
SUCCEEDED = "Succeeded"
_NOT_FOUND = "NotFound"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the condition ``Ready`` says; the labels are those of the content, once it is there."""

    reason: str
    message: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether DataVolumes can be made of the content."""
        return self.reason == READY


NO_SOURCE = Verdict("NoSource", "No source PVC set")


def reference_refusal(source: DataSource) -> Verdict | None:
    """Why the DataSource that `source` refers to is not even looked up; None where it is."""
    reference = source.spec.source.data_source
    if reference is None:
        return None
    if reference.namespace and reference.namespace != source.metadata.namespace:
        message = "DataSource cannot reference a DataSource in another namespace"
        return Verdict("CrossNamespaceReference", message)
    if reference.name == source.metadata.name:
        return Verdict("SelfReference", "DataSource cannot self-reference")
    return None


def chain_refusal(name: str, target: DataSource | None) -> Verdict | None:
    """Why the DataSource called `name` cannot stand for another one; None where it can."""
    if target is None:
        return Verdict(_NOT_FOUND, f'DataSource.cdi.kubevirt.io "{name}" not found')
    if target.spec.source.data_source is not None:
        message = "DataSource reference chain exceeds maximum depth of 1"
        return Verdict("MaxReferenceDepthReached", message)
    return None


def of_claim(claim: PersistentVolumeClaim | None, data_volume: DataVolume | None) -> Verdict:
    """Whether a claim can be used: one with a DataVolume once that has succeeded."""
    if data_volume is not None and data_volume.status.phase != SUCCEEDED:
        phase = data_volume.status.phase
        return Verdict(phase, f"Import DataVolume phase {phase}")
    if claim is None:
        return Verdict(_NOT_FOUND, "PVC not found")
    made_by = handed_on(data_volume.metadata.labels) if data_volume is not None else {}
    return _ready({**made_by, **handed_on(claim.metadata.labels)})


def of_snapshot(snapshot: VolumeSnapshot | None) -> Verdict:
    """Whether a snapshot can be used."""
    if snapshot is None:
        return Verdict(_NOT_FOUND, "Snapshot not found")
    if not snapshot.status.ready_to_use:
        return Verdict("SnapshotNotReady", "Snapshot phase is not ready")
    return _ready(handed_on(snapshot.metadata.labels))


def _ready(labels: Mapping[str, str]) -> Verdict:
    return Verdict(READY, "DataSource is ready to be consumed", labels)


def shown_source(verdict: Verdict, content: DataSourceSource) -> DataSourceSource:
    """The source in the status: what the DataSource leads to, as long as it can be used."""
    return content if verdict.is_ready else DataSourceSource()
