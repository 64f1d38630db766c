"""What keeps a transfer waiting, whose a volume is, and what the target looks like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kubecore.json import JsonObject, deep_copy, get_object
from virtplane.api import cdi_labels as names
from virtplane.api import storage_labels
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import ObjectReference, PersistentVolume, PersistentVolumeClaim

EMPTY, PENDING, RUNNING, COMPLETE, ERROR = "", "Pending", "Running", "Complete", "Error"
RETAIN = "Retain"
SUCCEEDED = "Succeeded"
BOUND = "Bound"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"

SOURCE, VOLUME_NAME, RECLAIM, CLAIM_NAME = "source", "pvName", "pvReclaim", "pvcName"
"""Keys of what a transfer remembers."""
_LOOK_AGAIN_SECONDS = 2.0
_FORGOTTEN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "generateName")
_FORGOTTEN_ALWAYS = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers")


@dataclass(frozen=True, slots=True)
class Step:
    """Where a transfer is: its phase, and what the condition ``Complete`` says."""

    phase: str
    message: str
    reason: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    after_seconds: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the transfer is done."""
        return self.phase == COMPLETE


class Holder(Enum):
    """Who has a volume."""

    SOURCE = "the claim that was transferred, which is gone, or nobody"
    TARGET = "the claim that it is transferred to"
    FORMER_TARGET = "an earlier claim of the target's name"
    OTHER = "another claim"


def waiting(message: str, reason: str = "") -> Step:
    """A transfer that has not begun, for want of something that brings an event."""
    return Step(PENDING, message, reason)


def waiting_for_pods(message: str) -> Step:
    """A transfer that has not begun because pods use the source: it is looked at again."""
    return Step(PENDING, message, after_seconds=_LOOK_AGAIN_SECONDS)


def target_exists(namespace: str, name: str) -> str:
    """What is said where the target's name is taken."""
    return f'ObjectTransfer target "{namespace}/{name}" already exists'


def waiting_for_target(namespace: str, name: str) -> Step:
    """A transfer that has not begun because another object has the target's name."""
    return waiting(target_exists(namespace, name))


def running(transfer: ObjectTransfer, message: str = "Running", **data: str) -> Step:
    """A transfer that goes on. `data` is remembered besides what is remembered already."""
    return Step(RUNNING, message, data={**transfer.status.data, **data}, after_seconds=_LOOK_AGAIN_SECONDS)


def failed(transfer: ObjectTransfer, message: str) -> Step:
    """A transfer that cannot go on by itself. It is tried again: somebody may have helped.

    What went wrong is the condition's reason, as with CDI, for whose clients the message is but a word.
    """
    return Step(ERROR, "Error", message, data=transfer.status.data, after_seconds=30.0)


def complete() -> Step:
    """A transfer that is done; nothing has to be remembered."""
    return Step(COMPLETE, "Transfer complete")


def target_of(transfer: ObjectTransfer) -> tuple[str, str]:
    """Namespace and name of the target."""
    source, target = transfer.spec.source, transfer.spec.target
    return target.namespace or source.namespace, target.name or source.name


def refusal(transfer: ObjectTransfer, source: ObjectMeta) -> Step | None:
    """Why the transfer may not take the source; None where it may."""
    wanted = transfer.spec.source.required_annotations
    if any(source.annotations.get(name) != value for name, value in wanted.items()):
        return waiting("Required annotation missing")
    user = source.annotations.get(names.OBJECT_TRANSFER_NAME)
    if user is not None and user != transfer.metadata.name:
        return waiting("Source in use by another transfer", user)
    return None


def claim_obstacle(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> Step | None:
    """What a claim must lose or get before it can be transferred; None for nothing."""
    if not claim.spec.volume_name or claim.status.phase != BOUND:
        return waiting("PVC not bound")
    for finalizer in (storage_labels.CLONING_PROTECTION, storage_labels.CLAIM_SOURCE_FINALIZER):
        if finalizer in claim.metadata.finalizers:
            return waiting(f"PVC has finalizer: {finalizer}")
    holder = volume.spec.claim_ref if volume is not None else None
    if holder is None or (holder.namespace, holder.name) != (claim.metadata.namespace, claim.metadata.name):
        return waiting("PV not bound")
    return None


def claim_of(data_volume: DataVolume) -> str:
    """The name of the claim of a DataVolume."""
    given = data_volume.metadata.annotations.get(names.PRE_POPULATED)
    return given or data_volume.status.claim_name or data_volume.metadata.name


def holder(volume: PersistentVolume, source: ObjectMeta, target: tuple[str, str], target_uid: str) -> Holder:
    """Who has the volume, where the claim `source` is gone. `target_uid` is that of the target claim."""
    reference = volume.spec.claim_ref
    if reference is None or _is(reference, source):
        return Holder.SOURCE
    if (reference.namespace, reference.name) != target:
        return Holder.OTHER
    return Holder.TARGET if reference.uid == target_uid else Holder.FORMER_TARGET


def _is(reference: ObjectReference, source: ObjectMeta) -> bool:
    return reference.uid == source.uid and (reference.namespace, reference.name) == (
        source.namespace,
        source.name,
    )


def remembered(document: JsonObject) -> str:
    """The source as the transfer remembers it once it is gone."""
    kept = {name: value for name, value in document.items() if name != "status"}
    kept["metadata"] = {
        name: value for name, value in get_object(document, "metadata").items() if name != "managedFields"
    }
    return json.dumps(kept, sort_keys=True)


def target_document(transfer: ObjectTransfer, source: JsonObject) -> JsonObject:
    """The target, made of the remembered source."""
    namespace, name = target_of(transfer)
    made = deep_copy(source)
    metadata = {
        key: value
        for key, value in get_object(made, "metadata").items()
        if key not in (*_FORGOTTEN, *_FORGOTTEN_ALWAYS)
    }
    if namespace != transfer.spec.source.namespace:
        metadata.pop("ownerReferences", None)
    annotations = dict(get_object(metadata, "annotations"))
    for forgotten in (names.OBJECT_TRANSFER_NAME, BIND_COMPLETED):
        annotations.pop(forgotten, None)
    metadata |= {"namespace": namespace, "name": name, "annotations": annotations}
    return {**made, "metadata": metadata}
