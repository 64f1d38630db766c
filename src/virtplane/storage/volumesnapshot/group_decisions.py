"""What groups of snapshots, their contents and the snapshots in them become."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from kubecore.json import JsonObject
from kubecore.objects.selectors import LabelSelector, SelectorError, from_label_selector_object
from kubecore.objects.structs import encode
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, SecretReference
from virtplane.api.volumegroupsnapshot_v1 import (
    VolumeGroupSnapshot,
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
    VolumeSnapshotInfo,
)
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.storage.csi import parameters
from virtplane.storage.volumesnapshot.decisions import Unfit


def key_text(group: VolumeGroupSnapshot) -> str:
    """Namespace and name, as messages have them."""
    return f"{group.metadata.namespace}/{group.metadata.name}"


def content_name(group: VolumeGroupSnapshot) -> str:
    """The name of the content of a group that is to be taken."""
    return f"groupsnapcontent-{group.metadata.uid}"


def member_names(group: VolumeGroupSnapshot, volume_handle: str) -> tuple[str, str]:
    """The names of the snapshot of one volume of the group, and of its content."""
    digest = hashlib.sha256((group.metadata.uid + volume_handle).encode()).hexdigest()
    return f"snapshot-{digest}", f"snapcontent-{digest}"


def is_ready(group: VolumeGroupSnapshot) -> bool:
    """Whether volumes can be made of all snapshots of the group."""
    return bool(group.status.ready_to_use)


def is_bound_to(content: VolumeGroupSnapshotContent, group: VolumeGroupSnapshot) -> bool:
    """Whether the content names that very group."""
    reference, metadata = content.spec.volume_group_snapshot_ref, group.metadata
    wanted = (metadata.name, metadata.namespace, metadata.uid)
    return (reference.name, reference.namespace, reference.uid) == wanted


def is_member_of(snapshot: VolumeSnapshot, group: VolumeGroupSnapshot) -> bool:
    """Whether the snapshot belongs to that very group."""
    return any(owner.uid == group.metadata.uid for owner in snapshot.metadata.owner_references)


def check_source(group: VolumeGroupSnapshot) -> None:
    """Raises Unfit where the group names no source, or two."""
    source = group.spec.source
    if (source.selector is None) == (source.volume_group_snapshot_content_name is None):
        raise Unfit(
            "GroupSnapshotValidationError",
            "Exactly one of Selector and VolumeGroupSnapshotContentName should be specified",
        )


def selector_of(group: VolumeGroupSnapshot) -> LabelSelector:
    """Which claims the group is taken of. Raises Unfit."""
    selector = group.spec.source.selector
    try:
        return from_label_selector_object(encode(selector) if selector is not None else None)
    except SelectorError as error:
        raise Unfit("GroupSnapshotValidationError", f"the selector makes no sense: {error}") from error


def check_content(group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent) -> None:
    """Raises Unfit where the content is another group's, or of the other kind."""
    source, name = content.spec.source, content.metadata.name
    reference, metadata = content.spec.volume_group_snapshot_ref, group.metadata
    is_given = group.spec.source.volume_group_snapshot_content_name is not None
    text = ""
    if is_given and source.group_snapshot_handles is None:
        text = "VolumeGroupSnapshotContent is dynamically provisioned while expecting a pre-provisioned one"
    if not is_given and source.group_snapshot_handles is not None:
        kind = "pre-provisioned while expecting a dynamically provisioned one"
        text = f"VolumeGroupSnapshotContent {name} is {kind}"
    if text:
        raise Unfit("GroupSnapshotContentMismatch", text)
    is_same = (reference.name, reference.namespace) == (metadata.name, metadata.namespace)
    uids = ("", metadata.uid) if is_given else (metadata.uid,)
    if not is_same or (reference.uid or "") not in uids:
        text = f"VolumeGroupSnapshotContent [{name}] is bound to a different group snapshot"
        raise Unfit("GroupSnapshotContentMisbound", text)


def default_class(driver: str, classes: Iterable[VolumeGroupSnapshotClass]) -> VolumeGroupSnapshotClass:
    """The class of groups that name none, of volumes of `driver`. Raises Unfit."""
    default = names.DEFAULT_GROUP_SNAPSHOT_CLASS
    found = [
        each for each in classes if each.driver == driver and each.metadata.annotations.get(default) == "true"
    ]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} default snapshot classes were found"
    raise no_default(problem if found else "cannot find default group snapshot class")


