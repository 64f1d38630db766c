"""The versions of a definition, and what they have in common.

Messages of Kubernetes name fields of its internal form, where settings that all versions share stand once
(``spec.validation``, ``spec.subresources``) instead of in each version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldPath

from .internal_form import schema_form

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


def each_setting(crd: JsonObject, name: str) -> Iterator[tuple[Any, FieldPath]]:
    """The distinct values of setting `name` with the paths at which errors are reported.

    Values that are not set are left out.
    """
    versions = all_versions(crd)
    if is_shared(crd, name):
        if versions and (value := _value(versions[0], name)):
            yield value, _shared_path(name)
        return
    for index, version in enumerate(versions):
        if value := _value(version, name):
            yield value, FieldPath("spec", "versions").index(index).child(name)


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
                "Subresources": own["subresources"],
                "AdditionalPrinterColumns": own["additionalPrinterColumns"],
                "SelectableFields": own["selectableFields"],
            }
        )
    return dumped
