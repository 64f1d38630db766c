"""The pod that reads the virtual size of the disk image in a claim."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import controller_reference
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.pods.worker import Workers

CONTAINER = "size-detection-volume"
_COMMAND = "/usr/bin/cdi-image-size-detection"
_IMAGE = "/data/disk.img"


def size_detection_pod(workers: Workers, volume: DataVolume, source: PersistentVolumeClaim) -> JsonObject:
    """The pod, beside `source`; it goes with `volume` where that is in the same namespace."""
    container = worker.container(
        workers,
        CONTAINER,
        workers.importer_image,
        command=workers.commands.get(CONTAINER, [_COMMAND]),
        args=["-image-path", _IMAGE],
        terminationMessagePolicy="File",
        volumeMounts=[{"name": worker.DATA_VOLUME, "mountPath": worker.DATA_PATH}],
    )
    metadata: JsonObject = {"labels": {"app": names.APP, names.COMPONENT: names.IMPORTER}}
    own: dict[str, str] = {}
    if source.metadata.namespace == volume.metadata.namespace:
        metadata["ownerReferences"] = [encode(controller_reference(volume, resources.DATA_VOLUMES))]
    else:
        own = ownership(volume)
    metadata["annotations"] = worker.pod_annotations(source, own)
    spec: JsonObject = {
        "containers": [container],
        "enableServiceLinks": True,
        "volumes": [worker.claim_volume(worker.DATA_VOLUME, source.metadata.name)],
    }
    name = cdi_names.size_detection_pod(source.metadata.uid)
    made = worker.pod(workers, source, name, metadata, spec)
    made["spec"].pop("nodeName", None)
    return made


def ownership(volume: DataVolume) -> dict[str, str]:
    """The annotations of what belongs to a DataVolume in another namespace: it cannot be its owner there."""
    metadata = volume.metadata
    return {
        names.OWNED_BY_DATA_VOLUME: f"{metadata.namespace}/{metadata.name}",
        names.OWNER_UID: metadata.uid,
    }
