"""The phase of a DataVolume, how it is filled, and to whom its claim belongs: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.runtime import EventKind
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones import plans
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.datavolume.flows import Flow
from virtplane.storage.cdi.controller.workers import checkpoints

PENDING = "Pending"
PVC_BOUND = "PVCBound"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
PENDING_POPULATION = "PendingPopulation"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
UNKNOWN = "Unknown"
PAUSED = "Paused"
_NOT_BOUND_YET = frozenset({PENDING, WAIT_FOR_FIRST_CONSUMER, UNKNOWN})


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to be recorded if the phase changes."""

    kind: EventKind
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What the phase of a DataVolume depends on. `prime` is the claim that is filled in place of `claim`."""

    volume: DataVolume
    flow: Flow
    claim: PersistentVolumeClaim | None = None
    prime: PersistentVolumeClaim | None = None
    storage_class: StorageClass | None = None
    uses_populator: bool = False
    honors_waiting: bool = False
    may_adopt: bool = False
    clone: Source | None = None
    """What it is a clone of."""

    @property
    def subject(self) -> str:
        """What the texts of events are about."""
        metadata = self.volume.metadata
        if self.clone is None:
            return metadata.name
        return f"{self.clone.namespace}/{self.clone.name} into {metadata.namespace}/{metadata.name}"


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase, and the event that tells of it."""

    name: str
    notice: Notice | None = None


def uses_populator(volume: DataVolume, has_driver: bool) -> bool:
    """Whether the claim is filled through a prime claim: as its annotation says, else if CSI provides it."""
    said = volume.metadata.annotations.get(names.USE_POPULATOR, "").lower()
    if said in ("true", "t", "1"):
        return True
    return False if said in ("false", "f", "0") else has_driver


def may_adopt(volume: DataVolume, gate: bool) -> bool:
    """Whether the DataVolume may take over a claim that was not made for it."""
    said = volume.metadata.annotations.get(names.ALLOW_CLAIM_ADOPTION)
    return gate if said is None else said.lower() in ("true", "t", "1")


def is_populated(situation: Situation) -> bool:
    """Whether the claim holds its content already: it says so, or it was adopted."""
    claim, volume = situation.claim, situation.volume
    if claim is None:
        return False
    if is_populated_for(claim, volume):
        return True
    made_for_it = claims.value(claim, names.CREATED_FOR_DATA_VOLUME) == volume.metadata.uid
    return not made_for_it and situation.may_adopt


def is_populated_for(claim: PersistentVolumeClaim, volume: DataVolume) -> bool:
    """Whether the claim says that it holds the content of `volume`."""
    return claims.value(claim, names.POPULATED_FOR) == volume.metadata.name


def phase(situation: Situation) -> Phase:
    """The phase that a DataVolume should have."""
    claim, volume = situation.claim, situation.volume
    if claim is None:
        told = names.PRE_POPULATED in volume.metadata.annotations
        return Phase(PENDING if told or not volume.status.phase else volume.status.phase)
    current = _current(volume, claim)
    if claim.status.phase == claims.LOST:
        return Phase(FAILED, Notice("Warning", "ErrClaimLost", f"PVC {claim.metadata.name} lost"))
    if claims.is_bound(claim):
        current = PVC_BOUND if current in _NOT_BOUND_YET or not current else current
        return Phase(SUCCEEDED) if is_populated(situation) else _filled(situation, current)
    if not claims.is_pending(claim):
        return Phase(UNKNOWN)
    if claims.has(claim, names.PERSISTENT_VOLUME_LIST):
        return Phase(PENDING)
    if is_populated(situation):
        return Phase(SUCCEEDED)
    if situation.flow.texts is None:
        return _filled(situation, current)
    return _pending(situation, claim, current)


def _current(volume: DataVolume, claim: PersistentVolumeClaim) -> str:
    """The phase so far: for a claim that came later than a success or failure, that one does not count."""
    phase_so_far = volume.status.phase
    if phase_so_far == FAILED:
        return PENDING
    if phase_so_far != SUCCEEDED:
        return phase_so_far
    ready = next((each for each in volume.status.conditions if each.type == "Ready"), None)
    since = ready.last_transition_time or "" if ready is not None else ""
    return PENDING if since and claim.metadata.created > since else phase_so_far


def _pending(situation: Situation, claim: PersistentVolumeClaim, current: str) -> Phase:
    waits = claims.waits_for_consumer(claim, situation.storage_class)
    if situation.uses_populator:
        if waits:
            return Phase(PENDING_POPULATION)
        return _filled(situation, current or PENDING)
    return Phase(WAIT_FOR_FIRST_CONSUMER if situation.honors_waiting and waits else PENDING)


