"""Validation of embedded resources: apiVersion, kind and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, required, type_invalid

from .model import Schema


def validate_embedded(document: Any, schema: Schema, path: FieldPath | None = None) -> list[FieldError]:
    """The errors of the embedded resources below `document` (not of `document` itself)."""
    if not schema.derive(_has_embedded):
        return []
    return list(_walk(document, schema, path or FieldPath(), is_root=True))


def _has_embedded(schema: Schema) -> bool:
    """Whether an embedded resource may stand below this node.

    Its raw form is read, so that the views of the nodes below need not be made.
    """
    return _has_embedded_parts(schema.raw)


def _has_embedded_parts(raw: Any) -> bool:
    properties = raw.get("properties")
    named = properties.values() if isinstance(properties, dict) else ()
    parts = [*named, raw.get("items"), raw.get("additionalProperties")]
    return any(
        bool(part.get("x-kubernetes-embedded-resource")) or _has_embedded_parts(part)
        for part in parts
        if isinstance(part, dict)
    )


def _walk(value: Any, schema: Schema, path: FieldPath, *, is_root: bool = False) -> Iterator[FieldError]:
    if isinstance(value, dict):
        if schema.embedded_resource and not is_root:
            yield from _resource_errors(value, path)
        for key, child in value.items():
            child_schema = schema.child(key)
            if child_schema is not None:
                named = key in schema.properties
                yield from _walk(child, child_schema, path.child(key) if named else path.key(key))
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _walk(item, schema.items, path.index(index))


def _resource_errors(value: dict[str, Any], path: FieldPath) -> Iterator[FieldError]:
    yield from _api_version_errors(value, path.child("apiVersion"))
    yield from _kind_errors(value, path.child("kind"))
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        yield type_invalid(path.child("metadata"), metadata, "must be an object")
    elif metadata:
        yield from _metadata_errors(metadata, path.child("metadata"))


def _api_version_errors(value: dict[str, Any], path: FieldPath) -> Iterator[FieldError]:
    version = value.get("apiVersion")
    if "apiVersion" not in value:
        yield required(path)
    elif not isinstance(version, str):
        yield type_invalid(path, version, "must be a string")
    elif not version:
        yield invalid(path, version, "must not be empty")
    elif version.count("/") > 1:
        yield invalid(path, version, f"unexpected GroupVersion string: {version}")


def _kind_errors(value: dict[str, Any], path: FieldPath) -> Iterator[FieldError]:
    kind = value.get("kind")
    if "kind" not in value:
        yield required(path)
    elif not isinstance(kind, str):
        yield type_invalid(path, kind, "must be a string")
    elif not kind:
        yield invalid(path, kind, "must not be empty")
    else:
        messages = names.is_dns1035_label(kind.lower())
        if messages:
            detail = "may have mixed case, but should otherwise match: " + ",".join(messages)
            yield invalid(path, kind, detail)


def _metadata_errors(metadata: dict[str, Any], path: FieldPath) -> Iterator[FieldError]:
    labels = metadata.get("labels")
    for key, value in (labels if isinstance(labels, dict) else {}).items():
        for message in names.is_qualified_name(key):
            yield invalid(path.child("labels"), key, message)
        for message in names.is_label_value(str(value)):
            yield invalid(path.child("labels"), value, message)
    annotations = metadata.get("annotations")
    for key in annotations if isinstance(annotations, dict) else ():
        for message in names.is_qualified_name(key.lower()):
            yield invalid(path.child("annotations"), key, message)
