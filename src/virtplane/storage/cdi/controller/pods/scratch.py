"""The claim for what a worker keeps until it is whole."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, storage_labels
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.sizes import MIB, required_space, usable_space


def scratch_claim(
    claim: PersistentVolumeClaim,
    pod: JsonObject,
    storage_class: str | None,
    size_bytes: int,
    labels: dict[str, str],
) -> JsonObject:
    """The scratch claim of `pod`, which fills `claim`; it goes with the pod."""
    annotations = {}
    if names.POPULATOR_KIND in claim.metadata.annotations:
        node = claim.metadata.annotations.get(storage_labels.SELECTED_NODE)
        annotations = {storage_labels.SELECTED_NODE: node} if node else {}
    metadata: JsonObject = {
        "name": cdi_names.scratch_claim(claim.metadata.name),
        "namespace": claim.metadata.namespace,
        "labels": {"app": names.APP, names.EXCLUDE_FROM_BACKUP: "true", **labels},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = annotations
    spec: JsonObject = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": str(size_bytes)}},
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def scratch_size(claim: PersistentVolumeClaim, overhead: float, scratch_overhead: float) -> int:
    """The bytes of a scratch claim: what the target can hold, with the overhead of the scratch class."""
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    size = Quantity.parse(requests.get("storage", "0")).value
    inflated = required_space(scratch_overhead, usable_space(overhead, size))
    return -(-inflated // MIB) * MIB
