"""What the status of a worker pod means for its claim: pure functions from a pod to annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods import cloner, importer, upload
from virtplane.storage.cdi.controller.workers.pods import (
    ContainerStatus,
    Pod,
    Terminated,
    termination,
    used_claims,
)

COMPLETED = "Completed"
POD_RUNNING = "Pod is running"
SCRATCH_REASON = "Scratch space required"
SCRATCH_MESSAGE = "scratch space required and none found"
IMAGE_PULL_FAILED = "ImagePullFailed"
CHECKSUM_ERROR = "ChecksumError"
CREATING_SCRATCH = "CreatingScratchSpace"
CREATING_SCRATCH_MESSAGE = "Creating scratch space"
TOO_SMALL = "DataVolume too small to contain image"
OUT_OF_MEMORY = "OOMKilled"

_CHECKSUM_MISMATCH = "checksum mismatch"
_CRASH_LOOP = "CrashLoopBackOff"
_PULL_FAILED = "failed to pull image"
_PULL_FAILURES = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName"})
_TOO_SMALL = (
    "is larger than the reported available",
    "no space left on device",
    "file largest block is bigger than maxblock",
    "disk quota exceeded",
)

_PREALLOCATED = "Preallocation applied"
_OF_SOURCE = {
    names.RUNNING: names.SOURCE_RUNNING,
    names.RUNNING_MESSAGE: names.SOURCE_RUNNING_MESSAGE,
    names.RUNNING_REASON: names.SOURCE_RUNNING_REASON,
}

Annotations = dict[str, str | None]
"""Annotations to set; those of None go."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a pod's status means: annotations and labels of its claim, and whether the pod has done its part.

    `failure` is for an event on the claim; `is_done` says that the pod must go, unless it is retained.
    """

    annotations: Annotations
    labels: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    is_done: bool = False
    must_start_anew: bool = False
    """The pod goes even if it were to be retained: the next one does what it could not."""


def of_importer(claim: PersistentVolumeClaim, pod: Pod) -> Observed:
    """What the importer pod of `claim` tells."""
    status = pod.container(importer.CONTAINER)
    ended = _ended(status)
    found: Annotations = {
        names.IMPORT_POD: pod.metadata.name,
        names.POD_SCHEDULABLE: _schedulable(pod),
        **_running(claim, pod, status),
    }
    if claims.is_multi_stage(claim):
        found[names.CHECKPOINT_POD_ID] = pod.metadata.uid
    if _is_out_of_memory(status) and not claims.is_true(claim.metadata, names.IMPORT_REQUIRES_DIRECT_IO):
        direct: Annotations = {names.IMPORT_REQUIRES_DIRECT_IO: claims.TRUE}
        return Observed(found | direct, must_start_anew=True)
    said = termination(ended) if ended is not None else None
    if said is not None and said.scratch_space_required:
        scratch: Annotations = {
            names.IMPORT_REQUIRES_SCRATCH: claims.TRUE,
            names.RUNNING_MESSAGE: SCRATCH_MESSAGE,
            names.RUNNING_REASON: SCRATCH_REASON,
        }
        return Observed(found | scratch, must_start_anew=not uses_scratch(claim, pod))
    found[names.POD_PHASE] = pod.status.phase
    failure = _failure(status)
    if said is None or pod.status.phase != claims.SUCCEEDED:
        return Observed(found, failure=failure)
    if _CHECKSUM_MISMATCH in said.message:
        wrong: Annotations = {
            names.POD_PHASE: claims.FAILED,
            names.IMPORT_FATAL_ERROR: claims.TRUE,
            names.RUNNING_REASON: CHECKSUM_ERROR,
        }
        return Observed(found | wrong, failure=said.message, is_done=True)
    if said.preallocation_applied:
        found[names.PREALLOCATION] = claims.TRUE
    for key, name in (("Version", names.POD_VDDK_VERSION), ("Host", names.POD_VDDK_HOST)):
        if said.vddk.get(key):
            found[name] = said.vddk[key]
    return Observed(found, labels=said.labels, is_done=True)


def of_upload_server(claim: PersistentVolumeClaim, pod: Pod) -> Observed:
    """What the upload pod of `claim` tells."""
    status = pod.container(upload.CONTAINER)
    ended = _ended(status)
    found: Annotations = {
        names.UPLOAD_POD_NAME: pod.metadata.name,
        names.POD_READY: claims.TRUE if status is not None and status.ready else claims.FALSE,
        **_running(claim, pod, status),
    }
    said = termination(ended) if ended is not None else None
    if said is not None and said.deadline_passed:
        return Observed(found | {names.POD_PHASE: None}, must_start_anew=True)
    found[names.POD_PHASE] = pod.status.phase
    if said is not None and said.preallocation_applied:
        found[names.PREALLOCATION] = claims.TRUE
    return Observed(found, failure=_failure(status), is_done=pod.status.phase == claims.SUCCEEDED)


def of_clone_source(claim: PersistentVolumeClaim, pod: Pod) -> Observed:
    """What the pod that sends the source of a clone tells; `claim` is what it is copied into."""
    status = pod.container(cloner.CONTAINER)
    running = _running(claim, pod, status)
    found = {_OF_SOURCE.get(name, name): text for name, text in running.items()}
    ended = _ended(status)
    is_done = pod.status.phase == claims.SUCCEEDED
    if is_done and ended is not None and _PREALLOCATED in termination(ended).message:
        found[names.PREALLOCATION] = claims.TRUE
    return Observed(found, failure=_failure(status), is_done=is_done)


def uses_scratch(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the pod has scratch space."""
    scratch = cdi_names.scratch_claim(claim.metadata.name)
    return f"{claim.metadata.namespace}/{scratch}" in used_claims(pod)


