"""PersistentVolumeClaims: access modes, sizes, sources; what may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import amount, immutable, one_of
from kindling.apiserver.kinds.machinery.differences import difference
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required
from kubecore.objects.quantity import Quantity
from kubecore.objects.storage_class import CLASS_ANNOTATION

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
ONLY_SIZE = (
    "spec is immutable after creation except resources.requests "
    "and volumeAttributesClassName for bound claims"
)
_SPEC = FieldPath("spec")


def access_modes(path: FieldPath, modes: Sequence[Any]) -> Iterator[FieldError]:
    """Known modes; ReadWriteOncePod stands alone."""
    for mode in modes:
        yield from one_of(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def above_zero(path: FieldPath, size: Any) -> Iterator[FieldError]:
    """An amount of something."""
    if amount(size) <= Quantity.parse("0"):
        yield invalid(path, str(size), "must be greater than zero")


def _size_given(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    at, size = (
        path.child("resources").key("storage"),
        get_object(spec, "resources", "requests").get("storage"),
    )
    return [required(at)] if size is None else above_zero(at, size)


def _same_source(path: FieldPath, spec: JsonObject) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return []
    if reference.get("namespace"):
        return [invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")]
    same = all((source.get(key) or "") == (reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
    return [] if same else [invalid(path, {}, "must match dataSourceRef")]


def _of_claims(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind", ""), text)


CLASS_NAME = f.may("storageClassName", f.SUBDOMAIN)
VOLUME_MODE = f.given("volumeMode", f.choice(*VOLUME_MODES))
_DATA_SOURCE: tuple[f.Row, ...] = (*f.needed("name", "kind"), _of_claims, f.may("apiGroup", f.SUBDOMAIN))
validate_claim_spec = f.within(
    f.must("accessModes", detail="at least 1 access mode is required"),
    f.given("selector", f.selector),
    f.may("accessModes", access_modes),
    _size_given,
    CLASS_NAME,
    VOLUME_MODE,
    f.given("dataSource", *_DATA_SOURCE),
    f.given("dataSourceRef", *_DATA_SOURCE, f.may("namespace", f.LABEL)),
    _same_source,
    f.may("volumeAttributesClassName", f.SUBDOMAIN),
)
"""The spec of a claim or claim template."""
validate_claim = f.document(f.part("spec", validate_claim_spec))
"""A new claim."""


def validate_claim_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: bound claims may grow, and the volume is set once."""
    yield from validate_claim(new)
    spec, before = deep_copy(get_object(new, "spec")), get_object(old, "spec")
    bound = get_str(new, "status", "phase") == "Bound"
    annotation, had_annotation = (meta.annotations(each).get(CLASS_ANNOTATION, "") for each in (new, old))
    if annotation == "" and had_annotation and spec.get("storageClassName") == had_annotation:
        # The class moves from the annotation to the field.
        spec.pop("storageClassName")
    elif annotation != had_annotation:
        at = FieldPath("metadata").child("annotations", CLASS_ANNOTATION)
        yield from immutable(at, annotation, had_annotation)
    if not before.get("volumeName") and spec.get("volumeName"):
        # The volume controller binds, and may set the class of claims that have none.
        spec.pop("volumeName")
    if before.get("storageClassName") is None and spec.get("storageClassName") is not None:
        spec.pop("storageClassName")
    old_size, new_size = _size(before), _size(spec)
    if bound:
        requests = spec.setdefault("resources", {}).setdefault("requests", {})
        if "storage" in get_object(before, "resources", "requests"):
            requests["storage"] = get_object(before, "resources", "requests")["storage"]
    if bound or spec.get("volumeAttributesClassName") == before.get("volumeAttributesClassName"):
        spec.pop("volumeAttributesClassName", None)
        before = {key: value for key, value in before.items() if key != "volumeAttributesClassName"}
    if spec != before:
        yield forbidden(_SPEC, f"{ONLY_SIZE}\n{difference(spec, before)}")
    if new_size < old_size and new_size <= amount(get_object(old, "status", "capacity").get("storage")):
        text = "field can not be less than status.capacity"
        yield forbidden(_SPEC.child("resources", "requests", "storage"), text)
    yield from immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    name, had = get_object(new, "spec").get("volumeAttributesClassName"), get_object(old, "spec")
    if had.get("volumeAttributesClassName") is not None and not name:
        text = f"update from non-nil value to {'nil' if name is None else 'an empty string'} is forbidden"
        yield forbidden(_SPEC.child("volumeAttributesClassName"), text)


def _size(spec: JsonObject) -> Quantity:
    return amount(get_object(spec, "resources", "requests").get("storage"))


def validate_claim_status(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The size that a claim has got is no debt."""
    for name, value in get_object(new, "status", "capacity").items():
        size = amount(value)
        if size < Quantity.parse("0"):
            at = FieldPath("status", "capacity").key(name)
            yield invalid(at, size.milli_value // 1000, "must be a valid resource quantity")


def claim_warnings(claim: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Warn about sizes that are not a whole number of bytes."""
    for field in ("requests", "limits"):
        value = get_object(claim, "spec", "resources", field).get("storage")
        if value is not None and amount(value).milli_value % 1000:
            yield (
                f'spec.resources.{field}[storage]: fractional byte value "{value}" is invalid, '
                "must be an integer"
            )
    if old is None and CLASS_ANNOTATION in meta.annotations(claim):
        yield (
            f"metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; "
            'use "storageClassName" attribute instead'
        )
