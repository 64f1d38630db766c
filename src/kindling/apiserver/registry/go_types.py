"""Values of the wrong JSON type, in the words that clients of built-in kinds know.

Kubernetes decodes built-in objects into Go structs; what its decoder says names the struct, the path of the
field without indices, and the Go type. All of that follows from the published schemas.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.fields import go_quote
from kubecore.objects.goformat import json_type
from kubecore.objects.quantity import Quantity
from kubecore.schema.model import Schema

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_TIME_TYPES = ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", _MICRO_TIME)
_JSON_SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_QUANTITY_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_INT_BITS = {"int32": 32, "int64": 64}

_Check = Callable[[Any, "_Place"], None]
"""Raises for a value of a wrong type; never called with None, which fits any."""


class _Mismatch(Exception):
    """Carries the error out of the walk; the text of a number is filled in later."""

    def __init__(self, found: str, place: _Place, go_type: str, value: Any, kind: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.kind = kind or go_type
        """What kind of Go type it is: ``struct``, ``map``, ``slice``, or the basic type."""
        self.place = place
        self.go_type = go_type
        self.value = value


class _Other(Exception):
    """A complaint that names no field."""


class _Place:
    """The Go struct and the path of the current field."""

    __slots__ = ("keys", "path", "struct")

    def __init__(self, struct: str, path: str, keys: tuple[str | int, ...]) -> None:
        self.struct = struct
        self.path = path
        self.keys = keys

    def field(self, struct: str, name: str, embedded: str) -> _Place:
        parts = [part for part in (self.path, embedded, name) if part]
        return _Place(struct, ".".join(parts), (*self.keys, name))

    def element(self, key: str | int) -> _Place:
        return _Place(self.struct, self.path, (*self.keys, key))


def type_error(document: JsonObject, schema: Schema, raw: bytes = b"", *, restored: bool = False) -> str:
    """The decoder's complaint about the first value of a wrong type; empty when all fit.

    `raw` is the text that was decoded, for numbers as they were written. `restored` says that the document is
    the outcome of a strategic merge patch, which another part of Kubernetes turns into Go structs.
    """
    try:
        schema.derive(_compile)(document, _Place("", "", ()))
    except _Mismatch as mismatch:
        if restored:
            return _not_restorable(mismatch)
        found = mismatch.found
        if found == "number" and mismatch.go_type in _INT_BITS:
            found = f"number {_literal(raw, mismatch.place.keys, mismatch.value)}"
        place = mismatch.place
        where = f"Go struct field {place.struct}.{place.path}" if place.struct else "Go value"
        return f"json: cannot unmarshal {found} into {where} of type {mismatch.go_type}"
    except _Other as other:
        return str(other)
    return ""


def _not_restorable(mismatch: _Mismatch) -> str:
    """What is said of a value that was not decoded from text: Go's conversions of numbers are tried first."""
    go_type, kind = mismatch.go_type, mismatch.kind
    found = {"array": "slice", "object": "map"}.get(mismatch.found, mismatch.found)
    if found == "number":
        is_int64 = isinstance(mismatch.value, int) and -(1 << 63) <= mismatch.value < 1 << 63
        found = "int64" if is_int64 else "float64"
    if kind in ("map", "slice"):
        return f"cannot restore {kind} from {found}"
    if kind == "struct":
        return f"cannot restore struct from: {found}"
    if found in ("float64", "int64") and kind != "bool" and (kind, found) != ("string", "float64"):
        return f"cannot convert {found} to {go_type}"
    return f"unrecognized type: {kind}"


def _literal(raw: bytes, keys: tuple[str | int, ...], value: Any) -> str:
    """A number as it was written."""
    try:
        here: Any = json.loads(raw, parse_float=str, parse_int=str)
        for key in keys:
            here = here[key]
    except (ValueError, LookupError, TypeError):
        here = value
    return str(here)


def _accept(value: Any, place: _Place) -> None:
    """Accept any value."""


