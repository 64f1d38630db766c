"""``metadata.managedFields``: field ownership, and its update on ordinary writes.

One entry belongs to one manager, operation (``Apply`` or ``Update``), subresource and, for updates, API
version. `track_update` is called for every object about to be stored: changed fields pass from their former
owners to the writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from kubecore.json import JsonObject
from kubecore.patch import fieldset
from kubecore.patch.field_types import TypedError, object_type
from kubecore.patch.fieldset import FieldSet
from kubecore.patch.typed import Comparison, compare, reconciled
from kubecore.patch.typed_validation import validate
from kubecore.schema.model import Schema

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_UPDATERS: Final = 10
"""So many entries for updates are kept apart; older ones are merged under `ANCIENT_CHANGES`."""

ANCIENT_CHANGES: Final = "ancient-changes"
BEFORE_FIRST_APPLY: Final = "before-first-apply"

# Fields without owners: the server sets them, or they identify the object.
_UNOWNED: Final = fieldset.union(
    fieldset.of_fields("apiVersion", "kind", "metadata"),
    fieldset.of_fields(
        *(
            f"metadata.{name}"
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        )
    ),
)


class ManagedFieldsError(ValueError):
    """Entries of managedFields that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one manager. `time` is empty for entries without one."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: FieldSet = field(hash=False)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The unique key of an entry; for Apply entries it does not contain the version."""
        version = self.api_version if self.operation == UPDATE else ""
        return self.manager, self.operation, version, self.subresource

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """The order of entries in the object."""
        return self.operation, self.time, self.manager, self.api_version, self.subresource

    @property
    def identifier(self) -> str:
        """The identity as text; conflicts are listed in its order."""
        manager, operation, version, subresource = self.identity
        parts = {
            "manager": manager,
            "operation": operation,
            "apiVersion": version,
            "subresource": subresource,
        }
        return orjson.dumps({name: part for name, part in parts.items() if part}).decode()

    def encode(self) -> JsonObject:
        """The entry as JSON."""
        encoded: JsonObject = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if self.time:
            encoded["time"] = self.time
        encoded["fieldsType"] = "FieldsV1"
        encoded["fieldsV1"] = self.fields
        if self.subresource:
            encoded["subresource"] = self.subresource
        return encoded


def decode(entries: Iterable[Any]) -> list[Entry]:
    """The entries of an object. Raises `ManagedFieldsError`."""
    return [_decode(index, raw) for index, raw in enumerate(entries)]


def _decode(index: int, raw: Any) -> Entry:
    if not isinstance(raw, dict):
        raise ManagedFieldsError("managed fields entry must be an object")
    if raw.get("operation") not in {APPLY, UPDATE}:
        raise ManagedFieldsError("operation must be `Apply` or `Update`")
    if not raw.get("apiVersion"):
        raise ManagedFieldsError("apiVersion must not be empty")
    if raw.get("fieldsType") != "FieldsV1":
        shown = raw.get("fieldsType")
        what = f'invalid fieldsType "{shown}"' if shown else "missing fieldsType"
        raise ManagedFieldsError(f"{what} in managed fields entry {index}")
    fields = raw.get("fieldsV1") or {}
    if not isinstance(fields, dict):
        raise ManagedFieldsError("error decoding set: fieldsV1 must be an object")
    return Entry(
        str(raw.get("manager") or ""),
        raw["operation"],
        raw["apiVersion"],
        str(raw.get("subresource") or ""),
        str(raw.get("time") or ""),
        fields,
    )


def encode(entries: Iterable[Entry]) -> list[JsonObject]:
    """The entries as the object carries them, in their order."""
    return [entry.encode() for entry in sorted(entries, key=lambda entry: entry.sort_key)]


def without_unowned(fields: FieldSet) -> FieldSet:
    """`fields` without the fields that never have owners."""
    return fieldset.difference(fields, _UNOWNED)


def managed_fields_of(document: Mapping[str, Any] | None) -> list[Any] | None:
    """``metadata.managedFields``, or None where it is absent."""
    metadata = document.get("metadata") if document is not None else None
    found = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return found if isinstance(found, list) else None


@dataclass(frozen=True, slots=True)
class Write:
    """The manager, time and endpoint of a write. `now` is an RFC 3339 time. `reset` names fields that this
    endpoint never changes (the spec, for a write to the status), see `fieldset.of_fields`. `empty` is an
    object of the kind without any field set: its containers are always present and have no owner.
    `versions` are the schemas of custom resources by apiVersion, because others may own fields in another
    version.
    """

    manager: str
    api_version: str
    now: str
    subresource: str = ""
    reset: FieldSet | None = field(default=None, hash=False)
    empty: JsonObject | None = field(default=None, hash=False)
    versions: Mapping[str, Schema] | None = field(default=None, hash=False)


