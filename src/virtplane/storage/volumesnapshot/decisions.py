"""What snapshots and their contents become."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.objects.structs import encode
from virtplane.api import storage_labels as names
from virtplane.api.meta_v1 import OwnerReference
from virtplane.api.resources import VOLUME_GROUP_SNAPSHOTS, VOLUME_SNAPSHOT_CONTENTS
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, SecretReference
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent

_LATEST_SECONDS = 253402300799
"""The end of the year 9999: drivers may say anything."""


class Unfit(Exception):
    """A snapshot cannot be taken, or not now. `reason` is that of the event."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def key_text(snapshot: VolumeSnapshot) -> str:
    """Namespace and name, as messages have them."""
    return f"{snapshot.metadata.namespace}/{snapshot.metadata.name}"


def content_name(snapshot: VolumeSnapshot) -> str:
    """The name of the content of a snapshot that is to be taken."""
    return f"snapcontent-{snapshot.metadata.uid}"


def content_names(snapshot: VolumeSnapshot) -> list[str]:
    """The names that the snapshot's content may have.

    A member of a group may have been taken alone before: users write owner references.
    """
    given = snapshot.spec.source.volume_snapshot_content_name
    found = given or snapshot.status.bound_volume_snapshot_content_name
    if found:
        return [found]
    own, name = content_name(snapshot), snapshot.metadata.name
    return [own] if group_owner(snapshot) is None else [own, f"snapcontent-{name.removeprefix('snapshot-')}"]


def group_owner(snapshot: VolumeSnapshot) -> OwnerReference | None:
    """The group that the snapshot says to belong to."""
    kind = VOLUME_GROUP_SNAPSHOTS
    for owner in snapshot.metadata.owner_references:
        if owner.kind == kind.kind and owner.api_version.startswith(f"{kind.group}/"):
            return owner
    return None


def is_bound_to(content: VolumeSnapshotContent, snapshot: VolumeSnapshot) -> bool:
    """Whether the content names that very snapshot."""
    reference = content.spec.volume_snapshot_ref
    metadata = snapshot.metadata
    return (reference.name, reference.namespace, reference.uid) == (
        metadata.name,
        metadata.namespace,
        metadata.uid,
    )


def kept_by_group(snapshot: VolumeSnapshot, group: str) -> str:
    """Why a member is not deleted before its group."""
    return (
        f"deletion of the individual volume snapshot {key_text(snapshot)} is not allowed as it belongs to "
        f"group snapshot {snapshot.metadata.namespace}/{group}. Deleting the group snapshot will trigger the "
        "deletion of all the individual volume snapshots that are part of the group."
    )


def is_ready(snapshot: VolumeSnapshot) -> bool:
    """Whether volumes can be made of the snapshot."""
    return bool(snapshot.status.ready_to_use)


def is_held(snapshot: VolumeSnapshot) -> bool:
    """Whether a snapshot that is being deleted waits for this controller."""
    ours = {
        names.SNAPSHOT_SOURCE_FINALIZER,
        names.SNAPSHOT_BOUND_FINALIZER,
        names.SNAPSHOT_IN_GROUP_FINALIZER,
    }
    return snapshot.metadata.is_being_deleted and not ours.isdisjoint(snapshot.metadata.finalizers)


def wanted_finalizers(snapshot: VolumeSnapshot, content: VolumeSnapshotContent | None) -> tuple[str, ...]:
    """The finalizers of a snapshot that stays."""
    wanted = [*snapshot.metadata.finalizers]
    if names.SNAPSHOT_SOURCE_FINALIZER not in wanted:
        wanted.append(names.SNAPSHOT_SOURCE_FINALIZER)
    is_bound = bool(snapshot.status.bound_volume_snapshot_content_name)
    goes_along = content is not None and content.spec.deletion_policy == "Delete"
    if is_bound and goes_along and names.SNAPSHOT_BOUND_FINALIZER not in wanted:
        wanted.append(names.SNAPSHOT_BOUND_FINALIZER)
    return tuple(wanted)


def check_source(snapshot: VolumeSnapshot) -> None:
    """Raises Unfit where the snapshot names no source, or two."""
    source = snapshot.spec.source
    if (source.persistent_volume_claim_name is None) == (source.volume_snapshot_content_name is None):
        raise Unfit(
            "SnapshotValidationError",
            "Exactly one of PersistentVolumeClaimName and VolumeSnapshotContentName should be specified",
        )


