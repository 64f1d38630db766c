"""Attaching and detaching CSI volumes: which attachments pods need, and what keeps one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kindling.controllers import pods as pod_facts
from kindling.scheduler import csi, volume_rules
from kindling.scheduler.csi import CsiVolume
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.claim import is_bound

MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FORCE_SECONDS = 360.0
"""How long a node that is not ready keeps volumes that no pod there wants any more."""

_SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}


@dataclass(slots=True)
class Wanted:
    """An attachment that pods of a node need."""

    volume: CsiVolume
    persistent: JsonObject
    pods: list[JsonObject] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lookups:
    """How to find the objects behind a pod's volumes."""

    claim: Callable[[str, str], JsonObject | None]
    volume: Callable[[str], JsonObject | None]
    driver: Callable[[str], JsonObject | None]


def uses_volumes(pod: JsonObject) -> bool:
    """Whether the pod is on a node and may still use its volumes there."""
    if not get_str(pod, "spec", "nodeName") or pod_facts.is_finished(pod):
        return False
    return not meta.is_being_deleted(pod) or _has_running_containers(pod)


def _has_running_containers(pod: JsonObject) -> bool:
    statuses = get_list(pod, "status", "containerStatuses")
    return any("running" in get_object(status, "state") for status in statuses)


def wanted_on(node: str, pods: Iterable[JsonObject], lookups: Lookups) -> dict[str, Wanted]:
    """The attachments, by name, that the pods of a node need."""
    result: dict[str, Wanted] = {}
    for pod in filter(uses_volumes, pods):
        for persistent in _volumes_of(pod, lookups):
            volume = csi.of_volume(persistent)
            if volume is None or not csi.needs_attachment(lookups.driver(volume.driver)):
                continue
            name = volume.attachment_name(node)
            wanted = result.setdefault(name, Wanted(volume, persistent))
            if pod not in wanted.pods:
                wanted.pods.append(pod)
    return result


def _volumes_of(pod: JsonObject, lookups: Lookups) -> Iterable[JsonObject]:
    for claim_name, is_own in volume_rules.claims_of(pod):
        claim = lookups.claim(meta.namespace(pod), claim_name)
        if claim is None or not is_bound(claim):
            continue
        if is_own and not meta.is_controlled_by(claim, pod):
            continue  # a claim of another owner that only has the name
        persistent = lookups.volume(get_str(claim, "spec", "volumeName"))
        if persistent is None:
            continue
        if get_str(persistent, "spec", "claimRef", "uid") == meta.uid(claim):
            yield persistent


def is_shareable(persistent: JsonObject) -> bool:
    """Whether a volume may be attached to several nodes at once. Without access modes that is not known."""
    modes = get_list(persistent, "spec", "accessModes")
    return not modes or not _SHARED_MODES.isdisjoint(modes)


def multi_attach_text(pod: JsonObject, others: Iterable[JsonObject]) -> str:
    """Why a pod's volume cannot be attached, given the pods that use it on other nodes."""
    listed = list(others)
    near = [meta.name(other) for other in listed if meta.namespace(other) == meta.namespace(pod)]
    far = len(listed) - len(near)
    if not listed:
        return "Volume is already exclusively attached to one node and can't be attached to another"
    parts = [", ".join(near)] if near else []
    if far:
        parts.append(f"{far} pod(s) in different namespaces")
    return f"Volume is already used by {'pod(s) ' if near else ''}{' and '.join(parts)}"


def is_managed(node: JsonObject) -> bool:
    """Whether volumes of the node are attached by this controller and not by the node itself."""
    return meta.annotations(node).get(MANAGED) == "true"


def is_in_use(node: JsonObject, attachment: str) -> bool:
    """Whether the node reports the volume of an attachment in ``volumesInUse``."""
    names = get_object(node, "status").get("volumesInUse") or []
    return any(is_named(node, str(name), attachment) for name in names)


def is_named(node: JsonObject, unique_name: str, attachment: str) -> bool:
    """Whether a volume's unique name and a node belong to an attachment."""
    volume = csi.of_unique_name(unique_name)
    return volume is not None and volume.attachment_name(meta.name(node)) == attachment


def may_force(node: JsonObject | None, seconds: float) -> bool:
    """Whether a volume that nobody wants on a node is detached although the node reports it in use (None:
    the node is gone), `seconds` after it was last wanted.
    """
    if node is None:
        return seconds >= FORCE_SECONDS
    if any(taint.get("key") == OUT_OF_SERVICE for taint in get_list(node, "spec", "taints")):
        return True
    return not meta.is_condition_true(node, "Ready") and seconds >= FORCE_SECONDS


def attached_with(node: JsonObject, attachment: str, volume: CsiVolume | None) -> list[JsonObject]:
    """The node's ``volumesAttached`` with an attachment's volume in it, or (None) without it."""
    listed = get_list(node, "status", "volumesAttached")
    kept = [entry for entry in listed if not is_named(node, get_str(entry, "name"), attachment)]
    if volume is None:
        return kept
    if len(kept) < len(listed):
        return listed
    return [*listed, {"name": volume.unique_name, "devicePath": ""}]
