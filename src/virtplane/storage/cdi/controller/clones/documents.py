"""What is made on the way to a clone: claims, a snapshot, a pod. All of it is beside the source.

It is made by CDI in a namespace where the target's owner may have no rights. So of what he wrote into his
claim only that is passed on which is listed here: other annotations would have CDI run importers there, with
secrets of that namespace, and other labels would make it somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import encode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, labels, resources, storage_labels
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.storage.cdi.controller.clones.sources import CloneError
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.pods.worker import Workers
from virtplane.storage.cdi.rendering import BLOCK, with_size

_RECOMMENDED = "app.kubernetes.io/"
_PASSED_ON = (
    names.CLONE_FALLBACK_REASON,
    names.CLONE_PHASE,
    names.CLONE_TYPE,
    names.CONTENT_TYPE,
    names.CREATED_FOR_DATA_VOLUME,
    names.IMMEDIATE_BINDING,
    names.PERMISSIVE_CLONE,
    names.POD_PRIORITY_CLASS,
    names.POD_RETAIN,
    names.PREALLOCATION_REQUESTED,
    names.USE_POPULATOR,
    storage_labels.SELECTED_NODE,
)
_PASSED_ON_AT_HOME = (
    labels.NETWORKS,
    labels.DEFAULT_NETWORK,
    labels.ISTIO_INJECT,
    names.LINKERD_INJECT,
    names.POD_SERVICE_ACCOUNT,
)
"""Annotations that name what is in the target's own namespace."""
_SPEC = ("accessModes", "resources", "storageClassName", "volumeMode")
_MOUNT_PATH = "/var/run/cdi/clone/source"


def common_labels(volume_mode: str | None) -> dict[str, str]:
    """The labels of every claim that has to do with clones, the target among them."""
    alert = {} if volume_mode == BLOCK else {names.FILLING_UP_ALERT: "disabled"}
    return {"app": names.APP, **alert}


def temporary_claim(namespace: str, target: PersistentVolumeClaim) -> JsonObject:
    """The claim whose volume the target gets."""
    asked = encode(target.spec)
    spec = {name: asked[name] for name in _SPEC if name in asked}
    name = cdi_names.temporary_claim(target.metadata.uid)
    return _claim(name, namespace, target, spec, _annotations(namespace, target))


def temporary_source_claim(
    namespace: str,
    target: PersistentVolumeClaim,
    snapshot: VolumeSnapshot,
    storage_class: str,
    volume_mode: str,
) -> JsonObject:
    """The claim that is made of `snapshot`, so that pods can copy it. Raises CloneError.

    ReadWriteOnce is what all drivers can do; some give no device for reading only.
    """
    asked = encode(target.spec)
    spec: JsonObject = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": dict(get_object(asked, "resources", "requests"))},
        "storageClassName": storage_class,
        "volumeMode": volume_mode,
    }
    annotations = _annotations(namespace, target)
    annotations.pop(storage_labels.SELECTED_NODE, None)
    name = cdi_names.temporary_source_claim(target.metadata.uid)
    return restored(_claim(name, namespace, target, spec, annotations), snapshot)


def _annotations(namespace: str, target: PersistentVolumeClaim) -> dict[str, str]:
    given = target.metadata.annotations
    at_home = _PASSED_ON_AT_HOME if namespace == target.metadata.namespace else ()
    return {name: given[name] for name in (*_PASSED_ON, *at_home) if name in given}


