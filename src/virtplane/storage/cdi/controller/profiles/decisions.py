"""What a StorageProfile should be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.storage_profile import ClaimPropertySet, StorageProfile, StorageProfileStatus
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.storage_kinds import PersistentVolume, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotClass
from virtplane.storage.cdi.controller.profiles.capabilities import CAPABILITIES, Capability, key_of

NO_PROVISIONER = "kubernetes.io/no-provisioner"
RECOGNIZED = "Recognized"
COPY, SNAPSHOT, CSI_CLONE = "copy", "snapshot", "csi-clone"
PVC_FORMAT, SNAPSHOT_FORMAT = "pvc", "snapshot"

_CLONE_STRATEGY_ANNOTATION = names.PREFIX + "clone-strategy"
_DEFAULT_SNAPSHOT_CLASS = "snapshot.storage.kubernetes.io/is-default-class"
_GOOGLE = "pd.csi.storage.gke.io"
_NOTHING = Capability(())


class ProfileInvalid(Exception):
    """The profile's spec cannot be followed; its status keeps what it says."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a profile depends on. `volumes` are those of the class, and matter where nobody makes new ones."""

    storage_class: StorageClass
    snapshot_classes: tuple[VolumeSnapshotClass, ...]
    volumes: tuple[PersistentVolume, ...] = ()


def wanted_status(profile: StorageProfile, facts: Facts, now: str) -> StorageProfileStatus:
    """The status that follows from the profile's spec and the cluster. Raises ProfileInvalid."""
    found, spec = facts.storage_class, profile.spec
    snapshot_class = snapshot_class_of(spec.snapshot_class, facts)
    capability = capability_of(found)
    for each in spec.claim_property_sets:
        if not each.access_modes or not each.volume_mode:
            raise ProfileInvalid("each ClaimPropertySet must provide both volume mode and access modes")
    before = profile.status
    return StorageProfileStatus(
        claim_property_sets=spec.claim_property_sets or property_sets(capability, facts),
        clone_strategy=spec.clone_strategy or clone_strategy(found, capability, snapshot_class),
        conditions=_with_condition(before.conditions, recognition(found), now),
        data_import_cron_source_format=spec.data_import_cron_source_format
        or _cron_format(capability, snapshot_class),
        provisioner=found.provisioner,
        snapshot_class=snapshot_class or before.snapshot_class,
        storage_class=found.metadata.name,
    )


def wanted_annotations(profile: StorageProfile, facts: Facts) -> dict[str, str | None]:
    """The annotations to set (None: to remove); those that a user has set stay."""
    found, given = facts.storage_class, profile.metadata.annotations
    changes: dict[str, str | None] = {}
    minimum = capability_of(found).minimum_size
    if minimum and names.MINIMUM_CLAIM_SIZE not in given:
        changes[names.MINIMUM_CLAIM_SIZE] = minimum
    if found.provisioner == _GOOGLE and names.USE_READ_WRITE_ONCE_FOR_CRON not in given:
        changes[names.USE_READ_WRITE_ONCE_FOR_CRON] = "true"
    wanted = _image_snapshot_class(facts)
    if wanted != given.get(names.SNAPSHOT_CLASS_FOR_CRON):
        changes[names.SNAPSHOT_CLASS_FOR_CRON] = wanted
    return changes


def capability_of(found: StorageClass) -> Capability:
    """The table's row for a class; an empty one where there is none."""
    key = key_of(found.provisioner, found.parameters)
    return CAPABILITIES.get(key, _NOTHING) if key is not None else _NOTHING


def recognition(found: StorageClass) -> tuple[str, str, str]:
    """Status, reason and message of the condition ``Recognized``."""
    key = key_of(found.provisioner, found.parameters)
    if key is None:
        return "False", "UnrecognizedStorageClassParameters", "Storage class parameters are not recognized"
    if key in CAPABILITIES:
        return "True", "RecognizedProvisioner", "Provisioner is recognized"
    return "False", "UnrecognizedProvisioner", "Provisioner is not recognized"


