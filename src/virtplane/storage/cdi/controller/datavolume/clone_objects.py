"""What is made for a DataVolume that is a clone, and found again by whom it belongs to: pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.objects import controller_reference
from virtplane.storage.cdi.controller.clones import documents
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.pods.size_detection import ownership

_PREFIX = cdi_names.clone_source("")


def clone_source(volume: DataVolume, source: Source) -> JsonObject:
    """The VolumeCloneSource that the claim of `volume` names. It is beside the source."""
    spec: JsonObject = {"source": {"kind": source.resource.kind, "name": source.name}}
    if source.resource.group:
        spec["source"]["apiGroup"] = source.resource.group
    if volume.spec.preallocation is not None:
        spec["preallocation"] = volume.spec.preallocation
    if volume.spec.priority_class_name:
        spec["priorityClassName"] = volume.spec.priority_class_name
    metadata: JsonObject = {
        "name": cdi_names.clone_source(volume.metadata.uid),
        "namespace": source.namespace,
    }
    if source.namespace == volume.metadata.namespace:
        metadata["ownerReferences"] = [encode(controller_reference(volume, resources.DATA_VOLUMES))]
    else:
        said = ownership(volume)
        metadata["annotations"] = {names.OWNED_BY_DATA_VOLUME: said[names.OWNED_BY_DATA_VOLUME]}
    kind = resources.VOLUME_CLONE_SOURCES
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def source_claim(
    volume: DataVolume, snapshot: VolumeSnapshot, spec: JsonObject, storage_class: str, volume_mode: str
) -> JsonObject:
    """The claim made of `snapshot` that pods copy, where no populator can; `spec` is that of the target."""
    claim: JsonObject = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": cdi_names.host_assisted_source_claim(volume.metadata.uid),
            "namespace": snapshot.metadata.namespace,
            "labels": {
                **documents.common_labels(volume_mode),
                names.COMPONENT: names.SNAPSHOT_FALLBACK_CLAIM,
                names.EXCLUDE_FROM_BACKUP: "true",
            },
            "annotations": ownership(volume),
        },
        "spec": {
            "accessModes": list(spec.get("accessModes", ())),
            "resources": {"requests": dict(get_object(spec, "resources", "requests"))},
            "storageClassName": storage_class,
            "volumeMode": volume_mode,
        },
    }
    return documents.restored(claim, snapshot)


def owner_uid(obj: HasMetadata) -> str:
    """The uid of the DataVolume that an object belongs to, as we made it; empty for others."""
    metadata = obj.metadata
    if metadata.name.startswith(_PREFIX):
        return metadata.name.removeprefix(_PREFIX)
    return metadata.annotations.get(names.OWNER_UID, "")


def owner_keys(obj: HasMetadata) -> Iterable[str]:
    """Index function: ``namespace/name`` of the DataVolume that an object belongs to."""
    said = obj.metadata.annotations.get(names.OWNED_BY_DATA_VOLUME, "")
    if said:
        return (said,)
    owner = obj.metadata.controller
    if owner is None or owner.kind != resources.DATA_VOLUMES.kind:
        return ()
    return (f"{obj.metadata.namespace}/{owner.name}",)
