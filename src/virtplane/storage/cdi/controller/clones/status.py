"""What a target says of its clone, in annotations: pure functions."""

from __future__ import annotations

from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones import plans
from virtplane.storage.cdi.controller.clones.strategy import Choice
from virtplane.storage.cdi.controller.progress import COMPLETE
from virtplane.storage.cdi.controller.workers.observed import COMPLETED, Annotations

RUNNING_REASON = "Populator is running"
_COPIED = (names.PREALLOCATION, names.CLONE_OF)
"""Annotations of the claim that pods fill which the target gets."""
_RUNNING = (names.RUNNING, names.RUNNING_MESSAGE, names.RUNNING_REASON)
_BOUND = (names.BOUND, names.BOUND_MESSAGE, names.BOUND_REASON)


def begun(target: PersistentVolumeClaim, choice: Choice) -> Annotations:
    """The annotations with which a clone begins."""
    found: Annotations = {names.CLONE_TYPE: choice.strategy}
    if not claims.value(target, names.CLONE_PHASE):
        found[names.CLONE_PHASE] = plans.PENDING
    if choice.reason and not claims.value(target, names.CLONE_FALLBACK_REASON):
        found[names.CLONE_FALLBACK_REASON] = choice.reason
    return found


def in_phase(
    target: PersistentVolumeClaim,
    phase: str,
    copy: PersistentVolumeClaim | None = None,
    progress: str | None = None,
) -> Annotations:
    """The annotations in a phase; `copy` is the claim that pods fill, if they do."""
    found: Annotations = {names.CLONE_PHASE: phase, names.CLONE_ERROR: None}
    if copy is not None:
        given = copy.metadata.annotations
        found |= {name: given[name] for name in _COPIED if name in given}
    if phase == plans.SUCCEEDED:
        progress = COMPLETE
    if progress:
        found[names.POPULATOR_PROGRESS] = progress
    return found | _running(target, phase, copy)


def failed(target: PersistentVolumeClaim, error: str) -> Annotations:
    """The annotations that tell of an error."""
    found: Annotations = {names.CLONE_PHASE: plans.ERROR, names.CLONE_ERROR: error}
    return found | _told(target, claims.FALSE, error, "Error")


def bound(target: PersistentVolumeClaim, message: str) -> Annotations:
    """What the target says of not being bound; `message` is the newest event of a claim made for it."""
    if claims.is_bound(target):
        return dict.fromkeys(_BOUND)
    if not message:
        return {}
    return {
        names.BOUND: claims.FALSE,
        names.BOUND_MESSAGE: message,
        names.BOUND_REASON: claims.PENDING,
    }


def _running(target: PersistentVolumeClaim, phase: str, copy: PersistentVolumeClaim | None) -> Annotations:
    if phase == plans.SUCCEEDED:
        return _told(target, claims.FALSE, "Clone Complete", COMPLETED)
    if phase == plans.PENDING:
        return _told(target, claims.FALSE, "Clone Pending", claims.PENDING)
    if copy is None or not claims.has(copy, names.RUNNING):
        return _told(target, claims.TRUE, "", RUNNING_REASON)
    running, message, reason = (claims.value(copy, name) for name in _RUNNING)
    found = _told(target, running, message, reason)
    if found and claims.has(copy, names.POD_RESTARTS):
        found[names.POD_RESTARTS] = claims.value(copy, names.POD_RESTARTS)
    return found


def _told(target: PersistentVolumeClaim, running: str, message: str, reason: str) -> Annotations:
    """The condition Running, for a DataVolume: other claims have nobody who reads it."""
    owner = target.metadata.controller
    if owner is None or owner.kind != resources.DATA_VOLUMES.kind:
        return {}
    return dict(zip(_RUNNING, (running, message, reason), strict=True))
