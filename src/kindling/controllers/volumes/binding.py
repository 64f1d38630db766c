"""Binding claims to volumes: computes the next write. Pure.

The protocol is that of Kubernetes: the volume's ``claimRef`` is the truth; the claim's ``volumeName`` and
the annotations follow it, so that a binding may be interrupted anywhere and is finished later.
"""

from __future__ import annotations

from collections.abc import Iterable

from kindling.scheduler import volume_rules
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.claim import BIND_COMPLETED

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PRE_RESIZE = "volume.alpha.kubernetes.io/pre-resize-capacity"
"""On a volume that is larger than the file system in it: the size before."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def claim_ref(claim: JsonObject) -> JsonObject:
    """The reference to a claim in a volume."""
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta.namespace(claim),
        "name": meta.name(claim),
        "uid": meta.uid(claim),
        "resourceVersion": meta.resource_version(claim),
    }


def refers_to(volume: JsonObject, claim: JsonObject) -> bool:
    """Whether the volume is (or is reserved) for the claim."""
    reference = get_object(volume, "spec").get("claimRef") or {}
    return (reference.get("namespace"), reference.get("name")) == meta.key(claim) and (
        not reference.get("uid") or reference["uid"] == meta.uid(claim)
    )


def bound_volume(volume: JsonObject, claim: JsonObject) -> JsonObject:
    """The volume with its claimRef set to the claim."""
    updated = deep_copy(volume)
    reference = get_object(volume, "spec").get("claimRef") or {}
    if reference.get("uid") == meta.uid(claim):
        return volume
    if not reference:
        updated["metadata"]["annotations"] = {**meta.annotations(volume), BOUND_BY_CONTROLLER: "yes"}
    updated["spec"]["claimRef"] = claim_ref(claim)
    return updated


def bound_claim(claim: JsonObject, volume: JsonObject) -> JsonObject:
    """The claim with its volumeName set to the volume, and the annotation of a completed binding."""
    updated = deep_copy(claim)
    annotations = dict(meta.annotations(claim))
    if not get_str(claim, "spec", "volumeName"):
        annotations[BOUND_BY_CONTROLLER] = "yes"
    annotations[BIND_COMPLETED] = "yes"
    updated["metadata"]["annotations"] = annotations
    updated["spec"]["volumeName"] = meta.name(volume)
    return updated if updated != claim else claim


def claim_status(claim: JsonObject, volume: JsonObject | None, phase: str) -> JsonObject:
    """The status of a claim in `phase`; a bound one shows what its volume offers."""
    status = deep_copy(get_object(claim, "status"))
    status["phase"] = phase
    if volume is None:
        status.pop("accessModes", None)
        status.pop("capacity", None)
        return status
    status["accessModes"] = list(get_object(volume, "spec").get("accessModes") or [])
    capacity = get_object(volume, "spec", "capacity")
    if "capacity" not in status or get_str(claim, "status", "phase") != "Bound":
        before = meta.annotations(volume).get(PRE_RESIZE)
        status["capacity"] = {**capacity, **({"storage": before} if before else {})}
    return status


def default_class(classes: Iterable[JsonObject]) -> JsonObject | None:
    """The newest StorageClass marked as default (of equally old ones the first by name)."""
    marked = [each for each in classes if meta.annotations(each).get(DEFAULT_CLASS) == "true"]
    marked.sort(key=meta.name)
    marked.sort(key=meta.creation_timestamp, reverse=True)
    return marked[0] if marked else None


def match(claim: JsonObject, volumes: Iterable[JsonObject]) -> JsonObject | None:
    """The best volume that is free for the claim or reserved for it."""
    return volume_rules.smallest_fit(volumes, claim)


def waits_for_consumer(claim: JsonObject, storage_class: JsonObject | None) -> bool:
    """Whether the claim is only bound once a pod that uses it has a node."""
    if storage_class is None or storage_class.get("volumeBindingMode") != "WaitForFirstConsumer":
        return False
    return SELECTED_NODE not in meta.annotations(claim)


def volume_phase(volume: JsonObject, claim: JsonObject | None) -> str:
    """The phase of a volume, given the claim that its ``claimRef`` names (None where it does not exist)."""
    reference = get_object(volume, "spec").get("claimRef")
    if not reference:
        return "Available"
    if not reference.get("uid"):
        # An administrator has reserved it for a claim that does not exist yet.
        return "Available"
    if claim is None or meta.uid(claim) != reference["uid"]:
        return "Failed" if get_str(volume, "status", "phase") == "Failed" else "Released"
    if get_str(claim, "spec", "volumeName") == meta.name(volume):
        return "Bound"
    return get_str(volume, "status", "phase") or "Available"
