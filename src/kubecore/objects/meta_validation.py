"""Validation of ObjectMeta on create and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import fields, meta, names
from kubecore.objects.fields import FieldError, FieldPath
from kubecore.objects.names import NameCheck
from kubecore.objects.selectors import validate_labels

ANNOTATIONS_MAX_BYTES: Final = 256 * 1024
FIELD_MANAGER_MAX_BYTES: Final = 128
_FIELD_MANAGER_READ: Final = 1024
"""Characters of a manager's name that are looked at one by one."""
_OWNERS_TOLD: Final = 10
"""Errors that tell all owner references of an object."""
SUBRESOURCE_MAX_BYTES: Final = 256

_OWN_FINALIZERS: Final = frozenset({"kubernetes", meta.ORPHAN_DEPENDENTS, meta.FOREGROUND_DELETION})
IMMUTABLE: Final = "field is immutable"

METADATA: Final = FieldPath("metadata")


def validate_object_meta(
    document: Mapping[str, Any],
    namespaced: bool,
    name_fn: NameCheck = names.is_dns1123_subdomain,
    path: FieldPath = METADATA,
) -> list[FieldError]:
    """The metadata of an object about to be created, its name already generated."""
    metadata = get_object(document, "metadata")
    errors: list[FieldError] = []
    prefix = metadata.get("generateName") or ""
    if prefix:
        check = names.as_prefix(name_fn)
        errors += [fields.invalid(path.child("generateName"), prefix, message) for message in check(prefix)]
    name = metadata.get("name") or ""
    if not name:
        errors.append(fields.required(path.child("name"), "name or generateName is required"))
    else:
        errors += [fields.invalid(path.child("name"), name, message) for message in name_fn(name)]
    errors += _validate_namespace(metadata, namespaced, path.child("namespace"))
    errors += _validate_shared(metadata, path)
    errors += validate_finalizers(get_list(metadata, "finalizers"), path.child("finalizers"))
    errors += _validate_managed_fields(get_list(metadata, "managedFields"), path.child("managedFields"))
    return errors


