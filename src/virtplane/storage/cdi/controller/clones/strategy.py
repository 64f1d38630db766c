"""How a clone is made: by the driver, by a snapshot, or by pods that copy. Pure decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.objects.quantity import Quantity
from kubecore.runtime import EventKind
from virtplane.api import cdi_labels as names
from virtplane.api import storage_labels
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones.sources import CloneError

COPY, SNAPSHOT, CSI_CLONE = "copy", "snapshot", "csi-clone"
STRATEGIES = frozenset({COPY, SNAPSHOT, CSI_CLONE})
VALIDATION_FAILED = "CloneValidationFailed"
_INCOMPATIBLE_CLAIM = "ErrIncompatiblePVC"
_CLASS_SELECTED = "VolumeSnapshotClassSelected"


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told in an event on the target."""

    kind: EventKind
    reason: str
    message: str


NO_SNAPSHOT_CLASS = Notice("Warning", "NoVolumeSnapshotClass", "No compatible volumesnapshotclass found")
OTHER_PROVISIONER = Notice("Warning", "IncompatibleProvisioners", "Provisioners are incompatible")
OTHER_MODE = Notice(
    "Warning", "IncompatibleVolumeModes", "The volume modes of source and target are incompatible"
)
NO_EXPANSION = Notice("Warning", "NoVolumeExpansion", "No volume expansion is possible")
OTHER_DRIVER = Notice(
    "Warning",
    "NoProvisionerMatch",
    "The storageclass provisioner does not match the volumesnapshotcontent driver",
)
NO_POPULATOR = Notice("Warning", "NoPopulator", "In tree storage class does not support snapshot/clone")


