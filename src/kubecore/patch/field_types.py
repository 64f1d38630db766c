"""The granularity of field ownership in server-side apply, derived from the schema.

A `FieldType` is compiled from a `Schema` node: scalars and atomic values have one owner set, other maps one
per field, lists of type ``set`` one per value and of type ``map`` one per key. Without a schema the value
decides: maps per field, everything else as a whole.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from kubecore.json import JsonObject
from kubecore.schema.metadata import OBJECT_META
from kubecore.schema.model import Schema

# Defaults of list keys; the definitions of built-in kinds do not carry them.
_KEY_DEFAULTS: Final[dict[str, JsonObject]] = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.LocalObjectReference": {"name": ""},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
}
_ZEROS: Final[dict[str, Any]] = {"string": "", "integer": 0}
"""What a required key of an element of a built-in kind is where it is left out."""

SCALAR: Final = 0
MAP: Final = 1
LIST: Final = 2
ANY: Final = 3

_OBJECT_META: Final = Schema(OBJECT_META)
_TEXT: Final = Schema({"type": "string"})
_SCALAR_TYPES: Final = {"string": "string", "integer": "numeric", "number": "numeric", "boolean": "boolean"}
_WHOLE_OBJECT: Final = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _OBJECT_META}


class TypedError(ValueError):
    """A document does not match its schema."""


class FieldType:
    """The ownership granularity of one value. `kind` is SCALAR, MAP, LIST or ANY (the value decides)."""

    __slots__ = (
        "_children",
        "_declared",
        "_defaults",
        "_element",
        "_schema",
        "atomic",
        "keys",
        "kind",
        "scalar",
    )

    def __init__(self, schema: Schema | None, *, whole_object: bool = False) -> None:
        self._schema = schema
        self._children: dict[str, tuple[FieldType, bool]] = {}
        self._element: FieldType | None = None
        self._declared = _WHOLE_OBJECT if whole_object or (schema and schema.embedded_resource) else {}
        self._defaults: dict[str, Any] = {}
        self.keys: tuple[str, ...] = ()
        self.atomic = False
        self.scalar = "untyped"
        self.kind = _kind(schema, bool(self._declared))
        if schema is not None and self.kind == MAP:
            self.atomic = schema.map_type == "atomic"
        elif schema is not None and self.kind == LIST:
            self._read_list_type(schema)
        elif schema is not None and self.kind == SCALAR:
            self.scalar = _scalar(schema)

    def _read_list_type(self, schema: Schema) -> None:
        list_type, keys = schema.list_type, schema.list_map_keys
        if not list_type and "merge" in schema.patch_strategy:
            keys = (schema.patch_merge_key,) if schema.patch_merge_key else ()
            list_type = "map" if keys else "set"
        self.atomic = list_type not in {"map", "set"}
        if list_type == "map":
            self.keys = tuple(sorted(keys))
            items = schema.items
            if items is not None:
                self._read_key_defaults(items)

    def _read_key_defaults(self, items: Schema) -> None:
        self._defaults = dict(_KEY_DEFAULTS.get(items.definition or "", {}))
        for key in self.keys:
            child = items.properties.get(key)
            if child is None:
                continue
            if child.has_default:
                self._defaults[key] = child.default
            elif items.definition and key in items.required and child.type in _ZEROS:
                self._defaults.setdefault(key, _ZEROS[child.type])

    def child(self, name: str) -> tuple[FieldType, bool]:
        """The type of field `name` of a map, and whether the schema declares that field by name."""
        found = self._children.get(name)
        if found is None:
            found = self._children[name] = self._find_child(name)
        return found

    def _find_child(self, name: str) -> tuple[FieldType, bool]:
        schema = self._declared.get(name)
        if schema is None and self._schema is not None:
            schema = self._schema.properties.get(name)
        if schema is not None:
            return schema.derive(FieldType), True
        if self._schema is not None and self._schema.additional_properties is not None:
            return self._schema.additional_properties.derive(FieldType), False
        return UNTYPED, False

    def allows(self, name: str) -> bool:
        """Whether a map may have a field `name`."""
        if self.kind == ANY or self._schema is None or self.child(name)[1]:
            return True
        return self._schema.preserve_unknown or self._schema.additional_properties is not None

    @property
    def element(self) -> FieldType:
        """The type of a list's elements."""
        if self._element is None:
            items = self._schema.items if self._schema is not None else None
            self._element = items.derive(FieldType) if items is not None else UNTYPED
        return self._element

    def element_key(self, item: Any) -> str:
        """The path element of an item of a list that is not atomic. Raises `TypedError`."""
        if not self.keys:
            if isinstance(item, dict):
                raise TypedError("associative list without keys has an element that's a map type")
            if isinstance(item, list):
                raise TypedError("not supported: associative list with lists as elements")
            if item is None:
                raise TypedError("associative list without keys has an element that's an explicit null")
            return "v:" + orjson.dumps(item).decode()
        if not isinstance(item, dict):
            what = "a null element" if item is None else "non-map elements"
            raise TypedError(f"associative list with keys may not have {what}")
        found = {}
        for key in self.keys:
            if key in item:
                found[key] = item[key]
            elif key in self._defaults:
                found[key] = self._defaults[key]
        if not found:
            shown = " ".join(f'"{key}"' for key in self.keys)
            raise TypedError(
                f"associative list with keys has an element that omits all key fields [{shown}] "
                "(and doesn't have default values for any key fields)"
            )
        return "k:" + orjson.dumps(found).decode()


def _kind(schema: Schema | None, has_fields: bool) -> int:
    if schema is None or schema.int_or_string or "oneOf" in schema.raw:
        return ANY if schema is None or not _is_scalar_union(schema) else SCALAR
    if schema.type == "array":
        return LIST
    if schema.type == "object" or has_fields:
        structured = has_fields or schema.properties or schema.additional_properties is not None
        return MAP if structured or schema.map_type == "atomic" else ANY
    return SCALAR if schema.type else ANY


def _is_scalar_union(schema: Schema) -> bool:
    """IntOrString, Quantity and their like: ``oneOf`` scalars."""
    if schema.int_or_string:
        return True
    options = schema.raw.get("oneOf") or ()
    return all(isinstance(option, dict) and option.get("type") in _SCALAR_TYPES for option in options)


def _scalar(schema: Schema) -> str:
    if schema.int_or_string or "oneOf" in schema.raw:
        return "untyped"
    return _SCALAR_TYPES.get(schema.type, "untyped")


def object_type(schema: Schema) -> FieldType:
    """The type of whole objects of a kind; their metadata is that of every object."""
    return schema.derive(_compile_object)


def _compile_object(schema: Schema) -> FieldType:
    return FieldType(schema, whole_object=True)


UNTYPED: Final = FieldType(None)
"""Nothing is known: the kind of the value decides."""
