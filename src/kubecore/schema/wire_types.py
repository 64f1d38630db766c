"""Whether a document can be read as an object of its built-in kind, value by value.

The API server decodes requests into typed structures and reports the first value of the wrong type; so does
`decoding_problem`, in the words of Go's decoder: the structure and the field it belongs to, and the type it
should have. `restoring_problem` does the same for the result of a strategic merge patch, which takes another
way through the server and gets other words. Both know only types: what values mean is for validation.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.objects.fields import format_float
from kubecore.objects.goformat import json_type
from kubecore.objects.quantity import Quantity
from kubecore.schema.model import Schema

Mismatch = Callable[[Any, str, str, str], str]
"""(value, structure, field path, Go type) to the message that a value is of the wrong type."""

_INT_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_GO_TYPES: Final = {"string": "string", "boolean": "bool", "number": "float64"}
_LAYOUT: Final = (
    ("2006", "[0-9]{4}"),
    ("-", "-"),
    ("01", "[0-9]{2}"),
    ("-", "-"),
    ("02", "[0-9]{2}"),
    ("T", "T"),
    ("15", "[0-9]{2}"),
    (":", ":"),
    ("04", "[0-9]{2}"),
    (":", ":"),
    ("05", r"[0-9]{2}(?:\.[0-9]+)?"),
    ("Z07:00", r"(?:Z|[+-][0-9]{2}:[0-9]{2})$"),
)


class _WrongType(Exception):
    """Carries the message to the top."""


def decoding_problem(document: JsonObject, schema: Schema) -> str:
    """What Go's JSON decoder says about the first value of the wrong type; empty when all is well."""
    return _problem(document, schema, _cannot_unmarshal)


def restoring_problem(document: JsonObject, schema: Schema) -> str:
    """The same for a document that a strategic merge patch made."""
    return _problem(document, schema, _cannot_restore)


def _problem(document: JsonObject, schema: Schema, mismatch: Mismatch) -> str:
    node = _node(schema)
    if node is None:
        return ""
    try:
        node.check(document, "", "", mismatch)
    except _WrongType as wrong:
        return str(wrong)
    return ""


def _cannot_unmarshal(value: Any, structure: str, path: str, go_type: str) -> str:
    shown = json_type(value)
    if shown == "number" and go_type.startswith("int"):
        shown = f"number {format_float(value) if isinstance(value, float) else value}"
    return f"json: cannot unmarshal {shown} into Go struct field {structure}.{path} of type {go_type}"


def _cannot_restore(value: Any, structure: str, path: str, go_type: str) -> str:
    kind = {"object": "map", "array": "slice", "bool": "bool", "string": "string"}.get(
        json_type(value), "int64"
    )
    if isinstance(value, float):
        kind = "float64"
    if go_type.startswith("map["):
        return f"cannot restore map from {kind}"
    if go_type.startswith("[]"):
        return f"cannot restore slice from {kind}"
    if "." in go_type:
        return f"cannot restore struct from: {kind}"
    return f"cannot convert {kind} to {go_type}"


class _Node:
    """How one value is decoded. `go_type` is the name of its type in messages."""

    __slots__ = ("go_type",)

    def __init__(self, go_type: str) -> None:
        self.go_type = go_type

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """Raise `_WrongType` for the first value that does not fit. Null fits everywhere."""


class _Scalar(_Node):
    """A string, truth value or number, by an optional format."""

    __slots__ = ("_bounds", "_format", "_layout", "_types")

    def __init__(self, schema: Schema) -> None:
        self._types: tuple[type, ...] = {"string": (str,), "boolean": (bool,)}.get(schema.type, (int, float))
        self._format = schema.format if schema.type == "string" else ""
        fraction = ".000000" if (schema.definition or "").endswith(".MicroTime") else ""
        self._layout = f"2006-01-02T15:04:05{fraction}Z07:00"
        self._bounds = _INT_RANGES.get(schema.format or "int64") if schema.type == "integer" else None
        super().__init__(schema.format or "int64" if schema.type == "integer" else _GO_TYPES[schema.type])

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if value is None:
            return
        fits = isinstance(value, self._types) and (bool in self._types or not isinstance(value, bool))
        if fits and self._bounds is not None:
            low, high = self._bounds
            fits = isinstance(value, int) and low <= value <= high
        if not fits:
            raise _WrongType(mismatch(value, structure, path, self.go_type))
        if self._format == "date-time":
            _check_time(value, self._layout)
        elif self._format == "byte":
            _check_base64(value)


