"""The versions of a definition, and what they have in common.

Messages of Kubernetes name fields of its internal form, where settings that all versions share stand once
(``spec.validation``, ``spec.subresources``) instead of in each version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldPath

from ..kinds.machinery.internal import internal_form as named_form
from .internal_form import schema_form

_SUBRESOURCES = {
    "Status": {},
    "Scale": {"SpecReplicasPath": "", "StatusReplicasPath": "", "LabelSelectorPath": None},
}
_COLUMN = {"Name": "", "Type": "", "Format": "", "Description": "", "Priority": 0, "JSONPath": ""}
_SHARED_FIELDS = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def all_versions(crd: JsonObject) -> list[JsonObject]:
    """spec.versions."""
    return [version for version in get_list(crd, "spec", "versions") if isinstance(version, dict)]


def storage_version(crd: JsonObject) -> str:
    """The name of the storage version; empty if there is none."""
    return next((str(each.get("name")) for each in all_versions(crd) if each.get("storage")), "")


def served_versions(crd: JsonObject) -> list[JsonObject]:
    """The versions that the server offers."""
    return [version for version in all_versions(crd) if version.get("served")]


def schema_of(version: JsonObject) -> JsonObject:
    """``openAPIV3Schema`` of a version; empty when it has none."""
    return get_object(version, "schema", "openAPIV3Schema")


def is_shared(crd: JsonObject, name: str) -> bool:
    """Whether all versions have the same `name` (schema, subresources, ...)."""
    values = [_value(version, name) for version in all_versions(crd)]
    return all(value == values[0] for value in values)


def each_setting(crd: JsonObject, name: str, version: int | None) -> Iterator[tuple[Any, FieldPath]]:
    """The value of setting `name` with the path at which errors are reported, if it is set.

    That of one version, if versions differ in it; with `version` None that which all versions share.
    """
    versions = all_versions(crd)
    if not versions or is_shared(crd, name) != (version is None):
        return
    path = _shared_path(name)
    if version is not None:
        path = FieldPath("spec", "versions").index(version).child(name)
    if value := _value(versions[version or 0], name):
        yield value, path


def _value(version: JsonObject, name: str) -> Any:
    return version.get(name) or None


def _shared_path(name: str) -> FieldPath:
    return FieldPath("spec", "validation" if name == "schema" else name)


def internal_form(crd: JsonObject) -> list[JsonObject]:
    """spec.versions as messages dump them."""
    shared = {name: is_shared(crd, name) for name in _SHARED_FIELDS}
    dumped = []
    for version in all_versions(crd):
        own = {name: None if shared[name] else _value(version, name) for name in _SHARED_FIELDS}
        dumped.append(
            {
                "Name": version.get("name") or "",
                "Served": bool(version.get("served")),
                "Storage": bool(version.get("storage")),
                "Deprecated": bool(version.get("deprecated")),
                "DeprecationWarning": version.get("deprecationWarning"),
                "Schema": {"OpenAPIV3Schema": schema_form(schema_of(version))} if own["schema"] else None,
                "Subresources": named_form(own["subresources"], _SUBRESOURCES),
                "AdditionalPrinterColumns": named_form(own["additionalPrinterColumns"], [_COLUMN]),
                "SelectableFields": named_form(own["selectableFields"], [{"JSONPath": ""}]),
            }
        )
    return dumped