def _compile(schema: Schema) -> _Check:
    """The check for one schema node."""
    if schema.definition == _QUANTITY:
        return _check_quantity
    if schema.definition == _MICRO_TIME:
        return _check_micro_time
    if schema.definition in _TIME_TYPES or schema.format == "date-time":
        return _check_time
    if schema.definition in (
        f"{_JSON_SCHEMA}OrArray",
        f"{_JSON_SCHEMA}OrBool",
        f"{_JSON_SCHEMA}OrStringArray",
    ):
        return _schema_or_other(schema)
    if schema.int_or_string:
        return _check_int_or_string
    if schema.type in ("object", "") and schema.properties:
        return _struct(schema)
    if schema.type == "object" and schema.additional_properties is not None:
        return _collection(schema, schema.additional_properties, dict, "map")
    if schema.type == "array" and schema.items is not None:
        return _collection(schema, schema.items, list, "slice")
    return _scalar(schema)


def _struct(schema: Schema) -> _Check:
    name = (schema.definition or "").rpartition(".")[2]
    go_type = _go_type(schema)
    checks: dict[str, _Check] = {}
    properties = schema.properties
    embedded = schema.raw.get("x-go-embedded") or {}

    def check(value: Any, place: _Place) -> None:
        if type(value) is not dict:
            raise _Mismatch(json_type(value), place, go_type, value, "struct")
        for key, child in value.items():
            found = checks.get(key)
            if found is None:
                node = properties.get(key)
                found = checks[key] = node.derive(_compile) if node is not None else _accept
            if found is not _accept and child is not None:
                found(child, place.field(name, key, embedded.get(key, "")))

    return check


def _schema_or_other(schema: Schema) -> _Check:
    """A value that decodes itself: a JSON schema or, by the definition's name, what else it may be.

    The decoder starts anew there, so what it says names neither struct nor path around it. What is neither
    object nor list is skipped where lists are possible.
    """
    inner = schema.branch({"$ref": _JSON_SCHEMA}).derive
    or_bool = (schema.definition or "").endswith("OrBool")
    of_strings = (schema.definition or "").endswith("OrStringArray")
    strings = _typed(str, "string")

    def check(value: Any, place: _Place) -> None:
        here = _Place("", "", place.keys)
        if type(value) is dict:
            inner(_compile)(value, here)
        elif or_bool and type(value) is not bool:
            raise _Other("boolean or JSON schema expected")
        elif type(value) is list:
            one = strings if of_strings else inner(_compile)
            for index, child in enumerate(value):
                if child is not None:
                    one(child, here.element(index))

    return check


def _collection(schema: Schema, items: Schema, wanted: type, kind: str) -> _Check:
    """A map (`wanted` is dict) or a list."""
    go_type = _go_type(schema)
    inner = items.derive(_compile)
    pairs: Callable[[Any], Iterable[tuple[Any, Any]]] = dict.items if wanted is dict else enumerate

    def check(value: Any, place: _Place) -> None:
        if type(value) is not wanted:
            raise _Mismatch(json_type(value), place, go_type, value, kind)
        for key, child in pairs(value):
            if child is not None:
                inner(child, place.element(key))

    return check


def _scalar(schema: Schema) -> _Check:
    kind, go_type = schema.type, _go_type(schema)
    if kind == "string":
        return _bytes if schema.format == "byte" else _typed(str, go_type)
    if kind == "boolean":
        return _typed(bool, "bool")
    if kind == "integer":
        return _integer(go_type)
    if kind == "number":

        def check(value: Any, place: _Place) -> None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _Mismatch(json_type(value), place, go_type, value)

        return check
    return _accept


def _typed(wanted: type, go_type: str) -> _Check:
    def check(value: Any, place: _Place) -> None:
        if type(value) is not wanted:
            raise _Mismatch(json_type(value), place, go_type, value, "string" if wanted is str else "bool")

    return check


def _integer(go_type: str) -> _Check:
    limit = 1 << (_INT_BITS.get(go_type, 64) - 1)

    def check(value: Any, place: _Place) -> None:
        if type(value) is not int or not -limit <= value < limit:
            raise _Mismatch(json_type(value), place, go_type, value)

    return check