class _IntOrString(_Node):
    __slots__ = ()

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if value is None or isinstance(value, str):
            return
        low, high = _INT_RANGES["int32"]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _WrongType(mismatch(value, structure, path, self.go_type))


class _Quantity(_Node):
    __slots__ = ()

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if value is None:
            return
        try:
            Quantity.parse(value if isinstance(value, str | int | float) else "invalid")
        except ValueError as error:
            raise _WrongType(str(error)) from error


class _Struct(_Node):
    """An object with named fields; fields it does not name are not looked at."""

    __slots__ = ("_fields", "_name", "_schema")

    def __init__(self, schema: Schema, go_type: str, name: str) -> None:
        super().__init__(go_type)
        self._schema = schema
        self._name = name
        self._fields: dict[str, _Node | None] = {}

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if not isinstance(value, dict):
            if value is not None:
                raise _WrongType(mismatch(value, structure, path, self.go_type))
            return
        known = self._fields
        for name, child in value.items():
            if name not in known:
                schema = self._schema.properties.get(name)
                known[name] = _node(schema) if schema is not None else None
            node = known[name]
            if node is not None:
                node.check(child, self._name, f"{path}.{name}" if path else name, mismatch)


class _Map(_Node):
    __slots__ = ("_values",)

    def __init__(self, values: _Node) -> None:
        super().__init__(f"map[string]{values.go_type}")
        self._values = values

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if not isinstance(value, dict):
            if value is not None:
                raise _WrongType(mismatch(value, structure, path, self.go_type))
            return
        check = self._values.check
        for child in value.values():
            check(child, structure, path, mismatch)


class _List(_Node):
    __slots__ = ("_items",)

    def __init__(self, items: _Node) -> None:
        super().__init__(f"[]{items.go_type}")
        self._items = items

    def check(self, value: Any, structure: str, path: str, mismatch: Mismatch) -> None:
        """See `_Node`."""
        if not isinstance(value, list):
            if value is not None:
                raise _WrongType(mismatch(value, structure, path, self.go_type))
            return
        check = self._items.check
        for child in value:
            check(child, structure, path, mismatch)


@lru_cache(maxsize=8192)
def _node(schema: Schema) -> _Node | None:
    """How values of `schema` are decoded; None where anything goes."""
    name = schema.definition or ""
    if name.endswith(".Quantity"):
        return _Quantity("resource.Quantity")
    if schema.int_or_string:
        return _IntOrString("int32")
    if schema.type in {"string", "boolean", "integer", "number"}:
        return _Scalar(schema)
    if schema.type == "array":
        items = _node(schema.items) if schema.items is not None else None
        return _List(items or _Node("interface {}"))
    if schema.properties:
        *_, package, short = ("", *name.split(".")) if name else ("", "", "")
        return _Struct(schema, f"{package}.{short}", short)
    if schema.additional_properties is not None:
        values = _node(schema.additional_properties)
        return _Map(values or _Node("interface {}"))
    return None


def _check_time(text: str, layout: str) -> None:
    rest = text
    for element, pattern in _LAYOUT:
        match = re.match(pattern, rest)
        if match is None:
            raise _WrongType(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"')
        rest = rest[match.end() :]


def _check_base64(text: str) -> None:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        if text.translate(_NEWLINES) != text:
            return _check_base64(text.translate(_NEWLINES))
        match = re.match(r"(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{0,4}", text)
        offset = match.end() if match is not None else 0
        raise _WrongType(f"illegal base64 data at input byte {offset}") from None


_NEWLINES: Final = {ord("\n"): None, ord("\r"): None}
