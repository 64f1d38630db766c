"""What the annotations of a claim say: how it is filled, and how far that is."""

from __future__ import annotations

from virtplane.api import cdi_labels as names
from virtplane.api import storage_labels
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass

BOUND = "Bound"
LOST = "Lost"
PENDING = "Pending"
TRUE = "true"
FALSE = "false"

# Phases of pods, as claims have them in their annotation; UNKNOWN stands for a pod that is yet to come.
SUCCEEDED = "Succeeded"
FAILED = "Failed"
RUNNING = "Running"
UNKNOWN = "Unknown"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim has its volume."""
    return claim.status.phase == BOUND


def is_pending(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim waits for its volume."""
    return claim.status.phase in ("", PENDING)


def has(claim: PersistentVolumeClaim, name: str) -> bool:
    """Whether the annotation is there, whatever its value."""
    return name in claim.metadata.annotations


def value(claim: PersistentVolumeClaim, name: str) -> str:
    """An annotation; empty if there is none."""
    return claim.metadata.annotations.get(name, "")


def is_true(metadata: ObjectMeta, name: str) -> bool:
    """Whether the annotation says true."""
    return metadata.annotations.get(name) == TRUE


def requested(claim: PersistentVolumeClaim) -> str:
    """The size that the claim asks for, as it is written."""
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    return str(requests.get("storage", ""))


def is_filled(claim: PersistentVolumeClaim) -> bool:
    """Whether a worker has filled the claim and nothing more is to come."""
    return value(claim, names.POD_PHASE) == SUCCEEDED and not is_multi_stage(claim)


def is_multi_stage(claim: PersistentVolumeClaim) -> bool:
    """Whether a multi-stage import into the claim has not got its last checkpoint."""
    return has(claim, names.CHECKPOINT_CURRENT)


def has_failed_for_good(claim: PersistentVolumeClaim) -> bool:
    """Whether trying again would change nothing."""
    return is_true(claim.metadata, names.IMPORT_FATAL_ERROR)


def may_have_worker(claim: PersistentVolumeClaim, honors_waiting: bool) -> bool:
    """Whether a worker pod may use the claim now: it would make a claim that waits for one choose its node.

    `honors_waiting`: claims without volume wait for their user's pod, unless they say otherwise.
    """
    return not honors_waiting or is_bound(claim) or has(claim, names.IMMEDIATE_BINDING)


def waits_for_consumer(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Whether the node of the claim is chosen by a pod that is not there yet."""
    return (
        storage_class is not None
        and storage_class.waits_for_consumer
        and not has(claim, names.IMMEDIATE_BINDING)
        and not value(claim, storage_labels.SELECTED_NODE)
    )