def no_default(problem: object) -> Unfit:
    """A group without class gets none."""
    text = f"Failed to set default group snapshot class with error {problem}"
    return Unfit("SetDefaultGroupSnapshotClassFailed", text)


def secret_tokens(group: VolumeGroupSnapshot) -> tuple[dict[str, str], dict[str, str]]:
    """What names of secrets may hold, and their namespaces."""
    namespaces = {
        "volumegroupsnapshotcontent.name": content_name(group),
        "volumegroupsnapshot.namespace": group.metadata.namespace,
    }
    return {**namespaces, "volumegroupsnapshot.name": group.metadata.name}, namespaces


def secret_of(group: VolumeGroupSnapshot, found: VolumeGroupSnapshotClass) -> SecretReference | None:
    """The secret for taking and deleting the group. Raises Problem."""
    keys = parameters.GROUP_SNAPSHOTTER
    return parameters.secret_reference(keys, found.parameters, *secret_tokens(group))


def volume_handles(
    group: VolumeGroupSnapshot, found: VolumeGroupSnapshotClass, volumes: Sequence[PersistentVolume]
) -> list[str]:
    """The volumes as their driver names them. Raises Unfit for those that are another driver's."""
    handles: list[str] = []
    for volume in volumes:
        name, problem = volume.metadata.name, ""
        if volume.spec.csi is None:
            problem = f"cannot snapshot a non-CSI volume for group snapshot {key_text(group)}: {name}"
        elif volume.spec.csi.driver != found.driver:
            problem = (
                f"Volume CSI driver ({volume.spec.csi.driver}) mismatch with VolumeGroupSnapshotClass "
                f"({found.driver}) {key_text(group)}: {name}"
            )
        else:
            handles.append(volume.spec.csi.volume_handle)
        if problem:
            raise creation_failed(problem)
    return sorted(set(handles))


def creation_failed(problem: object) -> Unfit:
    """The content cannot be created."""
    text = f"failed to create group snapshot content with error {problem}"
    return Unfit("GroupSnapshotContentCreationFailed", text)


def new_content(
    group: VolumeGroupSnapshot,
    found: VolumeGroupSnapshotClass,
    handles: Sequence[str],
    secret: SecretReference | None,
    node: str,
) -> JsonObject:
    """The content for a group that is to be taken; `node` reaches the volumes, where not all do."""
    metadata: JsonObject = {"name": content_name(group), "finalizers": [names.GROUP_CONTENT_FINALIZER]}
    if secret is not None:
        metadata["annotations"] = {
            names.GROUP_SECRET_NAME: secret.name,
            names.GROUP_SECRET_NAMESPACE: secret.namespace,
        }
    if node:
        metadata["labels"] = {names.SNAPSHOT_MANAGED_BY: node}
    kind = kinds.VOLUME_GROUP_SNAPSHOT_CONTENTS
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": {
            "volumeGroupSnapshotRef": {
                **owner_of_members(group),
                "namespace": group.metadata.namespace,
                "resourceVersion": group.metadata.resource_version,
            },
            "source": {"volumeHandles": list(handles)},
            "volumeGroupSnapshotClassName": found.metadata.name,
            "deletionPolicy": found.deletion_policy,
            "driver": found.driver,
        },
    }


def owner_of_members(group: VolumeGroupSnapshot) -> JsonObject:
    """The owner reference of the snapshots in the group."""
    kind, metadata = kinds.VOLUME_GROUP_SNAPSHOTS, group.metadata
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata.name,
        "uid": metadata.uid,
    }


def status_of(group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent) -> JsonObject:
    """The group's status after what its content says. What was once said of the time stays."""
    status, said = encode(group.status), content.status
    status.setdefault("boundVolumeGroupSnapshotContentName", content.metadata.name)
    ready = said is not None and bool(said.ready_to_use)
    status["readyToUse"] = ready
    if said is None:
        return status
    if said.creation_time is not None:
        status.setdefault("creationTime", said.creation_time)
    status.pop("error", None)
    if said.error is not None and not ready:
        status["error"] = encode(said.error)
    return status


