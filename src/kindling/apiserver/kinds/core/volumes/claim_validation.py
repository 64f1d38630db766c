"""PersistentVolumeClaims: access modes, sizes, sources; what may change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, immutable
from kindling.apiserver.kinds.machinery.differences import difference
from kindling.apiserver.kinds.machinery.fields import (
    Check,
    Field,
    check_fields,
    choice,
    given,
    may,
    must,
    named,
    needed,
)
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import validate_label_selector_object

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
ONLY_SIZE = (
    "spec is immutable after creation except resources.requests "
    "and volumeAttributesClassName for bound claims"
)
_SPEC = FieldPath("spec")


def validate_claim(claim: JsonObject) -> Iterator[FieldError]:
    """A new claim."""
    return validate_claim_spec(get_object(claim, "spec"), _SPEC)


def validate_access_modes(modes: Sequence[Any], path: FieldPath) -> Iterator[FieldError]:
    """Known modes; ReadWriteOncePod stands alone."""
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield not_supported(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


CLASS_NAME = may("storageClassName", named(names.is_dns1123_subdomain))
VOLUME_MODE = given("volumeMode", choice(*VOLUME_MODES))


def validate_claim_spec(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """The spec of a claim or claim template."""
    yield from check_fields(spec, path, must("accessModes", detail="at least 1 access mode is required"))
    if spec.get("selector") is not None:
        yield from validate_label_selector_object(spec["selector"], path.child("selector"))
    yield from validate_access_modes(get_list(spec, "accessModes"), path.child("accessModes"))
    size = get_object(spec, "resources", "requests").get("storage")
    at = path.child("resources").key("storage")
    if size is None:
        yield required(at)
    elif amount(size) <= Quantity.parse("0"):
        yield invalid(at, str(size), "must be greater than zero")
    reference = (*_DATA_SOURCE, may("namespace", named(names.is_dns1123_label)))
    yield from check_fields(
        spec, path, CLASS_NAME, VOLUME_MODE, given("dataSource", _data_source(*_DATA_SOURCE))
    )
    yield from check_fields(spec, path, given("dataSourceRef", _data_source(*reference)))
    yield from _validate_same_source(spec, path)
    yield from check_fields(spec, path, may("volumeAttributesClassName", named(names.is_dns1123_subdomain)))


def _validate_same_source(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return []
    if reference.get("namespace"):
        return [invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")]
    same = all((source.get(key) or "") == (reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
    return [] if same else [invalid(path, {}, "must match dataSourceRef")]


_DATA_SOURCE = (may("apiGroup", named(names.is_dns1123_subdomain)),)


def _data_source(*fields: Field) -> Check:
    def check(path: FieldPath, source: JsonObject) -> list[FieldError]:
        found = check_fields(source, path, *needed("name", "kind"))
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            found.append(invalid(path, source.get("kind", ""), text))
        return found + check_fields(source, path, *fields)

    return check


def validate_claim_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: bound claims may grow, and the volume is set once."""
    yield from validate_claim(new)
    spec, before = deep_copy(get_object(new, "spec")), get_object(old, "spec")
    bound = get_str(new, "status", "phase") == "Bound"
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


def claim_warnings(claim: JsonObject, old: JsonObject | None) -> list[str]:
    """Sizes that are no whole number of bytes."""
    found = []
    for field in ("requests", "limits"):
        value = get_object(claim, "spec", "resources", field).get("storage")
        if value is not None and amount(value).milli_value % 1000:
            found.append(
                f'spec.resources.{field}[storage]: fractional byte value "{value}" is invalid, '
                "must be an integer"
            )
    annotation = "volume.beta.kubernetes.io/storage-class"
    if old is None and annotation in get_object(claim, "metadata", "annotations"):
        found.append(
            f"metadata.annotations[{annotation}]: deprecated since v1.8; "
            'use "storageClassName" attribute instead'
        )
    return found
