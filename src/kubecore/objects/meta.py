"""Reading and shaping the metadata that every API object carries, and its status conditions."""

# No postponed evaluation here: it would bind the name of the function `annotations`.
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import times
from kubecore.resources import ResourceType

FOREGROUND_DELETION: Final = "foregroundDeletion"
ORPHAN_DEPENDENTS: Final = "orphan"


def metadata(document: Mapping[str, Any]) -> JsonObject:
    """``metadata`` for reading (a new empty object where there is none)."""
    return get_object(document, "metadata")


def ensure_metadata(document: JsonObject) -> JsonObject:
    """``metadata`` for writing; created where there is none."""
    found = document.get("metadata")
    if not isinstance(found, dict):
        found = document["metadata"] = {}
    return found


def name(document: Mapping[str, Any]) -> str:
    """``metadata.name``, or empty."""
    return get_str(document, "metadata", "name")


def namespace(document: Mapping[str, Any]) -> str:
    """``metadata.namespace``; empty for objects outside namespaces."""
    return get_str(document, "metadata", "namespace")


def key(document: Mapping[str, Any]) -> tuple[str, str]:
    """(namespace, name): how caches and work queues identify an object of one kind."""
    found = get_object(document, "metadata")
    return str(found.get("namespace") or ""), str(found.get("name") or "")


def uid(document: Mapping[str, Any]) -> str:
    """``metadata.uid``, or empty."""
    return get_str(document, "metadata", "uid")


def generation(document: Mapping[str, Any]) -> int:
    """``metadata.generation``, or 0."""
    found = get_object(document, "metadata").get("generation")
    return found if isinstance(found, int) else 0


def resource_version(document: Mapping[str, Any]) -> str:
    """``metadata.resourceVersion``, or empty."""
    return get_str(document, "metadata", "resourceVersion")


def labels(document: Mapping[str, Any]) -> dict[str, str]:
    """``metadata.labels`` for reading."""
    return get_object(document, "metadata", "labels")


def annotations(document: Mapping[str, Any]) -> dict[str, str]:
    """``metadata.annotations`` for reading."""
    return get_object(document, "metadata", "annotations")


def set_label(document: JsonObject, label: str, value: str | None) -> None:
    """Set a label, or remove it (None)."""
    _set_entry(document, "labels", label, value)


def set_annotation(document: JsonObject, annotation: str, value: str | None) -> None:
    """Set an annotation, or remove it (None)."""
    _set_entry(document, "annotations", annotation, value)


def _set_entry(document: JsonObject, field: str, entry: str, value: str | None) -> None:
    parent = ensure_metadata(document)
    entries = parent.get(field)
    if value is not None:
        if not isinstance(entries, dict):
            entries = parent[field] = {}
        entries[entry] = value
    elif isinstance(entries, dict) and entries.pop(entry, None) is not None and not entries:
        del parent[field]


def creation_timestamp(document: Mapping[str, Any]) -> str:
    """``metadata.creationTimestamp``, or empty."""
    return get_str(document, "metadata", "creationTimestamp")


def deletion_timestamp(document: Mapping[str, Any]) -> str:
    """``metadata.deletionTimestamp``, or empty."""
    return get_str(document, "metadata", "deletionTimestamp")


def is_being_deleted(document: Mapping[str, Any]) -> bool:
    """Whether the object has a deletion timestamp: it waits for its grace period or finalizers."""
    return bool(deletion_timestamp(document))


def finalizers(document: Mapping[str, Any]) -> list[str]:
    """``metadata.finalizers`` for reading."""
    return get_list(document, "metadata", "finalizers")


def has_finalizer(document: Mapping[str, Any], finalizer: str) -> bool:
    """Whether the object has `finalizer`."""
    return finalizer in finalizers(document)


def add_finalizer(document: JsonObject, finalizer: str) -> bool:
    """Add `finalizer`; False when it is there already."""
    if has_finalizer(document, finalizer):
        return False
    ensure_metadata(document).setdefault("finalizers", []).append(finalizer)
    return True