def validate_object_meta_update(
    new: Mapping[str, Any], old: Mapping[str, Any], path: FieldPath = METADATA
) -> list[FieldError]:
    """The metadata of an object about to replace `old`."""
    after, before = get_object(new, "metadata"), get_object(old, "metadata")
    errors: list[FieldError] = []
    if before.get("deletionTimestamp"):
        errors += _validate_no_new_finalizers(after, before, path.child("finalizers"))
    if not after.get("resourceVersion"):
        errors.append(fields.invalid(path.child("resourceVersion"), "", "must be specified for an update"))
    generation, previous = after.get("generation") or 0, before.get("generation") or 0
    if generation < previous:
        errors.append(fields.invalid(path.child("generation"), generation, "must not be decremented"))
    for field in (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        value = after.get(field)
        if value != before.get(field):
            shown = value if value is not None or field.startswith("deletion") else ""
            errors.append(fields.invalid(path.child(field), shown, IMMUTABLE))
    errors += _validate_shared(after, path)
    errors += _validate_managed_fields(get_list(after, "managedFields"), path.child("managedFields"))
    return errors


def _validate_namespace(metadata: JsonObject, namespaced: bool, path: FieldPath) -> list[FieldError]:
    namespace = metadata.get("namespace") or ""
    if not namespaced:
        return [fields.forbidden(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [fields.required(path)]
    return [fields.invalid(path, namespace, message) for message in names.is_dns1123_label(namespace)]


def _validate_shared(metadata: JsonObject, path: FieldPath) -> list[FieldError]:
    """The rules common to create and update."""
    errors: list[FieldError] = []
    generation = metadata.get("generation") or 0
    if generation < 0:
        detail = "must be greater than or equal to 0"
        errors.append(fields.invalid(path.child("generation"), generation, detail))
    labels = metadata.get("labels")
    if labels:
        errors += validate_labels(labels, path.child("labels"))
    annotations = metadata.get("annotations")
    if annotations:
        errors += validate_annotations(annotations, path.child("annotations"))
    owners = metadata.get("ownerReferences")
    if owners:
        errors += validate_owner_references(owners, path.child("ownerReferences"))
    return errors


def validate_annotations(annotations: Mapping[str, str], path: FieldPath) -> list[FieldError]:
    """Qualified names in any letter case; at most 256 KiB in total."""
    errors: list[FieldError] = []
    for key in sorted(annotations):
        errors += [fields.invalid(path, key, message) for message in names.is_qualified_name(key.lower())]
    size = sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_MAX_BYTES:
        errors.append(fields.too_long(path, ANNOTATIONS_MAX_BYTES))
    return errors


def validate_owner_references(owners: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    """Complete references, none to an Event, at most one of them the controller."""
    errors: list[FieldError] = []
    controller = ""
    for owner in owners:
        errors += _validate_owner(owner, path)
        if owner.get("controller") is not True:
            continue
        current = f"{get_str(owner, 'kind')}/{get_str(owner, 'name')}"
        if controller:
            detail = (
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controller} and {current}"
            )
            errors.append(fields.invalid(path, list(owners), detail))
            if len(errors) > _OWNERS_TOLD:
                break  # each tells all references
        else:
            controller = current
    return errors


def _validate_owner(owner: JsonObject, path: FieldPath) -> list[FieldError]:
    errors: list[FieldError] = []
    version = get_str(owner, "apiVersion")
    if version.count("/") > 1 or not version.rpartition("/")[2]:
        errors.append(fields.invalid(path.child("apiVersion"), version, "version must not be empty"))
    errors += [
        fields.invalid(path.child(field), "", "must not be empty")
        for field in ("kind", "name", "uid")
        if not owner.get(field)
    ]
    if version == "v1" and owner.get("kind") == "Event":
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(fields.invalid(path, owner, detail))
    return errors


def kubernetes_finalizer(finalizer: str, path: FieldPath) -> list[FieldError]:
    """The rule of built-in kinds for finalizers: a name without a domain must be one of Kubernetes' own."""
    errors = [fields.invalid(path, finalizer, message) for message in names.is_qualified_name(finalizer)]
    if "/" not in finalizer and finalizer not in _OWN_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors.append(fields.invalid(path, finalizer, detail))
    return errors


def validate_finalizers(finalizers: Sequence[str], path: FieldPath) -> list[FieldError]:
    """Qualified names; ``orphan`` and ``foregroundDeletion`` exclude each other."""
    errors = [
        fields.invalid(path, finalizer, message)
        for finalizer in finalizers
        for message in names.is_qualified_name(finalizer)
    ]
    if meta.ORPHAN_DEPENDENTS in finalizers and meta.FOREGROUND_DELETION in finalizers:
        detail = f"finalizer {meta.ORPHAN_DEPENDENTS} and {meta.FOREGROUND_DELETION} cannot be both set"
        errors.append(fields.invalid(path, list(finalizers), detail))
    return errors


def _validate_no_new_finalizers(after: JsonObject, before: JsonObject, path: FieldPath) -> list[FieldError]:
    extra = sorted(set(get_list(after, "finalizers")) - set(get_list(before, "finalizers")))
    if not extra:
        return []
    shown = ", ".join(fields.go_quote(finalizer) for finalizer in extra)
    detail = (
        "no new finalizers can be added if the object is being deleted, "
        f"found new finalizers []string{{{shown}}}"
    )
    return [fields.forbidden(path, detail)]


def _validate_managed_fields(entries: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, entry in enumerate(entries):
        at = path.index(index)
        operation = get_str(entry, "operation")
        if not operation:
            errors.append(fields.required(at.child("operation"), "must not be empty"))
        elif operation not in {"Apply", "Update"}:
            errors.append(fields.not_supported(at.child("operation"), operation, ["Apply", "Update"]))
        if get_str(entry, "fieldsType") not in {"", "FieldsV1"}:
            errors.append(fields.invalid(at.child("fieldsType"), entry["fieldsType"], "must be `FieldsV1`"))
        errors += validate_field_manager(get_str(entry, "manager"), at.child("manager"))
        if len(get_str(entry, "subresource").encode()) > SUBRESOURCE_MAX_BYTES:
            errors.append(fields.too_long(at.child("subresource"), SUBRESOURCE_MAX_BYTES))
    return errors


def validate_field_manager(manager: str, path: FieldPath | str) -> list[FieldError]:
    """The name of a field manager: up to 128 bytes, all printable.

    Each character that is not is an error, which quotes the name.
    """
    errors: list[FieldError] = []
    if len(manager.encode()) > FIELD_MANAGER_MAX_BYTES:
        errors.append(fields.too_long(path, FIELD_MANAGER_MAX_BYTES))
    if len(manager) > _FIELD_MANAGER_READ:
        return errors
    offset = 0
    for char in manager:
        if not char.isprintable():
            shown = f"U+{ord(char):04X}"
            detail = f"invalid character {shown} (at position {offset})"
            errors.append(fields.invalid(path, manager, detail))
        offset += len(char.encode())
    return errors


def validate_dry_run(values: Sequence[str], path: FieldPath | str = "dryRun") -> list[FieldError]:
    """``dryRun`` accepts only ``All``."""
    if all(value == "All" for value in values):
        return []
    return [fields.not_supported(path, list(values), ["All"])]


def validate_field_validation(value: str, path: FieldPath | str = "fieldValidation") -> list[FieldError]:
    """``fieldValidation`` is ``Ignore``, ``Warn``, ``Strict`` or empty."""
    allowed = ["", "Ignore", "Strict", "Warn"]
    return [] if value in allowed else [fields.not_supported(path, value, allowed)]


def validate_conditions(conditions: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    """Status conditions of the standard form: unique types, known statuses, a reason."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at = path.index(index)
        kind = get_str(condition, "type")
        if kind in seen:
            errors.append(fields.duplicate(at, kind))
        seen.add(kind)
        if not kind:
            errors.append(fields.required(at.child("type"), "is required"))
        errors += [
            fields.invalid(at.child("type"), kind, message)
            for message in (names.is_qualified_name(kind) if kind else [])
        ]
        status = get_str(condition, "status")
        if not status:
            errors.append(fields.required(at.child("status")))
        elif status not in {"True", "False", "Unknown"}:
            errors.append(fields.not_supported(at.child("status"), status, ["False", "True", "Unknown"]))
        for field in ("lastTransitionTime", "reason"):
            if not condition.get(field):
                errors.append(fields.required(at.child(field)))
    return errors