def _filled(situation: Situation, current: str) -> Phase:
    """The phase by what the worker does, `current` where nothing is known of it."""
    claim, flow = situation.claim, situation.flow
    assert claim is not None
    if flow.texts is None:
        reference = claim.spec.data_source_ref
        text = f"PVC {claim.metadata.name} successfully populated by {reference.name if reference else ''}"
        return Phase(SUCCEEDED, Notice("Normal", "ExternalPopulationSucceeded", text))
    if flow.is_clone and situation.uses_populator:
        return _cloned(situation, current)
    name, worker = situation.subject, claims.value(claim, names.POD_PHASE)
    holder = (situation.prime or claim) if situation.uses_populator else claim
    if worker == claims.SUCCEEDED:
        return _succeeded(situation, claim, holder, current)
    if not claims.has(holder, flow.marker) or not claims.is_bound(holder):
        return Phase(current)
    texts = flow.texts
    if worker == claims.PENDING:
        return Phase(flow.scheduled_phase, _told("Normal", texts.scheduled, name))
    if worker == claims.RUNNING:
        if flow.waits_for_readiness and not claims.is_true(claim.metadata, names.POD_READY):
            return Phase(flow.scheduled_phase)
        return Phase(flow.running_phase, _told("Normal", texts.running, name))
    if worker == claims.FAILED:
        notice = _told("Warning", texts.failed, name)
        return Phase(FAILED if claims.has_failed_for_good(claim) else flow.scheduled_phase, notice)
    return Phase(flow.scheduled_phase)


def _succeeded(
    situation: Situation, claim: PersistentVolumeClaim, holder: PersistentVolumeClaim, current: str
) -> Phase:
    """The worker has done its part. There may be more stages, and the volume may not be the claim's yet."""
    texts = situation.flow.texts
    assert texts is not None
    if checkpoints.is_paused(holder):
        text = f"Multistage import into PVC {claim.metadata.name} is paused"
        return Phase(PAUSED, Notice("Normal", "ImportPaused", text))
    if claims.is_multi_stage(holder) or not claims.is_bound(claim):
        return Phase(current)
    return Phase(SUCCEEDED, _told("Normal", texts.succeeded, situation.subject))


def _cloned(situation: Situation, current: str) -> Phase:
    """The phase by that of the clone, which the claim names."""
    claim, clone, texts = situation.claim, situation.clone, situation.flow.texts
    assert claim is not None and clone is not None and texts is not None
    said, source = claims.value(claim, names.CLONE_PHASE), f"{clone.namespace}/{clone.name}"
    volume = f"{situation.volume.metadata.namespace}/{situation.volume.metadata.name}"
    if said in ("", plans.PENDING):
        return Phase(situation.flow.scheduled_phase, _told("Normal", texts.scheduled, situation.subject))
    if said == plans.SUCCEEDED:
        if not claims.is_bound(claim):
            return Phase(current)
        return Phase(SUCCEEDED, _told("Normal", texts.succeeded, situation.subject))
    if said == plans.HOST_CLONE:
        return Phase(situation.flow.running_phase, _told("Normal", texts.running, situation.subject))
    phases = {
        plans.CSI_PHASE: ("CSICloneInProgress", f"CSI Volume clone in progress (for pvc {source})"),
        plans.SNAPSHOT_PHASE: (
            "SnapshotForSmartCloneInProgress",
            f"Creating snapshot for smart-clone is in progress (for pvc {source})",
        ),
        plans.SNAPSHOT_CLONE: (
            "CloneFromSnapshotSourceInProgress",
            f"Creating PVC from snapshot source is in progress (for {clone.kind} {source})",
        ),
        plans.PREPARATION: (
            "PrepClaimInProgress",
            f"Prepping PersistentVolumeClaim for DataVolume {volume}",
        ),
        plans.REBIND: ("RebindInProgress", f"Rebinding PersistentVolumeClaim for DataVolume {volume}"),
    }
    if said not in phases:
        return Phase(current)  # an error is told by the condition Running
    name, text = phases[said]
    return Phase(name, Notice("Normal", name, text))


def _told(kind: EventKind, text: tuple[str, str], name: str) -> Notice:
    return Notice(kind, text[0], text[1].format(name))


def progress(situation: Situation, wanted: Phase, known: str | None) -> str:
    """How far the content is, as users see it; `known` is what the worker says."""
    before, claim = situation.volume.status.progress, situation.claim
    if claim is None:
        return before
    if situation.flow.has_progress:
        is_new = wanted.name in (SUCCEEDED, PAUSED) and wanted.notice is not None
        if is_new:
            return "100.0%"
        said = known or claims.value(claim, names.POPULATOR_PROGRESS)
        if said and wanted.name != SUCCEEDED:
            return said
    return before or "N/A"