def remove_finalizer(document: JsonObject, finalizer: str) -> bool:
    """Remove `finalizer`; False when it is not there."""
    if not has_finalizer(document, finalizer):
        return False
    parent = ensure_metadata(document)
    parent["finalizers"] = [other for other in parent["finalizers"] if other != finalizer]
    if not parent["finalizers"]:
        del parent["finalizers"]
    return True


def owner_references(document: Mapping[str, Any]) -> list[JsonObject]:
    """``metadata.ownerReferences`` for reading."""
    return get_list(document, "metadata", "ownerReferences")


def controller_of(document: Mapping[str, Any]) -> JsonObject | None:
    """The owner reference of the managing controller, or None."""
    return next((owner for owner in owner_references(document) if owner.get("controller") is True), None)


def is_controlled_by(document: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether `owner` is the managing controller of the object (by uid)."""
    controller = controller_of(document)
    return controller is not None and controller.get("uid") == uid(owner)


def is_owned_by(document: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether `owner` is among the owners of the object (by uid)."""
    return any(reference.get("uid") == uid(owner) for reference in owner_references(document))


def new_owner_ref(owner: Mapping[str, Any], resource: ResourceType) -> JsonObject:
    """A plain owner reference to `owner`."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name(owner),
        "uid": uid(owner),
    }


def new_controller_ref(owner: Mapping[str, Any], resource: ResourceType) -> JsonObject:
    """A controller reference to `owner`, with ``blockOwnerDeletion``."""
    return {**new_owner_ref(owner, resource), "controller": True, "blockOwnerDeletion": True}


def conditions(document: Mapping[str, Any]) -> list[JsonObject]:
    """``status.conditions`` for reading."""
    return get_list(document, "status", "conditions")


def get_condition(document: Mapping[str, Any], type: str) -> JsonObject | None:
    """The condition `type` of the object's status, or None."""
    return find_condition(conditions(document), type)


def find_condition(found: Sequence[JsonObject], type: str) -> JsonObject | None:
    """The condition `type` in a list of conditions, or None."""
    return next((condition for condition in found if condition.get("type") == type), None)


def is_condition_true(document: Mapping[str, Any], type: str) -> bool:
    """Whether the condition `type` is ``True``."""
    condition = get_condition(document, type)
    return condition is not None and condition.get("status") == "True"


def set_condition(
    found: list[JsonObject],
    type: str,
    status: str | bool,
    reason: str = "",
    message: str = "",
    *,
    observed_generation: int | None = None,
    now: str = "",
) -> bool:
    """Set a condition in the list `found`; True when anything changed.

    ``lastTransitionTime`` moves only when the status does. `status` may be a bool. `now` is an RFC 3339
    time, by default the present.
    """
    if isinstance(status, bool):
        status = "True" if status else "False"
    wanted: JsonObject = {"type": type, "status": status}
    if observed_generation is not None:
        wanted["observedGeneration"] = observed_generation
    wanted |= {"reason": reason} if reason else {}
    wanted |= {"message": message} if message else {}
    current = find_condition(found, type)
    if current is None:
        found.append({**wanted, "lastTransitionTime": now or times.now_rfc3339()})
        return True
    transition = current.get("lastTransitionTime")
    if current.get("status") != status or not transition:
        transition = now or times.now_rfc3339()
    updated = {**current, **wanted, "lastTransitionTime": transition}
    for field, value in (("reason", reason), ("message", message)):
        if not value:
            updated.pop(field, None)
    if updated == current:
        return False
    current.clear()
    current.update(updated)
    return True


def remove_condition(found: list[JsonObject], type: str) -> bool:
    """Remove the condition `type` from the list; True when it was there."""
    count = len(found)
    found[:] = [condition for condition in found if condition.get("type") != type]
    return len(found) != count