class Refused(CloneError):
    """The clone cannot be made like this; `notices` tell of it besides the error."""

    def __init__(self, message: str, *notices: Notice) -> None:
        super().__init__(message)
        self.notices = notices


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy; `reason` says why it is not the one that the storage is best at."""

    strategy: str
    reason: str = ""
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice depends on. `override` is that of the installation."""

    target: PersistentVolumeClaim
    storage_class: StorageClass
    profiles: Mapping[str, StorageProfile]
    classes: Sequence[StorageClass] = ()
    snapshot_classes: Sequence[VolumeSnapshotClass] = ()
    override: str = ""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A claim as the source; `volumes` are those of the source and of the target, where they have one."""

    source: PersistentVolumeClaim
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)


def for_claim(facts: Facts, found: ClaimFacts) -> Choice:
    """The strategy for a claim as the source. Raises Refused."""
    _expect_room(facts, found.source)
    strategy = _wanted(facts)
    notices: tuple[Notice, ...] = ()
    if strategy == SNAPSHOT:
        chosen = snapshot_class(facts, found, found.source)
        if chosen is None:
            return _fallback(NO_SNAPSHOT_CLASS)
        notices = (chosen,)
    if strategy not in (SNAPSHOT, CSI_CLONE):
        return Choice(strategy)
    if _common_driver(facts, found, found.source) is None:
        return _fallback(OTHER_PROVISIONER, *notices)
    if not _same_mode(found.source.spec.volume_mode, facts.target):
        return _fallback(OTHER_MODE, *notices)
    capacity, asked = found.source.status.capacity.get("storage"), claims.requested(facts.target)
    if capacity is None or not asked:
        raise Refused("source/target size info missing")
    if Quantity.parse(capacity) < Quantity.parse(asked) and not facts.storage_class.allow_volume_expansion:
        return _fallback(NO_EXPANSION, *notices)
    return Choice(strategy, notices=notices)


def for_snapshot(facts: Facts, snapshot: VolumeSnapshot, content: VolumeSnapshotContent) -> Choice:
    """The strategy for a snapshot as the source. Raises Refused."""
    if facts.storage_class.provisioner != content.spec.driver:
        return _fallback(OTHER_DRIVER)
    size, asked = snapshot.status.restore_size, claims.requested(facts.target)
    if size is None:
        raise Refused("snapshot has no RestoreSize")
    is_larger = bool(asked) and Quantity.parse(size) < Quantity.parse(asked)
    if is_larger and not facts.storage_class.allow_volume_expansion:
        return _fallback(NO_EXPANSION)
    if not _same_mode(content.spec.source_volume_mode, facts.target):
        return _fallback(OTHER_MODE)
    return Choice(SNAPSHOT)


def _fallback(reason: Notice, *notices: Notice) -> Choice:
    return Choice(COPY, reason.message, (*notices, reason))


def _wanted(facts: Facts) -> str:
    profile = facts.profiles.get(facts.target.spec.storage_class_name or "")
    said = profile.status.clone_strategy if profile is not None else None
    return facts.override or said or SNAPSHOT


def _expect_room(facts: Facts, source: PersistentVolumeClaim) -> None:
    """Raise Refused for a target that is smaller than the source, unless it says that this is right."""
    if claims.has(facts.target, names.PERMISSIVE_CLONE):
        return
    profile = facts.profiles.get(facts.target.spec.storage_class_name or "")
    problem = size_problem(claims.requested(source), at_least(claims.requested(facts.target), profile))
    if problem:
        raise Refused(
            problem,
            Notice("Warning", _INCOMPATIBLE_CLAIM, problem),
            Notice("Warning", VALIDATION_FAILED, "The clone doesn't meet the validation requirements"),
        )


def at_least(size: str, profile: StorageProfile | None) -> str:
    """A size that is asked for, or the smallest one of the class where that is more."""
    if not size:
        return size
    return str(rendering.at_least_minimum(Quantity.parse(size), profile))


def size_problem(source: str | int, target: str | int) -> str:
    """Why a target of this size cannot be a clone; empty where it can."""
    if source == "" or target == "":
        return "source/target missing storage resource requests"
    needed, given = Quantity.parse(source).value, Quantity.parse(target).value
    if needed <= given:
        return ""
    return f"target resources requests storage size is smaller than the source {given} < {needed}"


def _same_mode(mode: str | None, target: PersistentVolumeClaim) -> bool:
    return (mode or rendering.FILESYSTEM) == rendering.volume_mode(target.spec)


def snapshot_class(facts: Facts, found: ClaimFacts, *others: PersistentVolumeClaim) -> Notice | None:
    """The choice of a VolumeSnapshotClass for the target and `others`; None where no class is right.

    The name is the last word of the message: that of the profiles where they agree, else the default class
    of the driver, else its first by name. Raises Refused.
    """
    driver = _common_driver(facts, found, *others)
    if driver is None:
        return None
    agreed = {_profile_snapshot_class(facts, each) for each in (*others, facts.target)}
    mine = {each.metadata.name: each for each in facts.snapshot_classes if each.driver == driver}
    if len(agreed) == 1 and (name := agreed.pop()):
        if name not in mine:
            return None
        return _selected("VolumeSnapshotClass selected according to StorageProfile", name)
    for name in sorted(mine):
        if mine[name].metadata.annotations.get(storage_labels.DEFAULT_SNAPSHOT_CLASS) == "true":
            return _selected("Default VolumeSnapshotClass selected", name)
    return _selected("First VolumeSnapshotClass selected", min(mine)) if mine else None


def _selected(text: str, name: str) -> Notice:
    return Notice("Normal", _CLASS_SELECTED, f"{text} {name}")


def selected_name(chosen: Notice) -> str:
    """The VolumeSnapshotClass that `snapshot_class` chose."""
    return chosen.message.rpartition(" ")[2]


def _profile_snapshot_class(facts: Facts, claim: PersistentVolumeClaim) -> str:
    storage = rendering.Storage(tuple(facts.classes))
    found = rendering.storage_class(storage, claim.spec.storage_class_name, rendering.ARCHIVE)
    profile = facts.profiles.get(found.metadata.name) if found is not None else None
    return (profile.status.snapshot_class or "") if profile is not None else ""


def _common_driver(facts: Facts, found: ClaimFacts, *others: PersistentVolumeClaim) -> str | None:
    """The driver of the target's volumes and of those of `others`; None where they differ."""
    drivers = {_driver(facts, found, each) for each in (*others, facts.target)}
    return drivers.pop() if len(drivers) == 1 else None


def _driver(facts: Facts, found: ClaimFacts, claim: PersistentVolumeClaim) -> str | None:
    volume = found.volumes.get(claim.spec.volume_name or "")
    if volume is not None and volume.spec.claim_ref is not None:
        reference = volume.spec.claim_ref
        if (reference.namespace, reference.name) != (claim.metadata.namespace, claim.metadata.name):
            raise Refused("pvc does not match volume claim ref")
        if volume.spec.csi is not None:
            return volume.spec.csi.driver
    name = claim.spec.storage_class_name
    own = next((each for each in facts.classes if each.metadata.name == name), None)
    return own.provisioner if own is not None else None
