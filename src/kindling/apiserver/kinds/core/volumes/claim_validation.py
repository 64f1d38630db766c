"""PersistentVolumeClaims: access modes, sizes, sources; what may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, messages
from kindling.apiserver.kinds.machinery.differences import difference
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, named, needed
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
_SOURCE_KEYS = ("apiGroup", "kind", "name")
_SPEC = FieldPath("spec")


def validate_claim(claim: JsonObject) -> list[FieldError]:
    """A new claim."""
    return validate_claim_spec(get_object(claim, "spec"), _SPEC)


def validate_access_modes(modes: Sequence[Any], path: FieldPath) -> list[FieldError]:
    """Known modes; ReadWriteOncePod stands alone."""
    found: list[FieldError] = []
    for mode in modes:
        if mode not in ACCESS_MODES:
            found.append(not_supported(path, mode, ACCESS_MODES))
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        found.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return found


def validate_claim_spec(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    """The spec of a claim or claim template."""
    found: list[FieldError] = []
    modes = get_list(spec, "accessModes")
    if not modes:
        found.append(required(path.child("accessModes"), "at least 1 access mode is required"))
    if spec.get("selector") is not None:
        found += validate_label_selector_object(spec["selector"], path.child("selector"))
    found += validate_access_modes(modes, path.child("accessModes"))
    size = get_object(spec, "resources", "requests").get("storage")
    at = path.child("resources").key("storage")
    if size is None:
        found.append(required(at))
    elif amount(size) <= Quantity.parse("0"):
        found.append(invalid(at, str(size), "must be greater than zero"))
    found += check_fields(spec, path, may("storageClassName", named(names.is_dns1123_subdomain)))
    found += check_fields(spec, path, given("volumeMode", choice(*VOLUME_MODES)))
    for field in ("dataSource", "dataSourceRef"):
        if isinstance(spec.get(field), dict):
            found += _validate_source(spec[field], path.child(field))
    source, reference = get_object(spec, "dataSource"), get_object(spec, "dataSourceRef")
    if (
        source
        and reference
        and any((source.get(key) or "") != (reference.get(key) or "") for key in _SOURCE_KEYS)
    ):
        found.append(invalid(path, None, "must match dataSourceRef"))
    if spec.get("volumeAttributesClassName"):
        value = spec["volumeAttributesClassName"]
        found += messages(path.child("volumeAttributesClassName"), value, names.is_dns1123_subdomain)
    return found


def _validate_source(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = check_fields(source, path, *needed("name", "kind"))
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.append(invalid(path.child("kind"), source.get("kind", ""), text))
    return found + check_fields(source, path, may("apiGroup", named(names.is_dns1123_subdomain)))


def validate_claim_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """A change: bound claims may grow, and the volume is set once."""
    found = validate_claim(new)
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
        found.append(forbidden(_SPEC, f"{ONLY_SIZE}\n{difference(spec, before)}"))
    elif bound and new_size < old_size:
        status_size = amount(get_object(old, "status", "capacity").get("storage"))
        if new_size < status_size or new_size == status_size:
            text = "field can not be less than status.capacity"
            found.append(forbidden(_SPEC.child("resources", "requests", "storage"), text))
    return found


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