def _bytes(value: Any, place: _Place) -> None:
    if type(value) is not str:
        raise _Mismatch(json_type(value), place, "[]uint8", value, "slice")
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        position = next(
            (index for index, char in enumerate(value) if not (char.isalnum() or char in "+/=\r\n")), None
        )
        if position is None:
            position = len(value.rstrip("=")) // 4 * 4 if "=" in value else len(value) // 4 * 4
        raise _Other(f"illegal base64 data at input byte {position}") from error


def _check_int_or_string(value: Any, place: _Place) -> None:
    if type(value) is str:
        return
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise _Mismatch(json_type(value), place, "int32", value)


def _check_quantity(value: Any, place: _Place) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Other(_QUANTITY_FORM)
    try:
        Quantity.parse(value)
    except ValueError as error:
        raise _Other(str(error) or _QUANTITY_FORM) from error


def _check_micro_time(value: Any, place: _Place) -> None:
    _check_time(value, place, _MICRO_LAYOUT)


def _check_time(value: Any, place: _Place, layout: str = _LAYOUT) -> None:
    if type(value) is not str:
        raise _Mismatch(json_type(value), place, "string", value)
    problem = time_problem(value, layout)
    if problem:
        raise _Other(f"parsing time {go_quote(value)}{problem}")


_TIME_PARTS = (
    ("", "2006", re.compile(r"\d{4}", re.ASCII), "", 1 << 16),
    ("-", "01", re.compile(r"\d\d", re.ASCII), "month", 13),
    ("-", "02", re.compile(r"\d\d", re.ASCII), "", 1 << 16),
    ("T", "15", re.compile(r"\d\d?", re.ASCII), "hour", 24),
    (":", "04", re.compile(r"\d\d", re.ASCII), "minute", 60),
    (":", "05", re.compile(r"\d\d", re.ASCII), "second", 60),
)
"""Of each part of a time: what precedes it, its name in the layout, its form, its name, and its limit."""
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d", re.ASCII)


def time_problem(text: str, layout: str = _LAYOUT) -> str:
    """The error of Go's time parser, without the time itself; empty for a valid time."""
    rest, numbers = text, []

    def unlike(part: str) -> str:
        return f" as {go_quote(layout)}: cannot parse {go_quote(rest)} as {go_quote(part)}"

    for literal, part, form, name, limit in _TIME_PARTS:
        if not rest.startswith(literal):
            return unlike(literal)
        rest = rest[len(literal) :]
        found = form.match(rest)
        if found is None:
            return unlike(part)
        rest = rest[found.end() :]
        numbers.append(int(found[0]))
        if numbers[-1] >= limit or (name == "month" and not numbers[-1]):
            return f": {name} out of range"
    fraction = re.match(r"\.\d{6}(?!\d)" if layout == _MICRO_LAYOUT else r"(?:\.\d+)?", rest, re.ASCII)
    if fraction is None:
        return unlike(".000000")
    rest = rest[fraction.end() :]
    zone = _ZONE.match(rest)
    if zone is None:
        return unlike("Z07:00")
    if zone.end() < len(rest):
        return f": extra text: {go_quote(rest[zone.end() :])}"
    year, month, day = numbers[:3]
    # The year 0 is a leap year, like the year 4; Python's calendar begins with the year 1.
    return "" if 1 <= day <= calendar.monthrange(year or 4, month)[1] else ": day out of range"


def _go_type(schema: Schema) -> str:
    """The Go type of a schema, as far as it can be known."""
    if "x-go-type" in schema.raw:
        return str(schema.raw["x-go-type"])
    if schema.definition:
        parts = schema.definition.split(".")
        return ".".join(parts[-2:])
    if schema.type == "array":
        return f"[]{_go_type(schema.items)}" if schema.items is not None else "[]interface {}"
    if schema.type == "object":
        values = schema.additional_properties
        return f"map[string]{_go_type(values)}" if values is not None else "map[string]interface {}"
    if schema.type == "integer":
        return schema.format or "int64"
    if schema.type == "string" and schema.format == "byte":
        return "[]uint8"
    return {"string": "string", "boolean": "bool", "number": "float64"}.get(schema.type, "interface {}")
