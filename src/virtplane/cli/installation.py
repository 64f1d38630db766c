"""The progress of an installation, from the objects of the cluster (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import cdi_names
from virtplane.api.kubevirt_v1.kubevirt import KubeVirtStatus
from virtplane.api.labels import SCHEDULABLE
from virtplane.cli.terminal import CommandError
from virtplane.operators.kit.product import MANAGED_BY
from virtplane.operators.kubevirt.manifests import KUBEVIRT_NAME

FIELD_MANAGER = "virtplane-install"
"""As whom ``install`` applies objects."""
KVM_RESOURCE = "devices.kubevirt.io/kvm"
_STUCK_REASONS = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
)
_MESSAGE_CHARACTERS = 500


def is_rolled_out(deployment: JsonObject) -> bool:
    """Whether all pods of a Deployment have its current template, and old pods are gone."""
    status = get_object(deployment, "status")
    wanted = get_int(deployment, "spec", "replicas", default=1)
    seen = get_int(status, "observedGeneration") >= get_int(deployment, "metadata", "generation")
    counts = {get_int(status, key) for key in ("replicas", "updatedReplicas", "availableReplicas")}
    return seen and counts == {wanted}


def is_current(deployment: JsonObject, image: str) -> bool:
    """Whether a Deployment that is applied with the product, or kept by CDI's operator, runs `image` alone.

    The conditions of CDI say nothing of that until its new operator has looked: an upgrade to another image
    may have the version of the former one. Deployments of others are as they should be.
    """
    is_kept = meta.labels(deployment).get(MANAGED_BY) == cdi_names.OPERATOR
    if not is_kept and not is_applied_by(deployment, FIELD_MANAGER):
        return True
    containers = get_list(deployment, "spec", "template", "spec", "containers")
    return is_rolled_out(deployment) and {get_str(each, "image") for each in containers} == {image}


def is_away(node: JsonObject) -> bool:
    """Whether a node does not work at present: switched off or isolated, say."""
    ready = meta.get_condition(node, "Ready")
    return ready is not None and ready.get("status") != "True"


def is_available(kubevirt: JsonObject, wanted: Mapping[str, str], *, nodes_away: bool = False) -> bool:
    """Whether everything runs as `wanted` (keys of the operator's deployment configuration) and is available.

    At the beginning of an upgrade the conditions are still those of the former version: the observed versions
    in the status tell which version they are about. With `nodes_away`, a complete installation goes on
    progressing, because it waits for the virt-handlers of nodes that are away.
    """
    try:
        status = decode(KubeVirtStatus, get_object(kubevirt, "status"))
        observed = json.loads(status.observed_deployment_config or "{}")
    except ValueError:  # UnfitDocument is one: while definitions change, nothing is available yet
        return False
    is_observed = all(observed.get(key) == value for key, value in wanted.items())
    is_settled = (status.observed_deployment_id or "") == (status.target_deployment_id or "")
    is_current = (status.observed_generation or 0) >= get_int(kubevirt, "metadata", "generation")
    conditions = {each.type: each.status for each in status.conditions}
    is_complete = nodes_away or conditions.get("Progressing", "False") == "False"
    is_up = conditions.get("Available") == "True" and is_complete
    return status.phase == "Deployed" and is_observed and is_settled and is_current and is_up


def is_cdi_available(cdi: JsonObject) -> bool:
    """Whether everything that the CDI object asks for has the operator's version and is available."""
    status = get_object(cdi, "status")
    is_current = get_str(status, "observedVersion") == get_str(status, "targetVersion") != ""
    ready = meta.get_condition(cdi, "Available")
    progressing = meta.get_condition(cdi, "Progressing")
    return (
        is_current
        and get_str(status, "phase") == "Deployed"
        and ready is not None
        and ready.get("status") == "True"
        and (progressing is None or progressing.get("status") == "False")
    )


def stuck_containers(pods: Iterable[JsonObject]) -> dict[str, str]:
    """The containers that cannot start or keep crashing: where and why, and each one's last message."""
    found = {}
    for pod in pods:
        for container in get_list(pod, "status", "containerStatuses"):
            reason = get_str(container, "state", "waiting", "reason")
            ended = get_object(container, "lastState", "terminated")
            if get_int(ended, "exitCode") and container.get("ready") is not True:
                reason = "CrashLoopBackOff"  # also while it runs for a short time between two crashes
            if reason not in _STUCK_REASONS:
                continue
            last = get_str(ended, "message")
            text = (last or get_str(container, "state", "waiting", "message")).strip()
            node = get_str(pod, "spec", "nodeName") or "no node"
            found[f"{meta.name(pod)} on {node}: {reason}"] = text[-_MESSAGE_CHARACTERS:]
    return found


def other_installation(
    kubevirts: Iterable[JsonObject], operators: Iterable[JsonObject], namespace: str, manager: str
) -> CommandError | None:
    """The installation that prevents one in `namespace` by the field manager `manager`, if there is any."""
    for kubevirt in kubevirts:
        where, name = meta.namespace(kubevirt), meta.name(kubevirt)
        if (where, name) != (namespace, KUBEVIRT_NAME):
            return CommandError(
                "There is an installation on this cluster already.",
                f"KubeVirt {name} is in namespace {where}; a cluster has one. Nothing was changed.",
                f"Update that one, if it is virtplane: virtplane install --namespace {where}",
            )
    for operator in operators:
        where = meta.namespace(operator)
        if where != namespace:
            return CommandError(
                "There is an installation on this cluster already.",
                f"A virt-operator runs in namespace {where}. Nothing was changed.",
                f"Update that one, if it is virtplane: virtplane install --namespace {where}",
            )
        managers = {entry.get("manager") for entry in get_list(operator, "metadata", "managedFields")}
        if manager not in managers:
            return CommandError(
                "There is an operator of somebody else in this namespace.",
                f"Deployment {meta.name(operator)} in {where} was not installed by this command. "
                "Nothing was changed.",
                "Remove it in the way it was installed, then try again.",
            )
    return None


def is_applied_by(obj: JsonObject, manager: str) -> bool:
    """Whether the field manager has applied the object."""
    return manager in {entry.get("manager") for entry in get_list(obj, "metadata", "managedFields")}


def other_cdi(
    cdis: Iterable[JsonObject], operators: Iterable[JsonObject], namespace: str, manager: str
) -> str:
    """What shows a CDI that was not installed in `namespace` by the field manager `manager`; else empty."""
    for operator in operators:
        where = meta.namespace(operator)
        if where != namespace or not is_applied_by(operator, manager):
            return f"A {meta.name(operator)} of somebody else runs in namespace {where}"
    for cdi in cdis:
        if not is_applied_by(cdi, manager):
            return f"The CDI object {meta.name(cdi)} is of somebody else"
    return ""


def is_for_guests(node: JsonObject) -> bool:
    """Whether virt-handler reports the node as schedulable for guests."""
    return meta.labels(node).get(SCHEDULABLE) == "true"


def kvm_notice(nodes: Iterable[JsonObject], *, emulation: bool) -> str:
    """The notice that no node can run guests with KVM; the empty string if one can."""
    for_guests = [node for node in nodes if is_for_guests(node)]
    if any(get_object(node, "status", "allocatable").get(KVM_RESOURCE, "0") != "0" for node in for_guests):
        return ""
    if not for_guests:
        return "No node is ready for guests. See why: kubectl get nodes; virt-handler's logs"
    if emulation:
        return "No node has usable KVM: guests run under emulation, which is slow."
    return (
        "No node has usable KVM, so no guest can start. Let them run under emulation, which is slow:"
        " repeat this command with --emulation"
    )
