"""What a new volume is filled from: whether a claim or a snapshot may be its source, and its handle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.quantity import Quantity
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.storage.csi.parts import Problem

SNAPSHOT_GROUP = "snapshot.storage.k8s.io"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_UNFIT = "claim in dataSource not bound or invalid"


@dataclass(frozen=True, slots=True)
class DataSource:
    """What a claim names as its source."""

    group: str
    kind: str
    name: str
    namespace: str

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a volume's snapshot."""
        return self.kind == "VolumeSnapshot"

    @property
    def is_claim(self) -> bool:
        """Whether it is another claim."""
        return self.kind == "PersistentVolumeClaim"


def data_source(claim: PersistentVolumeClaim, *, across_namespaces: bool) -> DataSource | None:
    """The source that a claim names; None where it names none. Raises Problem."""
    own = claim.metadata.namespace
    local, reference = claim.spec.data_source, claim.spec.data_source_ref
    if local is not None:
        return DataSource(local.api_group or "", local.kind, local.name, own)
    if reference is None:
        return None
    if reference.namespace and not across_namespaces:
        raise Problem(
            "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled"
        )
    return DataSource(reference.api_group or "", reference.kind, reference.name, reference.namespace or own)


def is_granted(claim: PersistentVolumeClaim, source: DataSource, grants: Iterable[JsonObject]) -> bool:
    """Whether a ReferenceGrant in the source's namespace lets the claim use it."""
    for grant in grants:
        comes = any(
            get_str(each, "group") == ""
            and get_str(each, "kind") == "PersistentVolumeClaim"
            and get_str(each, "namespace") == claim.metadata.namespace
            for each in get_list(grant, "spec", "from")
        )
        goes = any(
            get_str(each, "group") == source.group
            and get_str(each, "kind") == source.kind
            and get_str(each, "name", default=source.name) in ("", source.name)
            for each in get_list(grant, "spec", "to")
        )
        if comes and goes:
            return True
    return False


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """The bytes that a claim asks for; 0 where it names none."""
    resources = claim.spec.resources
    return _bytes(resources.requests if resources is not None else {})


def _bytes(amounts: Mapping[str, str | int]) -> int:
    return Quantity.parse(amounts.get("storage", 0)).value


def cloned(
    claim: PersistentVolumeClaim,
    name: str,
    source: PersistentVolumeClaim | None,
    volume: PersistentVolume | None,
    storage_class: StorageClass,
) -> dict[str, Any]:
    """CSI's VolumeContentSource for a copy of the volume of `source`. Raises Problem."""
    if source is None:
        raise Problem(
            f'error getting PVC {name} (namespace "{claim.metadata.namespace}") from api server: '
            f'persistentvolumeclaim "{name}" not found'
        )
    if source.status.phase != "Bound":
        raise Problem(
            f"the PVC DataSource {name} must have a status of Bound.  Got {source.status.phase or 'none'}"
        )
    if source.metadata.is_being_deleted and names.CLONING_PROTECTION not in source.metadata.finalizers:
        raise Problem(f"the PVC DataSource {name} is currently being deleted")
    for whose, each in (("source", source), ("requested", claim)):
        if each.spec.storage_class_name is None:
            raise Problem(f"the {whose} PVC ({each.metadata.name}) storageclass cannot be empty")
    wanted, present = requested_bytes(claim), requested_bytes(source)
    # The source may have grown since the copy was begun, whose outcome must become known.
    is_begun = names.VOLUME_BEING_CREATED in claim.metadata.finalizers
    if wanted < present and not is_begun:
        raise Problem(
            "error, new PVC request must be greater than or equal in size to the specified PVC data source,"
            f" requested {wanted} but source is {present}"
        )
    if not source.spec.volume_name:
        raise Problem(f"volume name is empty in source PVC {name}")
    if volume is None or not _belongs_to(volume, source, storage_class):
        raise Problem(_UNFIT)
    is_block = volume.spec.volume_mode == "Block", claim.block
    modes = ["Block" if each else "Filesystem" for each in is_block]
    if modes[0] != modes[1]:
        raise Problem(
            "the source PVC and destination PVCs must have the same volume mode for cloning.  "
            f"Source is {modes[0]}, but new PVC requested {modes[1]}"
        )
    assert volume.spec.csi is not None  # or it would not belong to the source
    return {"volume": {"volume_id": volume.spec.csi.volume_handle}}


