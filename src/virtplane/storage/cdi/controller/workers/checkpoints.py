"""The stages of a multi-stage import, as annotations of the claim that is filled: pure functions.

A stage is the pod of one checkpoint. When it has succeeded, its checkpoint is marked as copied and the next
one begins; when there is none, the import is paused until its user names one more, or the last was the final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeCheckpoint
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.workers.observed import Annotations


@dataclass(frozen=True, slots=True)
class Stages:
    """The checkpoints that the user has named so far, and whether the last of them is the final one."""

    checkpoints: Sequence[DataVolumeCheckpoint] = ()
    has_final: bool = False


def is_paused(claim: PersistentVolumeClaim) -> bool:
    """Whether the import waits for its user to name the next checkpoint."""
    current = claims.value(claim, names.CHECKPOINT_CURRENT)
    copied = claims.has(claim, names.CHECKPOINT_COPIED_PREFIX + current)
    return bool(current) and copied and claims.value(claim, names.POD_PHASE) == claims.SUCCEEDED


def next_stage(claim: PersistentVolumeClaim, stages: Stages) -> Annotations:
    """The annotations that begin the next stage, or end the import; none while nothing is to change."""
    if not stages.checkpoints or claims.has(claim, names.CHECKPOINT_DONE):
        return {}
    if not claims.is_multi_stage(claim):
        return _begun(_first_left(claim, stages, ()), stages)
    if claims.value(claim, names.POD_PHASE) != claims.SUCCEEDED:
        return {}
    current = claims.value(claim, names.CHECKPOINT_CURRENT)
    if claims.value(claim, names.CHECKPOINT_FINAL) == claims.TRUE:
        return _ended(claim)
    key = names.CHECKPOINT_COPIED_PREFIX + current
    copied: Annotations = {}
    if not claims.has(claim, key):
        copied[key] = claims.value(claim, names.CHECKPOINT_POD_ID)
    begun = _begun(_first_left(claim, stages, (current,)), stages)
    if begun:
        begun |= {names.POD_PHASE: claims.UNKNOWN, names.IMPORT_POD: None}
    return copied | begun


def _first_left(
    claim: PersistentVolumeClaim, stages: Stages, copied: Sequence[str]
) -> DataVolumeCheckpoint | None:
    for checkpoint in stages.checkpoints:
        is_copied = claims.has(claim, names.CHECKPOINT_COPIED_PREFIX + checkpoint.current)
        if not is_copied and checkpoint.current not in copied:
            return checkpoint
    return None


def _begun(checkpoint: DataVolumeCheckpoint | None, stages: Stages) -> Annotations:
    if checkpoint is None:
        return {}
    is_final = stages.has_final and checkpoint == stages.checkpoints[-1]
    return {
        names.CHECKPOINT_CURRENT: checkpoint.current,
        names.CHECKPOINT_PREVIOUS: checkpoint.previous,
        names.CHECKPOINT_FINAL: claims.TRUE if is_final else claims.FALSE,
    }


def _ended(claim: PersistentVolumeClaim) -> Annotations:
    """All of it goes, and what stays says that nothing more is to come."""
    of_stages = (
        names.CHECKPOINT_CURRENT,
        names.CHECKPOINT_PREVIOUS,
        names.CHECKPOINT_FINAL,
        names.CHECKPOINT_POD_ID,
    )
    gone = [
        name
        for name in claim.metadata.annotations
        if name in of_stages or name.startswith(names.CHECKPOINT_COPIED_PREFIX)
    ]
    return dict.fromkeys(gone) | {names.CHECKPOINT_DONE: claims.TRUE}