def track_update(old: JsonObject | None, new: JsonObject, schema: Schema, write: Write) -> list[JsonObject]:
    """The managedFields of `new`, which replaces `old` (None: is created) in an ordinary write.

    `new` may carry managedFields of its own, by which clients clear (``[]`` or ``[{}]``) or edit the list;
    a write to a subresource cannot. The result is empty where ownership is not tracked; it shares parts
    with the arguments.
    """
    live = managed_fields_of(old)
    given = None if write.subresource else managed_fields_of(new)
    entries = _entries_to_start_from(live, given)
    if old is not None and not entries:
        return []  # once cleared, managedFields start again with the first apply
    try:
        difference = compare_owned(old if old is not None else write.empty or {}, new, schema, write.reset)
    except TypedError:
        return live or []
    if not difference:
        return live if live and (given is None or given == live) else encode(entries)
    entries = _in_known_versions(entries, write)
    if not _is_expressible(entries, write, old, new):
        return []
    changed = fieldset.union(difference.modified, difference.added)
    kept = release(reconcile(entries, schema), changed, difference.removed)
    taken = without_unowned(changed)
    if taken:
        kept = _give(kept, entry_of(write, UPDATE, taken))
    return encode(_capped(kept))


def _in_known_versions(entries: list[Entry], write: Write) -> list[Entry]:
    """Without the entries of versions that a custom resource no longer has."""
    known = write.versions
    return entries if known is None else [entry for entry in entries if entry.api_version in known]


def _is_expressible(entries: Iterable[Entry], write: Write, old: JsonObject | None, new: JsonObject) -> bool:
    """Whether both objects fit the schema of every version in which managers own fields.

    Where they do not, ownership cannot be determined and managedFields are dropped.
    """
    for version in {entry.api_version for entry in entries} - {write.api_version}:
        schema = (write.versions or {}).get(version)
        if schema is None:
            continue
        try:
            for document in (old, new):
                validate(object_type(schema), document, allow_duplicates=True)
        except TypedError:
            return False
    return True


def entry_of(write: Write, operation: str, fields: FieldSet) -> Entry:
    """The entry by which the writer owns `fields`."""
    return Entry(
        write.manager or "unknown", operation, write.api_version, write.subresource, write.now, fields
    )


def _entries_to_start_from(live: Sequence[Any] | None, given: Sequence[Any] | None) -> list[Entry]:
    """The valid entries that the client sent, or else those of the live object."""
    if given is not None and given is not live:
        if not given or (len(given) == 1 and not given[0]):
            return []
        entries = _decode_or_none(given)
        if entries:
            return _unique(entries)
    return _decode_or_none(live or ()) or []


def _decode_or_none(entries: Iterable[Any]) -> list[Entry] | None:
    try:
        return decode(entries)
    except ManagedFieldsError:
        return None


def _unique(entries: Iterable[Entry]) -> list[Entry]:
    return list({entry.identity: entry for entry in entries}.values())


def compare_owned(
    old: JsonObject, new: JsonObject, schema: Schema, reset: FieldSet | None = None
) -> Comparison:
    """What differs between two objects, leaving aside managedFields and the fields of `reset`."""
    difference = Comparison()
    kind = object_type(schema)
    if old != new:
        difference = compare(kind, _without_managed_fields(old), _without_managed_fields(new))
    if reset:
        difference.removed = fieldset.recursive_difference(difference.removed, reset)
        difference.modified = fieldset.recursive_difference(difference.modified, reset)
        difference.added = fieldset.recursive_difference(difference.added, reset)
    return difference


def _without_managed_fields(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return document
    return {**document, "metadata": {name: metadata[name] for name in metadata if name != "managedFields"}}


def reconcile(entries: Iterable[Entry], schema: Schema) -> list[Entry]:
    """The entries in terms of `schema`, which may have made fields atomic since they were written."""
    kind = object_type(schema)
    result = []
    for entry in entries:
        fields = reconciled(kind, entry.fields)
        result.append(entry if fields is entry.fields else replace(entry, fields=fields))
    return result


def release(entries: Iterable[Entry], changed: FieldSet, removed: FieldSet) -> list[Entry]:
    """The entries after another manager changed and removed these fields; empty entries are dropped."""
    kept = []
    for entry in entries:
        fields = fieldset.difference(fieldset.difference(entry.fields, changed), removed)
        if fields == entry.fields:
            kept.append(entry)
        elif fields:
            kept.append(replace(entry, fields=fields))
    return kept


def _give(entries: list[Entry], gained: Entry) -> list[Entry]:
    """Add the gained fields to the entry of the same identity, or a new entry."""
    for index, entry in enumerate(entries):
        if entry.identity == gained.identity:
            gained = replace(gained, fields=fieldset.union(entry.fields, gained.fields))
            return [*entries[:index], gained, *entries[index + 1 :]]
    return [*entries, gained]


def _capped(entries: list[Entry]) -> list[Entry]:
    """At most `MAX_UPDATERS` Update entries: the oldest of each version are merged into one."""
    updaters = [entry for entry in entries if entry.operation == UPDATE]
    if len(updaters) <= MAX_UPDATERS:
        return entries
    updaters.sort(key=lambda entry: (entry.time, entry.identifier))
    surplus = len(updaters) - MAX_UPDATERS
    first: dict[str, Entry] = {}
    buckets: dict[str, Entry] = {}
    merged: set[tuple[str, str, str, str]] = set()
    for entry in updaters:
        if surplus <= 0:
            break
        version = entry.api_version
        if version not in first:
            first[version] = entry
            continue
        bucket = buckets.get(version) or first[version]
        merged |= {bucket.identity, entry.identity}
        fields = fieldset.union(entry.fields, bucket.fields)
        buckets[version] = Entry(ANCIENT_CHANGES, UPDATE, version, "", entry.time, fields)
        surplus -= 1
    return [entry for entry in entries if entry.identity not in merged] + list(buckets.values())