# The snapshots in a group.


def members_wanted(content: VolumeGroupSnapshotContent) -> tuple[VolumeSnapshotInfo, ...]:
    """The snapshots for which there are to be objects; those of a group that was given have their own."""
    said = content.status
    if said is None or not said.volume_group_snapshot_handle or not content.spec.source.volume_handles:
        return ()
    return said.volume_snapshot_info_list


def new_member(group: VolumeGroupSnapshot, info: VolumeSnapshotInfo, claim: str) -> JsonObject:
    """The snapshot of one volume; `claim` is the volume's, empty where there is none any more."""
    kind = kinds.VOLUME_SNAPSHOTS
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": member_names(group, info.volume_handle)[0],
            "namespace": group.metadata.namespace,
            "ownerReferences": [owner_of_members(group)],
            "finalizers": [names.SNAPSHOT_IN_GROUP_FINALIZER],
        },
        "spec": {"source": {"persistentVolumeClaimName": claim}},
    }


def new_member_content(
    snapshot: VolumeSnapshot,
    name: str,
    content: VolumeGroupSnapshotContent,
    info: VolumeSnapshotInfo,
    volume_mode: str | None,
) -> JsonObject:
    """The content of a member, which its driver is not asked for."""
    said, own = content.status, content.metadata
    handle = (said.volume_group_snapshot_handle if said is not None else None) or ""
    annotations = {names.GROUP_SNAPSHOT_HANDLE: handle}
    for ours, theirs in (
        (names.SNAPSHOT_SECRET_NAME, names.GROUP_SECRET_NAME),
        (names.SNAPSHOT_SECRET_NAMESPACE, names.GROUP_SECRET_NAMESPACE),
    ):
        if theirs in own.annotations:
            annotations[ours] = own.annotations[theirs]
    metadata: JsonObject = {"name": name, "annotations": annotations, "finalizers": [names.CONTENT_FINALIZER]}
    if names.SNAPSHOT_MANAGED_BY in own.labels:
        metadata["labels"] = {names.SNAPSHOT_MANAGED_BY: own.labels[names.SNAPSHOT_MANAGED_BY]}
    snapshots, kind = kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CONTENTS
    spec: JsonObject = {
        "volumeSnapshotRef": {
            "apiVersion": snapshots.api_version,
            "kind": snapshots.kind,
            "name": snapshot.metadata.name,
            "namespace": snapshot.metadata.namespace,
            "uid": snapshot.metadata.uid,
        },
        "source": {"volumeHandle": info.volume_handle},
        "deletionPolicy": content.spec.deletion_policy,
        "driver": content.spec.driver,
    }
    if volume_mode:
        spec["sourceVolumeMode"] = volume_mode
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def member_status(
    member: VolumeSnapshotContent, content: VolumeGroupSnapshotContent, info: VolumeSnapshotInfo
) -> JsonObject:
    """What the driver said of a member when it took the group. What was once said stays, but readiness."""
    status = encode(member.status) if member.status is not None else {}
    status.setdefault("snapshotHandle", info.snapshot_handle)
    if content.status is not None:
        status.setdefault("volumeGroupSnapshotHandle", content.status.volume_group_snapshot_handle)
    if info.creation_time is not None:
        status.setdefault("creationTime", info.creation_time)
    if info.restore_size is not None:
        status.setdefault("restoreSize", info.restore_size)
    is_group_ready = content.status is not None and bool(content.status.ready_to_use)
    status["readyToUse"] = bool(info.ready_to_use) or is_group_ready or bool(status.get("readyToUse"))
    return status


def is_given_member(member: VolumeSnapshotContent, content: VolumeGroupSnapshotContent) -> bool:
    """Whether the driver says that a snapshot which existed before belongs to the content's group."""
    said, given = member.status, content.spec.source.group_snapshot_handles
    reference, group = member.spec.volume_snapshot_ref, content.spec.volume_group_snapshot_ref
    return (
        given is not None
        and said is not None
        and said.volume_group_snapshot_handle == given.volume_group_snapshot_handle
        and member.spec.driver == content.spec.driver
        and member.spec.source.snapshot_handle is not None
        and bool(reference.uid)
        and reference.namespace == group.namespace
    )
