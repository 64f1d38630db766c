"""Server-side apply: merging an applied configuration into an object by field ownership.

A manager owns the fields that it applies. Applying sets fields without other owners, conflicts over fields
that others own with another value (unless forced), shares fields with equal values, and removes fields that
the manager applied before and that have no owner any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from kubecore import errors
from kubecore.json import JsonObject, get_object, get_str
from kubecore.patch import fieldset, managed
from kubecore.patch.field_types import FieldType, TypedError, object_type
from kubecore.patch.fieldset import FieldSet
from kubecore.patch.managed import APPLY, UPDATE, Entry, ManagedFieldsError, Write
from kubecore.patch.typed import (
    ABSENT,
    compare,
    field_set,
    merge,
    remove,
    with_named_fields,
)
from kubecore.patch.typed_validation import validate
from kubecore.schema.model import Schema

LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One field which another manager owns with another value."""

    owner: Entry
    path: tuple[str, ...]


class ApplyConflict(errors.StatusError):
    """The configuration conflicts with other managers; the API's 409 with one cause for each field."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_describe(conflict.owner)}",
                "field": fieldset.format_path(conflict.path),
            }
            for conflict in self.conflicts
        ]
        status = errors.apply_conflict(_message(self.conflicts), causes)
        super().__init__(status.code, status.reason, status.message, status.details)


def _describe(owner: Entry) -> str:
    text = orjson.dumps(owner.manager).decode()
    if owner.subresource:
        text += f' with subresource "{owner.subresource}"'
    return f"{text} using {owner.api_version}" if owner.operation == UPDATE else text


def _message(conflicts: Sequence[Conflict]) -> str:
    if len(conflicts) == 1:
        only = conflicts[0]
        where = fieldset.format_path(only.path)
        return f"Apply failed with 1 conflict: conflict with {_describe(only.owner)}: {where}"
    lines: list[str] = []
    owner: Entry | None = None
    for conflict in conflicts:
        if conflict.owner is not owner:
            owner = conflict.owner
            lines.append(f"conflicts with {_describe(owner)}:")
        lines.append(f"- {fieldset.format_path(conflict.path)}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def apply_object(
    live: JsonObject | None, applied: JsonObject, schema: Schema, write: Write, *, force: bool = False
) -> JsonObject:
    """The object after `applied` was applied to `live` (None: there is none yet), managedFields included.

    The result still needs defaults. It is equal to `live` where applying changes nothing, and shares parts
    with the arguments. Raises `ApplyConflict`, or `StatusError` for a configuration that is not of the form
    of the schema.
    """
    if get_object(applied, "metadata").get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    kind = object_type(schema)
    try:
        validate(kind, applied)
    except TypedError as error:
        raise errors.plain_internal(
            f"failed to create typed patch object ({_shown(applied)}): {error}"
        ) from error
    try:
        merged, entries = _apply_migrating(live, applied, schema, write, force=force)
    except TypedError as error:
        shown = _shown(live or {})
        raise errors.plain_internal(f"failed to create typed live object ({shown}): {error}") from error
    except ManagedFieldsError as error:
        raise errors.plain_internal(f"failed to decode managed fields: {error}") from error
    if write.manager == _KUBECTL and _last_applied(merged):
        merged = _with_last_applied(merged, applied)
    return _with_managed_fields(merged, managed.encode(entries))


def _shown(document: Mapping[str, Any]) -> str:
    """namespace/name; group/version, Kind=… as Go prints them."""
    group, slash, version = get_str(document, "apiVersion").rpartition("/")
    kind = f"{group}{slash or '/'}{version}, Kind={get_str(document, 'kind')}"
    return f"{get_str(document, 'metadata', 'namespace')}/{get_str(document, 'metadata', 'name')}; {kind}"


def _apply_migrating(
    live: JsonObject | None, applied: JsonObject, schema: Schema, write: Write, *, force: bool
) -> tuple[JsonObject, list[Entry]]:
    """Apply; kubectl's fields from client-side apply (last-applied annotation) move to its apply manager."""
    try:
        return _apply(live, applied, schema, write, force=force)
    except ApplyConflict as error:
        allowed = _last_applied_fields(live, schema, write) if write.manager == _KUBECTL and live else None
        if allowed is None:
            raise
        left = [conflict for conflict in error.conflicts if not fieldset.has(allowed, conflict.path)]
        if left:
            raise ApplyConflict(left) from error
    return _apply(live, applied, schema, write, force=True)