def is_evicted(pod: Pod) -> bool:
    """Whether the pod was ended from outside: its worker did not fail, and another one may go on."""
    return pod.status.phase == claims.FAILED and bool(pod.status.reason)


def simplified(message: str) -> str:
    """A worker's message as users see it in conditions: a full volume has many names."""
    return TOO_SMALL if any(text in message for text in _TOO_SMALL) else message


def _running(claim: PersistentVolumeClaim, pod: Pod, status: ContainerStatus | None) -> Annotations:
    """The condition Running, and how often the worker was started again."""
    if status is None:
        return {}
    known = claims.value(claim, names.POD_RESTARTS)
    restarts = max(status.restart_count, int(known) if known.isdecimal() and len(known) < 10 else 0)
    problem = _pull_failure(pod)
    if status.state.running is not None and problem is None:
        running, reason, message = claims.TRUE, POD_RUNNING, ""
    else:
        running, (reason, message) = claims.FALSE, problem or _not_running(pod, status)
    return {
        names.POD_RESTARTS: str(restarts),
        names.RUNNING: running,
        names.RUNNING_REASON: reason,
        names.RUNNING_MESSAGE: message,
    }


def _not_running(pod: Pod, status: ContainerStatus) -> tuple[str, str]:
    """Reason and message."""
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = each.state.waiting
        if waiting is not None and waiting.reason not in ("", _CRASH_LOOP):
            return waiting.reason, waiting.message
    ended = status.state.terminated or status.last_state.terminated
    if ended is None:
        return "", ""
    message = termination(ended).message
    return IMAGE_PULL_FAILED if _PULL_FAILED in message else ended.reason, simplified(message)


def _pull_failure(pod: Pod) -> tuple[str, str] | None:
    """Reason and message where the image of a container, the worker's own or one beside it, does not come."""
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if each.state.waiting is not None and each.state.waiting.reason in _PULL_FAILURES:
            return IMAGE_PULL_FAILED, f"{_PULL_FAILED}: {each.image}"
    return None


def _ended(status: ContainerStatus | None) -> Terminated | None:
    return status.state.terminated if status is not None else None


def _failure(status: ContainerStatus | None) -> str:
    """What a worker said that ended badly."""
    if status is None:
        return ""
    ended = status.state.terminated or status.last_state.terminated
    return termination(ended).message if ended is not None and ended.exit_code else ""


def _is_out_of_memory(status: ContainerStatus | None) -> bool:
    if status is None:
        return False
    ended = status.state.terminated or status.last_state.terminated
    return ended is not None and ended.reason == OUT_OF_MEMORY and status.state.running is None


def _schedulable(pod: Pod) -> str:
    scheduled = pod.condition("PodScheduled")
    failed = scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"
    return claims.FALSE if failed and pod.status.phase == claims.PENDING else claims.TRUE