def _claim(
    name: str,
    namespace: str,
    target: PersistentVolumeClaim,
    spec: JsonObject,
    annotations: Mapping[str, str],
) -> JsonObject:
    given = target.metadata.labels
    own = {
        names.EVENT_SOURCE: f"{target.metadata.namespace}/{target.metadata.name}",
        names.EVENT_SOURCE_KIND: PERSISTENT_VOLUME_CLAIMS.kind,
        names.POPULATOR_KIND: resources.VOLUME_CLONE_SOURCES.kind,
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {
            **{key: text for key, text in given.items() if key.startswith(_RECOMMENDED)},
            **common_labels(target.spec.volume_mode),
            **_owned_by(target),
            names.EXCLUDE_FROM_BACKUP: "true",
        },
        "annotations": {**annotations, **own},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _owned_by(target: PersistentVolumeClaim) -> dict[str, str]:
    return {names.OWNED_BY_UID: target.metadata.uid}


def restored(claim: JsonObject, snapshot: VolumeSnapshot) -> JsonObject:
    """`claim` made of `snapshot`, as large as that. Raises CloneError.

    Drivers that say 0 can make volumes of any size of it.
    """
    size = snapshot.status.restore_size
    if size is None:
        raise CloneError("snapshot has no RestoreSize")
    reference = {
        "apiGroup": resources.VOLUME_SNAPSHOTS.group,
        "kind": resources.VOLUME_SNAPSHOTS.kind,
        "name": snapshot.metadata.name,
    }
    spec: JsonObject = {**claim["spec"], "dataSourceRef": reference}
    if not Quantity.parse(size).is_zero:
        spec = with_size(spec, Quantity.parse(size))
    return {**claim, "spec": spec}


def cloned(claim: JsonObject, source: PersistentVolumeClaim) -> JsonObject:
    """`claim` made of `source` by the driver, as large as that. Raises CloneError."""
    capacity = source.status.capacity.get("storage")
    if capacity is None:
        raise CloneError("source/target size info missing")
    reference = {"kind": PERSISTENT_VOLUME_CLAIMS.kind, "name": source.metadata.name}
    spec: JsonObject = {**claim["spec"], "dataSourceRef": reference}
    return {**claim, "spec": with_size(spec, Quantity.parse(capacity))}


def copied(
    claim: JsonObject, source: str, target: PersistentVolumeClaim, *, preallocation: bool, priority: str
) -> JsonObject:
    """`claim` to be filled by pods with what is in the claim `source` of its namespace."""
    metadata = claim["metadata"]
    annotations = {
        **metadata["annotations"],
        names.CLONE_REQUEST: f"{metadata['namespace']}/{source}",
        names.IMMEDIATE_BINDING: "",
        names.OWNER_UID: target.metadata.uid,
        names.POD_RESTARTS: "0",
        names.PREALLOCATION_REQUESTED: "true" if preallocation else "false",
    }
    if priority:
        annotations[names.POD_PRIORITY_CLASS] = priority
    return {**claim, "metadata": {**metadata, "annotations": annotations}}


def temporary_snapshot(
    namespace: str, source: str, target: PersistentVolumeClaim, snapshot_class: str
) -> JsonObject:
    """The snapshot of the claim `source` that the target is made of."""
    return {
        "apiVersion": resources.VOLUME_SNAPSHOTS.api_version,
        "kind": resources.VOLUME_SNAPSHOTS.kind,
        "metadata": {
            "name": cdi_names.temporary_snapshot(target.metadata.uid),
            "namespace": namespace,
            "labels": {"app": names.APP, **_owned_by(target)},
        },
        "spec": {
            "source": {"persistentVolumeClaimName": source},
            "volumeSnapshotClassName": snapshot_class,
        },
    }


def preparation_pod(
    workers: Workers, claim: PersistentVolumeClaim, target: PersistentVolumeClaim
) -> JsonObject:
    """The pod that uses `claim` once: then it has its volume, and the file system in it has its size."""
    access: dict[str, Any] = {
        "volumeMounts": [{"name": worker.DATA_VOLUME, "mountPath": _MOUNT_PATH}],
    }
    container = worker.container(
        workers,
        "dummy",
        workers.importer_image,
        command=["/bin/bash"],
        args=["-c", "echo", "'hello cdi'"],
        **(worker.data_access(claim) if worker.is_block(claim) else access),
    )
    metadata = {
        "labels": {
            "app": names.APP,
            names.COMPONENT: names.PREPARATION,
            **_owned_by(target),
            **workers.recommended_labels,
        },
        "annotations": worker.pod_annotations(claim, {names.CREATED_BY_CONTROLLER: "yes"}),
    }
    volumes = [worker.claim_volume(worker.DATA_VOLUME, claim.metadata.name)]
    name = cdi_names.preparation_pod(target.metadata.uid)
    return worker.pod(workers, claim, name, metadata, {"containers": [container], "volumes": volumes})


def requested(claim: JsonObject) -> str:
    """The size that a claim asks for."""
    return get_str(claim, "spec", "resources", "requests", "storage")
