"""Facts about launcher pods, computed from the pod alone."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

EPHEMERAL_ANNOTATION = "kubevirt.io/ephemeral-provisioning"
MIGRATION_JOB_LABEL = labels.MIGRATION_JOB_UID
_LENIENT_CONTAINERS = ("compute", "istio-proxy")
"""Containers that need only run, as their readiness speaks of the guest."""
_PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff")


def is_temporary(pod: JsonObject) -> bool:
    """Whether the pod exists only to make claims bind (WaitForFirstConsumer)."""
    return meta.annotations(pod).get(EPHEMERAL_ANNOTATION) == "true"


def is_attachment(pod: JsonObject) -> bool:
    """Whether the pod is an attachment pod, which brings hotplugged volumes to the node, or a pod for which
    such a volume's claim is bound.
    """
    return meta.labels(pod).get("kubevirt.io") == "hotplug-disk"


def is_finished(pod: JsonObject) -> bool:
    """Whether all containers of the pod have terminated."""
    return get_str(pod, "status", "phase") in ("Succeeded", "Failed")


def is_down(pod: JsonObject | None) -> bool:
    """Whether the pod is deleted, being deleted, or terminated."""
    return pod is None or meta.is_being_deleted(pod) or is_finished(pod)


def is_ready(pod: JsonObject) -> bool:
    """Whether the guest can be started: the compute container runs, and the other containers are ready."""
    if meta.is_being_deleted(pod):
        return False
    if get_str(pod, "status", "phase") != "Running":
        return False
    statuses = get_list(pod, "status", "containerStatuses")
    if not statuses:
        return False
    for status in statuses:
        if status.get("name") in _LENIENT_CONTAINERS:
            if "running" not in get_object(status, "state"):
                return False
        elif status.get("ready") is not True:
            return False
    return True


def image_failure(pod: JsonObject) -> tuple[str, str] | None:
    """Reason and message of a container whose image cannot be pulled."""
    status = get_object(pod, "status")
    for container in [*get_list(status, "initContainerStatuses"), *get_list(status, "containerStatuses")]:
        waiting = get_object(container, "state", "waiting")
        if waiting.get("reason") in _PULL_FAILURES:
            return get_str(waiting, "reason"), get_str(waiting, "message")
    return None


def compute_image(pod: JsonObject) -> str:
    """The image of the compute container."""
    for container in get_list(pod, "spec", "containers"):
        if container.get("name") == "compute":
            return get_str(container, "image")
    return ""


def node_of(pod: JsonObject) -> str:
    """The node that the pod is bound to; empty if there is none."""
    return get_str(pod, "spec", "nodeName")


def is_outdated(vmi: VirtualMachineInstance, launcher_image: str) -> bool:
    """Whether the guest runs in a launcher of another version."""
    image = vmi.status.launcher_container_image_version
    return bool(image) and bool(launcher_image) and image != launcher_image


def current_pod(vmi: VirtualMachineInstance, pods: list[JsonObject]) -> JsonObject | None:
    """The pod that runs, or is to run, the guest: on the instance's node once it has one, else the newest
    that is no migration's target."""
    launchers = [pod for pod in pods if not is_temporary(pod) and not is_attachment(pod)]
    node, state = vmi.status.node_name, vmi.status.migration_state
    if node:
        launchers = [pod for pod in launchers if node_of(pod) == node]
        migration = (state.migration_uid if state is not None else None) or ""
        others = [
            pod for pod in launchers if meta.labels(pod).get(MIGRATION_JOB_LABEL, migration) == migration
        ]
        launchers = others or launchers
    else:
        launchers = [pod for pod in launchers if MIGRATION_JOB_LABEL not in meta.labels(pod)]
    return max(launchers, key=meta.creation_timestamp, default=None)
