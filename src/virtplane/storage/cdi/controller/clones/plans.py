"""The phases of a clone, in their order: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.storage.cdi.controller.clones import documents
from virtplane.storage.cdi.controller.clones.sources import CloneError, Source
from virtplane.storage.cdi.controller.clones.strategy import COPY, CSI_CLONE, SNAPSHOT

PENDING = "Pending"
SUCCEEDED = "Succeeded"
ERROR = "Error"
HOST_CLONE = "HostClone"
SNAPSHOT_PHASE = "Snapshot"
SNAPSHOT_CLONE = "SnapshotClone"
CSI_PHASE = "CSIClone"
PREPARATION = "PrepClaim"
REBIND = "Rebind"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """A snapshot of the claim `source` is taken."""

    source: str
    snapshot: str
    name: str = SNAPSHOT_PHASE


@dataclass(frozen=True, slots=True)
class Restore:
    """A claim is made of a snapshot by the driver."""

    snapshot: str
    claim: JsonObject
    name: str = SNAPSHOT_CLONE


@dataclass(frozen=True, slots=True)
class CloneByDriver:
    """A claim is made of the claim `source` by the driver."""

    source: str
    claim: JsonObject
    name: str = CSI_PHASE


@dataclass(frozen=True, slots=True)
class CopyByPods:
    """A claim is filled by pods with what is in the claim `source`."""

    source: str
    claim: JsonObject
    name: str = HOST_CLONE


@dataclass(frozen=True, slots=True)
class Prepare:
    """A claim gets its volume, as large as it is to be in the end."""

    claim: str
    size: str
    name: str = PREPARATION


@dataclass(frozen=True, slots=True)
class Rebind:
    """The volume of a claim is given to the target."""

    claim: str
    name: str = REBIND


Phase = TakeSnapshot | Restore | CloneByDriver | CopyByPods | Prepare | Rebind


@dataclass(frozen=True, slots=True)
class Restored:
    """How the claim is made of a snapshot that pods copy: class, volume mode and size."""

    snapshot: VolumeSnapshot
    storage_class: str
    volume_mode: str


def plan(
    strategy: str, source: Source, target: PersistentVolumeClaim, restored: Restored | None = None
) -> list[Phase]:
    """All phases; `restored` is needed for a snapshot that pods copy. Raises CloneError."""
    uid = target.metadata.uid
    claim = documents.temporary_claim(source.namespace, target)
    name, size = cdi_names.temporary_claim(uid), documents.requested(claim)
    prepare, rebind = Prepare(name, size), Rebind(name)
    if source.is_claim and strategy == COPY:
        return [CopyByPods(source.name, claim), rebind]
    if source.is_claim and strategy == SNAPSHOT:
        snapshot = cdi_names.temporary_snapshot(uid)
        return [TakeSnapshot(source.name, snapshot), Restore(snapshot, claim), prepare, rebind]
    if source.is_claim and strategy == CSI_CLONE:
        return [CloneByDriver(source.name, claim), prepare, rebind]
    if not source.is_claim and strategy == SNAPSHOT:
        return [Restore(source.name, claim), prepare, rebind]
    if not source.is_claim and strategy == COPY and restored is not None:
        between = documents.temporary_source_claim(
            source.namespace, target, restored.snapshot, restored.storage_class, restored.volume_mode
        )
        between_name = between["metadata"]["name"]
        return [
            Restore(source.name, between),
            Prepare(between_name, documents.requested(between)),
            CopyByPods(between_name, claim),
            rebind,
        ]
    raise CloneError(f"unknown strategy/source {strategy}")
