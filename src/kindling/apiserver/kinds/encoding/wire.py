"""The wire form of built-in objects: which empty values they carry, and canonical quantities and times.

Clients of Kubernetes see objects as its server's Go types encode them: a string that was set to "" vanishes
where the field is optional, stays where it is a pointer; a struct held by value is there even when nobody set
it (``status: {}``); a list without ``omitempty`` shows as null. Which field is which: ``wire_rules``.

``normalize`` brings a document into that form, in place. It is compiled per definition on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.quantity import Quantity
from kubecore.schema.model import Schema

from .wire_rules import is_quantity, rules_of

Normal = Callable[[Any], Any]
"""Normalizes one value (which is not None) and returns it, the same object where it is a container."""

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CANONICAL_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_PLAIN_QUANTITY = re.compile(r"[1-9][0-9]{0,2}([mkMGT]|[KMGT]i)?")
_MILLI = -3
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


class _Definition:
    """Normalizes objects of one schema node."""

    __slots__ = ("children", "keep", "nulls", "objects", "quantities", "required", "schema", "zeros")

    def __init__(self, schema: Schema) -> None:
        properties, rules = schema.properties, rules_of(schema)
        self.schema = schema
        self.keep = rules.keep
        # An object is null only when unset; an empty list or map is as good as an unset one.
        self.nulls = tuple((name, bool(properties[name].properties)) for name in rules.nulls)
        self.objects, self.quantities = rules.objects, rules.quantities
        self.zeros = tuple((name, _ZEROS.get(properties[name].type, 0)) for name in rules.zeros)
        self.required = frozenset((*rules.nulls, *rules.quantities, *rules.zeros))
        self.children: dict[str, tuple[Normal | None, bool]] = {}

    def child(self, name: str) -> tuple[Normal | None, bool]:
        """How to normalize field `name`, and whether its empty value is dropped."""
        found = self.children.get(name)
        if found is None:
            schema = self.schema.properties.get(name)
            found = (None, False)
            if schema is not None:
                found = (schema.derive(_compile), self._drops_empty(name, schema))
            self.children[name] = found
        return found

    def _drops_empty(self, name: str, schema: Schema) -> bool:
        if name in self.keep or name in self.required or schema.int_or_string or is_quantity(schema):
            return False
        if schema.type == "object":
            return schema.additional_properties is not None
        return schema.type != ""

    def normalize(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        child = self.child
        for name in list(value):
            normal, drops = child(name)
            field = value[name]
            if field is None:
                if name in self.schema.properties:
                    del value[name]
                continue
            if drops and not field:
                del value[name]
                continue
            if normal is not None:
                value[name] = normal(field)
        for name in self.objects:
            if name not in value:
                normal, _ = child(name)
                value[name] = normal({}) if normal is not None else {}
        for name, zero in self.zeros:
            value.setdefault(name, zero)
        for name in self.quantities:
            value.setdefault(name, "0")
        for name, pointer in self.nulls:
            field = value.get(name)
            if field is None or (not pointer and not field and not isinstance(field, str)):
                value[name] = None
        return value


def _compile(schema: Schema) -> Normal | None:
    """How to normalize values of `schema`; None when they are fine as they are."""
    name = schema.definition or ""
    if name.endswith(".Quantity"):
        return canonical_quantity
    if name.endswith("meta.v1.Time"):
        return canonical_time
    if name.endswith("meta.v1.MicroTime"):
        return canonical_micro_time
    if schema.type == "array" and schema.items is not None:
        return _list_normal(schema.items)
    if schema.properties:
        return _Definition(schema).normalize
    if schema.additional_properties is not None:
        return _map_normal(schema.additional_properties)
    return None


def _list_normal(items: Schema) -> Normal | None:
    zero = _zero(items)

    def normalize(value: Any) -> Any:
        if isinstance(value, list):
            normal = items.derive(_compile)
            for position, item in enumerate(value):
                present = zero() if item is None else item
                value[position] = present if normal is None else normal(present)
        return value

    return normalize


def _map_normal(values: Schema) -> Normal:
    zero = _zero(values)

    def normalize(value: Any) -> Any:
        if isinstance(value, dict):
            normal = _canonical_amount if is_quantity(values) else values.derive(_compile)
            for key, item in value.items():
                if item is None:
                    value[key] = zero()
                elif normal is not None:
                    value[key] = normal(item)
        return value

    return normalize


def _zero(schema: Schema) -> Callable[[], Any]:
    """What null stands for in a list or map of `schema`."""
    if is_quantity(schema):
        return lambda: "0"
    if schema.properties:
        return dict
    zero = _ZEROS.get(schema.type)
    return lambda: zero


def canonical_quantity(value: Any) -> Any:
    """A quantity in canonical form (``0.5`` is ``500m``); an invalid one is not changed."""
    if isinstance(value, str) and _PLAIN_QUANTITY.fullmatch(value):
        return value
    try:
        return str(Quantity.parse(value))
    except ValueError:
        return value


def _canonical_amount(value: Any) -> Any:
    """A quantity in a resource list, rounded up to thousandths."""
    if isinstance(value, str) and _PLAIN_QUANTITY.fullmatch(value):
        return value
    try:
        return str(Quantity.parse(value).rounded_up(_MILLI))
    except ValueError:
        return value


def canonical_time(value: Any) -> Any:
    """A time in UTC with whole seconds; an invalid one is not changed."""
    if not isinstance(value, str) or _CANONICAL_TIME.fullmatch(value):
        return value
    return _reformat(value, times.format_time)


def canonical_micro_time(value: Any) -> Any:
    """A time in UTC with microseconds; an invalid one is not changed."""
    if not isinstance(value, str) or _CANONICAL_MICRO_TIME.fullmatch(value):
        return value
    return _reformat(value, times.format_micro_time)


def _reformat(value: str, written: Callable[[datetime], str]) -> str:
    try:
        moment = datetime.fromisoformat(value)
        return value if moment.tzinfo is None else written(moment)
    except (ValueError, OverflowError):
        return value


def normalize(document: JsonObject, schema: Schema) -> JsonObject:
    """Bring `document`, an object of `schema`, into its wire form, in place. Returns it."""
    normal = schema.derive(_compile)
    if normal is not None:
        normal(document)
    return document


def empty(schema: Schema, field: str) -> JsonObject:
    """The wire form of an unset object field of `schema` (a status, for example)."""
    child = schema.properties.get(field)
    return {} if child is None else normalize({}, child)