def property_sets(capability: Capability, facts: Facts) -> tuple[ClaimPropertySet, ...]:
    """The sets of the table, or of the volumes that are there."""
    if facts.storage_class.provisioner == NO_PROVISIONER:
        return _sets_of_volumes(facts.volumes)
    return tuple(
        ClaimPropertySet(access_modes=(each.access_mode,), volume_mode=each.volume_mode)
        for each in capability.sets
    )


def clone_strategy(found: StorageClass, capability: Capability, snapshot_class: str) -> str:
    """How volumes of the class are copied, where the profile's spec does not say it."""
    annotated = found.metadata.annotations.get(_CLONE_STRATEGY_ANNOTATION)
    if annotated is not None:
        return annotated if annotated in (COPY, SNAPSHOT, CSI_CLONE) else ""
    strategy = capability.clone_strategy or (SNAPSHOT if snapshot_class else COPY)
    return COPY if strategy == SNAPSHOT and not snapshot_class else strategy


def snapshot_class_of(wanted: str | None, facts: Facts) -> str:
    """The class for snapshots of the storage class's volumes: the wanted, the default, the first by name.

    Empty where its driver has none. Raises ProfileInvalid for a wanted class that is not there or not the
    driver's.
    """
    classes = {each.metadata.name: each for each in facts.snapshot_classes}
    driver = facts.storage_class.provisioner
    if wanted:
        if wanted not in classes:
            raise ProfileInvalid(f"VolumeSnapshotClass {wanted!r} not found")
        if classes[wanted].driver == driver:
            return wanted
    return preferred(each for each in facts.snapshot_classes if each.driver == driver)


def preferred(classes: Iterable[VolumeSnapshotClass]) -> str:
    """The name of the default class among `classes`, else of the first by name; empty for none."""
    found = sorted(classes, key=lambda each: each.metadata.name)
    default = [each for each in found if each.metadata.annotations.get(_DEFAULT_SNAPSHOT_CLASS) == "true"]
    return next((each.metadata.name for each in (*default, *found)), "")


def _cron_format(capability: Capability, snapshot_class: str) -> str:
    wanted = capability.cron_format or PVC_FORMAT
    return PVC_FORMAT if wanted == SNAPSHOT_FORMAT and not snapshot_class else wanted


def _sets_of_volumes(volumes: Iterable[PersistentVolume]) -> tuple[ClaimPropertySet, ...]:
    """The modes that the volumes of a class without provisioner have, in their order, each once."""
    found: dict[tuple[str, str], None] = {}
    for volume in volumes:
        for mode in volume.spec.access_modes:
            found[(mode, volume.spec.volume_mode or "Filesystem")] = None
    return tuple(ClaimPropertySet(access_modes=(access,), volume_mode=volume) for access, volume in found)


def _image_snapshot_class(facts: Facts) -> str | None:
    if facts.storage_class.provisioner != _GOOGLE:
        return None
    images = (
        each
        for each in facts.snapshot_classes
        if each.driver == _GOOGLE and each.parameters.get("snapshot-type") == "images"
    )
    return preferred(images) or None


def _with_condition(
    before: tuple[HeartbeatCondition, ...], wanted: tuple[str, str, str], now: str
) -> tuple[HeartbeatCondition, ...]:
    status, reason, message = wanted
    old = next((each for each in before if each.type == RECOGNIZED), None)
    if old is not None and (old.status, old.reason, old.message) == wanted:
        return before
    changed = now if old is None or old.status != status else old.last_transition_time
    made = HeartbeatCondition(
        type=RECOGNIZED,
        status=status,
        reason=reason,
        message=message,
        last_heartbeat_time=now,
        last_transition_time=changed,
    )
    return (*(each for each in before if each.type != RECOGNIZED), made)