def _apply(
    live: JsonObject | None, applied: JsonObject, schema: Schema, write: Write, *, force: bool
) -> tuple[JsonObject, list[Entry]]:
    kind = object_type(schema)
    before = live if live is not None else {}
    entries = managed.reconcile(managed.decode(managed.managed_fields_of(before) or ()), schema)
    if live is not None and not entries:
        entries = _before_first_apply(live, schema, write)
    claimed = field_set(kind, applied)
    if write.reset:
        claimed = fieldset.recursive_difference(claimed, write.reset)
    mine = managed.entry_of(write, APPLY, claimed)
    previous = next((entry for entry in entries if entry.identity == mine.identity), None)
    others = [entry for entry in entries if entry is not previous]
    merged: JsonObject = merge(kind, before, applied)
    if previous is not None and not fieldset.is_subset(previous.fields, claimed):
        merged = _prune(kind, merged, previous.fields, [*others, mine])
    difference = managed.compare_owned(before, merged, schema, write.reset)
    changed = fieldset.union(difference.modified, difference.added)
    if not force:
        _refuse_conflicts(others, changed)
    kept = managed.release(others, changed, difference.removed)
    if live is not None and live == merged:
        mine = replace(mine, time=previous.time if previous is not None else "")
    owned = managed.without_unowned(claimed)
    return merged, [*kept, replace(mine, fields=owned)] if owned else kept


def _before_first_apply(live: JsonObject, schema: Schema, write: Write) -> list[Entry]:
    """An owner for the fields of an object without managedFields (``before-first-apply``)."""
    difference = managed.compare_owned(write.empty or {}, live, schema, write.reset)
    fields = managed.without_unowned(fieldset.union(difference.modified, difference.added))
    writer = replace(write, manager=managed.BEFORE_FIRST_APPLY)
    return [managed.entry_of(writer, UPDATE, fields)] if fields else []


def _refuse_conflicts(others: Sequence[Entry], changed: FieldSet) -> None:
    conflicts: list[Conflict] = []
    for owner in sorted(others, key=lambda entry: entry.identifier):
        shared = fieldset.intersection(owner.fields, changed)
        conflicts += [Conflict(owner, path) for path in fieldset.paths(shared)]
    if conflicts:
        raise ApplyConflict(conflicts)


def _prune(kind: FieldType, merged: JsonObject, previous: FieldSet, owners: Sequence[Entry]) -> JsonObject:
    """`merged` without the fields of the manager's `previous` apply that have no owner now."""
    last = with_named_fields(kind, previous)
    pruned = _object(remove(kind, merged, last))
    owned: FieldSet = {}
    for entry in owners:
        owned = fieldset.union(owned, entry.fields)
    everything = with_named_fields(kind, field_set(kind, merged))
    left = with_named_fields(kind, field_set(kind, pruned))
    still_owned = fieldset.union(left, with_named_fields(kind, owned))
    pruned = _object(remove(kind, merged, fieldset.difference(everything, still_owned)))
    # Removing a map or list also removes children set without ownership; they are restored here.
    left = with_named_fields(kind, field_set(kind, pruned))
    gone = fieldset.intersection(fieldset.difference(everything, left), last)
    return _object(remove(kind, merged, gone))


def _object(value: Any) -> JsonObject:
    return value if value is not ABSENT else {}


def _last_applied(document: Mapping[str, Any]) -> str:
    return get_str(document, "metadata", "annotations", LAST_APPLIED_ANNOTATION)


def _last_applied_fields(live: JsonObject, schema: Schema, write: Write) -> FieldSet | None:
    """The fields of kubectl's client-side apply that have not changed since."""
    text = _last_applied(live)
    kind = object_type(schema)
    try:
        document = orjson.loads(text) if text else None
        if not isinstance(document, dict) or document.get("apiVersion") != write.api_version:
            return None
        validate(kind, document)
        difference = compare(kind, document, live)
        fields = field_set(kind, document)
    except (ValueError, TypedError):
        return None
    for changed in (difference.modified, difference.added, difference.removed):
        fields = fieldset.difference(fields, changed)
    return fields


def _with_last_applied(merged: JsonObject, applied: JsonObject) -> JsonObject:
    """Update the last-applied annotation, for users who still run client-side apply."""
    metadata = dict(get_object(applied, "metadata"))
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED_ANNOTATION}
    text = orjson.dumps({**applied, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode() + "\n"
    kept = get_object(merged, "metadata")
    annotated = {**get_object(kept, "annotations"), LAST_APPLIED_ANNOTATION: text}
    return {**merged, "metadata": {**kept, "annotations": annotated}}


def _with_managed_fields(document: JsonObject, entries: list[JsonObject]) -> JsonObject:
    metadata = {
        name: value for name, value in get_object(document, "metadata").items() if name != "managedFields"
    }
    if entries:
        metadata["managedFields"] = entries
    return {**document, "metadata": metadata}
