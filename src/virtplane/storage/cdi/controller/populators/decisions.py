"""What becomes of a claim that names a source: its prime claim, what is mirrored, the gift of the volume."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, storage_labels
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.workers.importer import COPIED_LABEL
from virtplane.storage.cdi.controller.workers.observed import Annotations

GROUP = "cdi.kubevirt.io"
IN_TREE = "kubernetes.io/"

_TAKEN_OVER = (names.POD_RETAIN, names.POD_PRIORITY_CLASS, names.POD_SERVICE_ACCOUNT)
"""Annotations of the target that its prime claim has too, for its pods."""
_MIRRORED = (
    names.POD_PHASE,
    names.POD_READY,
    names.POD_RESTARTS,
    names.POD_SCHEDULABLE,
    names.POD_VDDK_HOST,
    names.POD_VDDK_VERSION,
    names.RUNNING,
    names.RUNNING_MESSAGE,
    names.RUNNING_REASON,
    names.PREALLOCATION,
    names.PREALLOCATION_REQUESTED,
    names.IMPORT_FATAL_ERROR,
    names.CHECKPOINT_DONE,
)
"""Annotations of the prime claim that its target gets."""
_BOUND = (names.BOUND, names.BOUND_MESSAGE, names.BOUND_REASON)


class Start(Enum):
    """Whether a prime claim can be made."""

    READY = auto()
    NO_CLASS = auto()
    """There is no storage class yet."""
    IN_TREE = auto()
    """Nobody provides volumes of the class for prime claims."""
    NO_CONSUMER = auto()
    """The first pod that uses the claim chooses the node."""


class Rebinding(Enum):
    """Whose a volume is."""

    OF_PRIME = auto()
    OF_TARGET = auto()
    FOREIGN = auto()


def names_source(claim: PersistentVolumeClaim, kind: str) -> bool:
    """Whether the claim is to be filled from a source of `kind` in its own namespace."""
    reference = claim.spec.data_source_ref
    return (
        reference is not None
        and reference.api_group == GROUP
        and reference.kind == kind
        and not reference.namespace
    )


def start(target: PersistentVolumeClaim, storage_class: StorageClass | None) -> Start:
    """Whether the prime claim of `target` can be made."""
    if storage_class is None:
        return Start.NO_CLASS
    migrated = claims.has(target, storage_labels.MIGRATED_TO)
    if storage_class.provisioner.startswith(IN_TREE) and not migrated:
        return Start.IN_TREE
    return Start.NO_CONSUMER if claims.waits_for_consumer(target, storage_class) else Start.READY


def prime_claim(
    target: PersistentVolumeClaim, kind: str, source: Mapping[str, str], labels: Mapping[str, str]
) -> JsonObject:
    """The claim that is filled in the place of `target`; `source` are the annotations by which it is."""
    given = target.metadata.annotations
    own = {
        names.IMMEDIATE_BINDING: "",
        names.POPULATOR_KIND: kind,
        **{name: given[name] for name in _TAKEN_OVER if name in given},
        **source,
    }
    if node := given.get(storage_labels.SELECTED_NODE):
        own[storage_labels.SELECTED_NODE] = node
    metadata: JsonObject = {
        "name": cdi_names.prime_claim(target.metadata.uid),
        "namespace": target.metadata.namespace,
        "labels": {"app": names.APP, names.EXCLUDE_FROM_BACKUP: "true", **labels},
        "annotations": worker.pod_annotations(target, own),
        "ownerReferences": [worker.owner(target)],
    }
    asked = encode(target.spec)
    spec = {
        name: asked[name]
        for name in ("accessModes", "resources", "storageClassName", "volumeMode")
        if name in asked
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def mirrored(
    target: PersistentVolumeClaim, prime: PersistentVolumeClaim, message: str, progress: str | None
) -> Annotations:
    """The annotations by which `target` says how far its prime claim is.

    `message` is the newest event of the prime claim, `progress` the share that is done where it is known.
    """
    found: Annotations = {
        name: prime.metadata.annotations[name] for name in _MIRRORED if name in prime.metadata.annotations
    }
    if names.POD_PHASE not in prime.metadata.annotations:
        found[names.POD_PHASE] = None
    found[names.POPULATOR_PRIME] = prime.metadata.name
    if progress is not None:
        found[names.POPULATOR_PROGRESS] = progress
    return found | _bound(target, prime, message)


def _bound(target: PersistentVolumeClaim, prime: PersistentVolumeClaim, message: str) -> Annotations:
    if claims.is_bound(target):
        return dict.fromkeys(_BOUND)
    if claims.has(prime, names.BOUND):
        return {name: prime.metadata.annotations.get(name) for name in _BOUND}
    if not message:
        return dict.fromkeys(_BOUND)
    return {
        names.BOUND: claims.FALSE,
        names.BOUND_MESSAGE: message,
        names.BOUND_REASON: claims.PENDING,
    }


def copied_labels(prime: PersistentVolumeClaim) -> dict[str, str]:
    """The labels that what is imported brings."""
    return {name: text for name, text in prime.metadata.labels.items() if COPIED_LABEL.fullmatch(name)}


def may_be_given(prime: PersistentVolumeClaim) -> bool:
    """Whether the prime claim's volume is whole."""
    return claims.is_bound(prime) and bool(prime.spec.volume_name) and claims.is_filled(prime)


def may_get(target: PersistentVolumeClaim) -> bool:
    """Whether the target still waits for a volume."""
    return not target.metadata.is_being_deleted and not target.spec.volume_name


def owner_of(
    volume: PersistentVolume, prime: PersistentVolumeClaim, target: PersistentVolumeClaim
) -> Rebinding:
    """Whose the volume is now."""
    reference = volume.spec.claim_ref
    uid = reference.uid if reference is not None else ""
    if uid == target.metadata.uid:
        return Rebinding.OF_TARGET
    return Rebinding.OF_PRIME if uid == prime.metadata.uid else Rebinding.FOREIGN


def given(target: PersistentVolumeClaim) -> JsonObject:
    """The reference by which a volume is the target's."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": target.metadata.namespace,
        "name": target.metadata.name,
        "uid": target.metadata.uid,
        "resourceVersion": target.metadata.resource_version,
    }
