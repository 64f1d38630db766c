"""What of a pod may change after its creation, by which path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.machinery.differences import difference
from kubecore.json import JsonObject, deep_copy, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid
from kubecore.objects.fields import required as required_error

from .qos import qos_class
from .validation import validate_pod_spec

MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_CONTAINER_FIELDS = ("containers", "initContainers")


def validate_pod_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """An update of the pod itself."""
    path = FieldPath("spec")
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    yield from validate_pod_spec(path, spec)
    stop = _container_count_errors(spec, before, path)
    if stop:
        yield from stop
        return
    for field in _CONTAINER_FIELDS:
        for position, container in enumerate(get_list(spec, field)):
            if not container.get("image", "").strip():
                yield required_error(path.child(field).index(position).child("image"))
    yield from _validate_deadline(spec, before, path)
    yield from _validate_gate_removal(spec, before, path)
    if get_list(before, "tolerations") != get_list(spec, "tolerations"):
        yield from _validate_tolerations(spec, before, path)
    gated = bool(get_list(before, "schedulingGates"))
    if gated:
        yield from _validate_gated_placement(spec, before, path)
    masked = _masked(spec, before, gated=gated)
    if masked != before:
        yield forbidden(path, MUTABLE + difference(masked, before))


def _container_count_errors(spec: JsonObject, before: JsonObject, path: FieldPath) -> list[FieldError]:
    return [
        forbidden(path.child(field), "pod updates may not add or remove containers")
        for field in _CONTAINER_FIELDS
        if len(get_list(spec, field)) != len(get_list(before, field))
    ]


def _masked(spec: JsonObject, before: JsonObject, *, gated: bool) -> JsonObject:
    """The new spec with the mutable fields set to their old values."""
    masked = deep_copy(spec)
    for field in _CONTAINER_FIELDS:
        for container, known in zip(get_list(masked, field), get_list(before, field), strict=True):
            _copy(container, known, "image")
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _copy(masked, before, field)
    if (
        before.get("terminationGracePeriodSeconds", 0) < 0
        and masked.get("terminationGracePeriodSeconds") == 1
    ):
        _copy(masked, before, "terminationGracePeriodSeconds")
    if gated:
        _copy(masked, before, "nodeSelector")
        node = get_object(spec, "affinity").get("nodeAffinity")
        known = get_object(before, "affinity").get("nodeAffinity")
        if node != known:
            masked["affinity"] = {**(masked.get("affinity") or {}), "nodeAffinity": known}
            masked["affinity"] = {
                key: value for key, value in masked["affinity"].items() if value is not None
            }
            if not masked["affinity"] and "affinity" not in before:
                del masked["affinity"]
    return masked


def _copy(target: JsonObject, source: JsonObject, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _validate_deadline(spec: JsonObject, before: JsonObject, path: FieldPath) -> list[FieldError]:
    value, known = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    at = path.child("activeDeadlineSeconds")
    if known is None:
        return []
    if value is None:
        return [invalid(at, value, "must not update from a positive integer to nil value")]
    return [invalid(at, value, "must be less than or equal to previous value")] if value > known else []


def _validate_gate_removal(spec: JsonObject, before: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in get_list(before, "schedulingGates")}
    for position, gate in enumerate(get_list(spec, "schedulingGates")):
        if gate.get("name") not in known:
            at = path.child("schedulingGates").index(position).child("name")
            yield forbidden(
                at, f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            )


def _validate_tolerations(spec: JsonObject, before: JsonObject, path: FieldPath) -> list[FieldError]:
    def key(toleration: JsonObject) -> tuple[Any, ...]:
        return tuple(toleration.get(field) or "" for field in ("key", "operator", "value", "effect"))

    kept = {key(toleration) for toleration in get_list(spec, "tolerations")}
    if all(key(toleration) in kept for toleration in get_list(before, "tolerations")):
        return []
    text = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden(path.child("tolerations"), text)]


def _validate_gated_placement(spec: JsonObject, before: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    selector, known = get_object(spec, "nodeSelector"), get_object(before, "nodeSelector")
    if any(selector.get(key) != value for key, value in known.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid(path.child("nodeSelector"), selector, text)
    yield from _validate_gated_affinity(spec, before, path.child("affinity", "nodeAffinity"))


def _validate_gated_affinity(spec: JsonObject, before: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    old_terms = get_list(before, "affinity", "nodeAffinity", needed, "nodeSelectorTerms")
    new_terms = get_list(spec, "affinity", "nodeAffinity", needed, "nodeSelectorTerms")
    at = path.child(needed, "nodeSelectorTerms")
    if not old_terms:
        return
    if len(old_terms) != len(new_terms):
        yield invalid(at, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for position, (term, known) in enumerate(zip(new_terms, old_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            have, had = get_list(term, field), get_list(known, field)
            if have[: len(had)] != had:
                text = "only additions are allowed (no mutations or deletions)"
                yield invalid(at.index(position), term, text)


def validate_ephemeral_containers_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Debugging containers are added, never changed or removed."""
    path = FieldPath("spec")
    yield from validate_pod_spec(path, get_object(new, "spec"))
    given = {item.get("name"): item for item in get_list(new, "spec", "ephemeralContainers")}
    at = path.child("ephemeralContainers")
    for known in get_list(old, "spec", "ephemeralContainers"):
        name = known.get("name", "")
        if name not in given:
            yield forbidden(at, f'existing ephemeral containers "{name}" may not be removed\n')
        elif given[name] != known:
            text = (
                f'existing ephemeral containers "{name}" may not be changed\n{difference(given[name], known)}'
            )
            yield forbidden(at, text)


def validate_resize(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """cpu and memory change, the quality-of-service class does not."""
    path = FieldPath("spec")
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    yield from validate_pod_spec(path, spec)
    if qos_class(spec) != qos_class(before):
        yield invalid(path, qos_class(before), "Pod QOS Class may not change as a result of resizing")
    resizes_others = False
    for field in _CONTAINER_FIELDS:
        for position, container in enumerate(get_list(spec, field)):
            known = get_list(before, field)[position]
            yield from _validate_resized(
                container, known, path.child(field).index(position).child("resources")
            )
            resizes_others |= _resizes_others(container, known)
    if resizes_others:
        yield forbidden(path, "only cpu and memory resources are mutable")


def _validate_resized(container: JsonObject, known: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    for field in ("limits", "requests"):
        amounts, before = get_object(container, "resources", field), get_object(known, "resources", field)
        if before.keys() - amounts.keys():
            yield forbidden(path.child(field), f"{f'resource {field}'} cannot be removed")


def _resizes_others(container: JsonObject, known: JsonObject) -> bool:
    """Whether more than cpu and memory changes."""
    return any(
        amounts[name] != get_object(known, "resources", field).get(name)
        for field in ("limits", "requests")
        for amounts in (get_object(container, "resources", field),)
        for name in amounts.keys() - {"cpu", "memory"}
    )
