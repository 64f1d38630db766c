"""How far the import of a cron is, and what its status says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from msgspec import structs

from kubecore.objects.times import parse_time
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron, DataImportCronStatus, ImportStatus
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourcePVC
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.storage.cdi.controller.conditions import with_condition

PROGRESSING, UP_TO_DATE = "Progressing", "UpToDate"
CLAIM_FORMAT, SNAPSHOT_FORMAT = "pvc", "snapshot"
RETAIN_NONE = "None"

_BOUND, _PENDING = "Bound", "Pending"
_SUCCEEDED = "Succeeded"
_FAILURES = ("Error", "ImagePullFailed")


class Verdict(NamedTuple):
    """What a condition says."""

    status: str
    reason: str
    message: str


_NO_IMPORT = Verdict("False", "NoImport", "No current import")
_NO_DIGEST = Verdict("False", "NoDigest", "No source digest")
_NOT_AUTHORIZED = Verdict("False", "NotAuthorized", "Not authorized to create DataVolume")
_IN_PROGRESS = Verdict("False", "ImportProgressing", "Import is progressing")
_OUTDATED = Verdict("False", "Outdated", "Source digest updated since last import")
_UP_TO_DATE = Verdict("True", UP_TO_DATE, "Latest import is up to date")


class Stage(Enum):
    """How far the current import is."""

    MISSING = "there is nothing of it"
    GOING_ON = "its DataVolume is being filled"
    POPULATED = "its claim has the content"
    SNAPSHOT = "its claim is gone, and a snapshot has the content"

    @property
    def is_done(self) -> bool:
        """Whether the content is there."""
        return self in (Stage.POPULATED, Stage.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Import:
    """What there is of an import."""

    data_volume: DataVolume | None = None
    claim: PersistentVolumeClaim | None = None
    snapshot: VolumeSnapshot | None = None

    @property
    def stage(self) -> Stage:
        """How far it is. What is being deleted does not count."""
        made = self.data_volume
        if made is not None and not made.metadata.is_being_deleted:
            return Stage.POPULATED if made.status.phase == _SUCCEEDED else Stage.GOING_ON
        if is_populated(self.claim):
            return Stage.POPULATED
        kept = self.snapshot
        return Stage.SNAPSHOT if kept is not None and not kept.metadata.is_being_deleted else Stage.MISSING

    @property
    def is_known(self) -> bool:
        """Whether what holds the content is known: the cache of claims may be behind that of DataVolumes."""
        return self.stage.is_done and (self.claim is not None or self.snapshot is not None)

    @property
    def has_failed(self) -> bool:
        """Whether the image can neither be pulled nor imported, as far as its DataVolume tells."""
        conditions = self.data_volume.status.conditions if self.data_volume is not None else ()
        return any(
            each.type == "Running" and each.status == "False" and each.reason in _FAILURES
            for each in conditions
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Where imports go: the class that the template means now, and how its content is kept."""

    storage_class: StorageClass | None = None
    profile: StorageProfile | None = None

    @property
    def source_format(self) -> str:
        """``pvc`` or ``snapshot``."""
        wanted = self.profile.status.data_import_cron_source_format if self.profile is not None else None
        return wanted or CLAIM_FORMAT

    @property
    def keeps_snapshots(self) -> bool:
        """Whether the content is kept as snapshots."""
        return self.source_format == SNAPSHOT_FORMAT

    @property
    def class_name(self) -> str:
        """The name of the class; empty where there is none."""
        return self.storage_class.metadata.name if self.storage_class is not None else ""


def is_populated(claim: PersistentVolumeClaim | None) -> bool:
    """Whether a claim without DataVolume has content.

    One that a DataVolume controls goes with it, and may be half filled.
    """
    if claim is None or claim.metadata.is_being_deleted or claim.status.phase != _BOUND:
        return False
    owner = claim.metadata.controller
    if owner is not None and owner.kind == "DataVolume":
        return False
    return claim.metadata.annotations.get(names.POD_PHASE, _SUCCEEDED) == _SUCCEEDED


def is_ready(snapshot: VolumeSnapshot | None) -> bool:
    """Whether volumes can be made of a snapshot."""
    return snapshot is not None and snapshot.status.ready_to_use is True


def is_outdated_pending(cron: DataImportCron, claim: PersistentVolumeClaim | None, target: Target) -> bool:
    """Whether a claim waits for a volume of a class that is no longer the one to use."""
    if claim is None or not target.class_name or claim.metadata.is_being_deleted:
        return False
    waits = claim.status.phase == _PENDING and claim.metadata.labels.get(names.CRON) == cron.metadata.name
    return waits and claim.spec.storage_class_name not in (None, target.class_name)