def _belongs_to(volume: PersistentVolume, source: PersistentVolumeClaim, storage_class: StorageClass) -> bool:
    reference, csi = volume.spec.claim_ref, volume.spec.csi
    if csi is None or csi.driver != storage_class.provisioner or reference is None:
        return False
    return volume.status.phase == "Bound" and (reference.uid, reference.namespace, reference.name) == (
        source.metadata.uid,
        source.metadata.namespace,
        source.metadata.name,
    )


def restored(
    claim: PersistentVolumeClaim,
    snapshot: VolumeSnapshot,
    content: VolumeSnapshotContent | None,
    storage_class: StorageClass,
    *,
    keeps_mode: bool,
) -> dict[str, Any]:
    """CSI's VolumeContentSource for a volume made of a snapshot. Raises Problem."""
    name = snapshot.metadata.name
    if snapshot.metadata.is_being_deleted and names.RESTORING_PROTECTION not in snapshot.metadata.finalizers:
        raise Problem(f"snapshot {name} is being deleted")
    bound = snapshot.status.bound_volume_snapshot_content_name
    if not bound:
        raise Problem(f"snapshot {name} not bound")
    if content is None:
        raise Problem(f"error getting snapshotcontent {bound} for snapshot {name}")
    reference = content.spec.volume_snapshot_ref
    if (reference.uid, reference.namespace, reference.name) != (
        snapshot.metadata.uid,
        snapshot.metadata.namespace,
        name,
    ):
        raise Problem(f"snapshotcontent {bound} for snapshot {name} is bound to a different snapshot")
    if content.spec.driver != storage_class.provisioner:
        raise Problem(
            f"snapshotcontent {bound} for snapshot {name} is not handled by CSI driver of StorageClass "
            f"{storage_class.metadata.name}"
        )
    if not snapshot.status.ready_to_use:
        raise Problem(f"snapshot {name} is not Ready")
    handle = content.status.snapshot_handle if content.status is not None else None
    if not handle:
        raise Problem(f"snapshot handle {name} is not available")
    _check_size(claim, snapshot)
    if keeps_mode:
        _check_mode(claim, content)
    return {"snapshot": {"snapshot_id": handle}}


def _check_size(claim: PersistentVolumeClaim, snapshot: VolumeSnapshot) -> None:
    if snapshot.status.restore_size is None:
        return
    wanted, needed = requested_bytes(claim), Quantity.parse(snapshot.status.restore_size).value
    if wanted < needed:
        raise Problem(
            f"requested volume size {wanted} is less than the size {needed} for the source snapshot "
            f"{snapshot.metadata.name}"
        )


def _check_mode(claim: PersistentVolumeClaim, content: VolumeSnapshotContent) -> None:
    before, after = content.spec.source_volume_mode, claim.spec.volume_mode
    if not before or not after or before == after:
        return
    annotation = names.ALLOW_VOLUME_MODE_CHANGE
    allowed = content.metadata.annotations.get(annotation)
    if allowed in _TRUE:
        return
    refused = (
        f"requested volume {claim.metadata.namespace}/{claim.metadata.name} modifies the mode of the source "
        "volume but does not have permission to do so. "
    )
    if allowed is None:
        raise Problem(
            f"{refused}{annotation} annotation is not present on snapshotcontent {content.metadata.name}"
        )
    if allowed in _FALSE:
        raise Problem(f"{refused}{annotation} is set to false on snapshotcontent {content.metadata.name}")
    raise Problem(f"{refused}failed to convert {annotation} annotation value to boolean: {allowed[:64]!r}")


def names_snapshot(claim: PersistentVolumeClaim, namespace: str, name: str) -> bool:
    """Whether a claim is, or is to be, filled from that snapshot."""
    return _names(claim, SNAPSHOT_GROUP, "VolumeSnapshot", namespace, name)


def names_claim(claim: PersistentVolumeClaim, namespace: str, name: str) -> bool:
    """Whether a claim is, or is to be, a copy of that claim."""
    return _names(claim, "", "PersistentVolumeClaim", namespace, name)


def _names(claim: PersistentVolumeClaim, group: str, kind: str, namespace: str, name: str) -> bool:
    try:
        source = data_source(claim, across_namespaces=True)
    except Problem:
        return False
    return source is not None and (source.group or group, source.kind, source.namespace, source.name) == (
        group,
        kind,
        namespace,
        name,
    )
