"""Objects as tables, or reduced to their metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects.fields import go_quote

from ..kinds.machinery.printing import NAME, Table, plain
from ..registry.definition import ResourceDefinition, TableConverter
from .media import PARTIAL, PARTIAL_LIST, TABLE, Media

_NAME = "Name must be unique within a namespace. Is required when creating resources."
_CREATED = "CreationTimestamp is a timestamp representing the server time of creation."
DEFAULT_TABLE = Table(
    replace(NAME, description=_NAME),
    plain("Created At", "metadata.creationTimestamp", kind="date", absent=None, description=_CREATED),
)
"""Name and creation time: the table of kinds that define none."""


def partial(obj: JsonObject, version: str = "v1") -> JsonObject:
    """A PartialObjectMetadata."""
    return {
        "kind": PARTIAL,
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata") or {},
    }


def partial_list(metadata: JsonObject, objects: Sequence[JsonObject], version: str = "v1") -> JsonObject:
    """A PartialObjectMetadataList."""
    return {
        "kind": PARTIAL_LIST,
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "items": [partial(obj, version) for obj in objects] or None,
    }


def table(
    definition: ResourceDefinition,
    objects: Sequence[JsonObject],
    metadata: JsonObject,
    *,
    version: str = "v1",
    include: str = "Metadata",
    converter: TableConverter | None = None,
) -> JsonObject:
    """A Table of objects. `include`: Metadata, Object or None, as the parameter ``includeObject`` says."""
    converter = converter or definition.table or DEFAULT_TABLE
    rows: list[JsonObject] = []
    for obj in objects:
        row: JsonObject = {"cells": converter.cells(obj)}
        conditions = converter.conditions(obj)
        if conditions:
            row["conditions"] = conditions
        if include == "Object":
            row["object"] = obj
        elif include == "None":
            row["object"] = None
        else:
            row["object"] = partial(obj, version)
        rows.append(row)
    return {
        "kind": TABLE,
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": [column.to_json() for column in converter.columns],
        "rows": rows,
    }


def include_object(value: str | None) -> str:
    """The checked parameter ``includeObject``. Raises StatusError (400)."""
    if value in (None, "", "Metadata"):
        return "Metadata"
    if value in ("None", "Object"):
        return value
    raise errors.bad_request(
        f"Unable to convert to Table as requested: includeObject: Invalid value: {go_quote(value)}: must be "
        "'Metadata', 'Object', 'None', or empty"
    )


def check_shape(definition: ResourceDefinition, wanted: Media, *, is_list: bool) -> None:
    """Refuse the metadata form of a list for an object and the other way round (406)."""
    package = definition.resource.group.partition(".")[0] or "core"
    kind = f"*{package}.{definition.resource.kind}"
    if definition.custom:
        kind = "*unstructured.Unstructured"
    if wanted.as_kind == PARTIAL and is_list:
        message = f"you requested {PARTIAL}, but the requested object is a list ({kind}List)"
    elif wanted.as_kind == PARTIAL_LIST and not is_list:
        message = f"you requested {PARTIAL_LIST}, but the requested object is not a list ({kind})"
    else:
        return
    raise errors.StatusError(406, errors.NOT_ACCEPTABLE, message)