def has_changed_class(cron: DataImportCron, target: Target) -> bool:
    """Whether imports were made in another class than the one that is to be used now."""
    recorded = cron.metadata.annotations.get(names.CRON_STORAGE_CLASS)
    return bool(target.class_name) and recorded is not None and recorded != target.class_name


def is_managed_by_other(
    cron: DataImportCron, source: DataSource | None, other: DataImportCron | None
) -> bool:
    """Whether `other`, the cron that the label of the DataSource names, manages it."""
    if source is None or other is None or source.metadata.labels.get(names.CRON) == cron.metadata.name:
        return False
    return other.spec.managed_data_source == source.metadata.name


def is_managed(cron: DataImportCron, source: DataSource | None) -> bool:
    """Whether `cron` decides what the DataSource leads to: one without its label is the user's."""
    return source is not None and source.metadata.labels.get(names.CRON) == cron.metadata.name


def current(cron: DataImportCron) -> ImportStatus | None:
    """The import that goes on, or the newest one."""
    return next(iter(cron.status.current_imports), None)


def is_new_digest(status: DataImportCronStatus, digest: str) -> bool:
    """Whether `digest` has yet to be imported."""
    newest = next(iter(status.current_imports), None)
    return bool(digest) and (newest is None or newest.digest != digest)


@dataclass(frozen=True, slots=True)
class Report:
    """The status of a cron while it is put together.

    Its conditions are applied at the end, once: each change of them is a heartbeat.
    """

    status: DataImportCronStatus
    progress: Verdict
    freshness: Verdict

    def written(self, now: str) -> DataImportCronStatus:
        """The status with its conditions."""
        conditions = with_condition(self.status.conditions, PROGRESSING, *self.progress, now)
        conditions = with_condition(conditions, UP_TO_DATE, *self.freshness, now)
        return structs.replace(self.status, conditions=conditions)

    def refused(self) -> Report:
        """The report where the service account may not clone the source."""
        return replace(self, progress=_NOT_AUTHORIZED)

    def outdated(self) -> Report:
        """The report where a new digest waits."""
        return replace(self, freshness=_OUTDATED)

    def started(self, name: str, digest: str) -> Report:
        """The report once the import of `digest` has begun."""
        newest = (ImportStatus(data_volume_name=name, digest=digest),)
        status = structs.replace(self.status, current_imports=newest)
        return replace(self, status=status, freshness=_IN_PROGRESS)


def report(cron: DataImportCron, found: Import, target: Target, last_poll: str, now: str) -> Report:
    """What the current import has come to, where no new digest waits. `last_poll` is a time."""
    status = cron.status
    stage = found.stage
    if stage is Stage.MISSING:
        status = structs.replace(status, current_imports=status.current_imports[1:])
    newest = next(iter(status.current_imports), None)
    if stage.is_done and newest is not None:
        status = structs.replace(status, source_format=target.source_format)
        imported = DataVolumeSourcePVC(name=newest.data_volume_name, namespace=cron.metadata.namespace)
        if imported != status.last_imported_pvc:
            status = structs.replace(status, last_imported_pvc=imported, last_import_timestamp=now)
    if is_time(last_poll):
        status = structs.replace(status, last_execution_timestamp=last_poll)
    return Report(status, _progress(found), _freshness(status, found, target))


def _progress(found: Import) -> Verdict:
    if found.stage is not Stage.GOING_ON or found.data_volume is None:
        return _NO_IMPORT
    phase = found.data_volume.status.phase
    if phase == "ImportScheduled":
        return Verdict("False", phase, "Import is scheduled")
    if phase == "ImportInProgress":
        return _IN_PROGRESS._replace(status="True")
    return Verdict("False", phase, f"Import DataVolume phase {phase}")


def _freshness(status: DataImportCronStatus, found: Import, target: Target) -> Verdict:
    if not found.stage.is_done:
        return _IN_PROGRESS if status.current_imports else _NO_DIGEST
    if not target.keeps_snapshots or is_ready(found.snapshot):
        return _UP_TO_DATE
    return _IN_PROGRESS._replace(message="Snapshot of imported data is progressing")


def is_time(text: str) -> bool:
    """Whether `text` is a time as the API writes it: anybody may write annotations."""
    try:
        parse_time(text)
    except ValueError:
        return False
    return True