def check_content(snapshot: VolumeSnapshot, content: VolumeSnapshotContent) -> None:
    """Raises Unfit where the content is another snapshot's, or of the other kind."""
    source, name = content.spec.source, content.metadata.name
    reference, metadata = content.spec.volume_snapshot_ref, snapshot.metadata
    is_given = snapshot.spec.source.volume_snapshot_content_name is not None
    if is_given and source.snapshot_handle is None:
        raise Unfit(
            "SnapshotContentMismatch",
            "VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one",
        )
    if not is_given and source.volume_handle is None:
        raise Unfit(
            "SnapshotContentMismatch",
            f"VolumeSnapshotContent {name} is pre-provisioned while expecting a dynamically provisioned one",
        )
    is_same = (reference.name, reference.namespace) == (metadata.name, metadata.namespace)
    uids = ("", metadata.uid) if is_given else (metadata.uid,)
    if not is_same or (reference.uid or "") not in uids:
        raise Unfit(
            "SnapshotContentMisbound", f"VolumeSnapshotContent [{name}] is bound to a different snapshot"
        )


def default_class(driver: str, classes: Iterable[VolumeSnapshotClass]) -> VolumeSnapshotClass:
    """The class of snapshots that name none, of volumes of `driver`. Raises Unfit."""
    found = [
        each
        for each in classes
        if each.driver == driver and each.metadata.annotations.get(names.DEFAULT_SNAPSHOT_CLASS) == "true"
    ]
    if len(found) == 1:
        return found[0]
    problem = (
        f"{len(found)} default snapshot classes were found" if found else "cannot find default snapshot class"
    )
    text = f"Failed to set default snapshot class with error {problem}"
    raise Unfit("SetDefaultSnapshotClassFailed", text)


def is_of_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is bound to that claim."""
    reference = volume.spec.claim_ref
    if reference is None:
        return False
    metadata = claim.metadata
    same_name = (reference.name, reference.namespace) == (metadata.name, metadata.namespace)
    return same_name and reference.uid in ("", metadata.uid)


def new_content(
    snapshot: VolumeSnapshot,
    found: VolumeSnapshotClass,
    volume: PersistentVolume,
    secret: SecretReference | None,
    node: str,
) -> JsonObject:
    """The content for a snapshot that is to be taken.

    `node`: the one from which the volume can be reached, where it is not the same from all.
    """
    annotations: dict[str, str] = {}
    if secret is not None:
        annotations[names.SNAPSHOT_SECRET_NAME] = secret.name
        annotations[names.SNAPSHOT_SECRET_NAMESPACE] = secret.namespace
    metadata: JsonObject = {"name": content_name(snapshot), "finalizers": [names.CONTENT_FINALIZER]}
    if annotations:
        metadata["annotations"] = annotations
    if node:
        metadata["labels"] = {names.SNAPSHOT_MANAGED_BY: node}
    spec: JsonObject = {
        "volumeSnapshotRef": {
            "apiVersion": snapshot.api_version,
            "kind": snapshot.kind,
            "name": snapshot.metadata.name,
            "namespace": snapshot.metadata.namespace,
            "uid": snapshot.metadata.uid,
            "resourceVersion": snapshot.metadata.resource_version,
        },
        "source": {"volumeHandle": volume.spec.csi.volume_handle if volume.spec.csi else ""},
        "volumeSnapshotClassName": found.metadata.name,
        "deletionPolicy": found.deletion_policy,
        "driver": found.driver,
    }
    if volume.spec.volume_mode:
        spec["sourceVolumeMode"] = volume.spec.volume_mode
    return {
        "apiVersion": VOLUME_SNAPSHOT_CONTENTS.api_version,
        "kind": VOLUME_SNAPSHOT_CONTENTS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def status_of(snapshot: VolumeSnapshot, content: VolumeSnapshotContent) -> JsonObject:
    """The snapshot's status after what its content says. What was once said of time and size stays."""
    status, said = encode(snapshot.status), content.status
    status.setdefault("boundVolumeSnapshotContentName", content.metadata.name)
    owner = group_owner(snapshot)
    if owner is not None:
        status.setdefault("volumeGroupSnapshotName", owner.name)
    ready = said is not None and bool(said.ready_to_use)
    status["readyToUse"] = ready
    if said is None:
        return status
    if said.creation_time is not None:
        seconds = min(max(said.creation_time // 10**9, 0), _LATEST_SECONDS)
        status.setdefault("creationTime", times.format_time(datetime.fromtimestamp(seconds, UTC)))
    if said.restore_size is not None:
        size = Quantity.of(said.restore_size, BINARY_SI).canonical()
        if Quantity.parse(status.get("restoreSize") or 0).is_zero:
            status["restoreSize"] = size
    status.pop("error", None)
    if said.error is not None and not ready:
        status["error"] = encode(said.error)
    return status


def needs_claim(snapshot: VolumeSnapshot, claim: str) -> bool:
    """Whether the claim must stay until the snapshot is taken of it."""
    is_of_claim = snapshot.spec.source.persistent_volume_claim_name == claim
    # Those of a group are made after it was taken.
    return is_of_claim and not is_ready(snapshot) and group_owner(snapshot) is None
