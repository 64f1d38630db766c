"""JSON values as CEL values: timestamps and durations by format, escaped field names."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Mapping
from typing import Any

from kubecore.cel.escaping import RESERVED, cel_name
from kubecore.objects import times
from kubecore.schema.formats import STRING_FORMATS
from kubecore.schema.model import Schema

_SECONDS: Mapping[str, float] = {
    **dict.fromkeys(("ns", "nano"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "micro"), 1e-6),
    **dict.fromkeys(("ms", "milli"), 1e-3),
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hr", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86400),
    **dict.fromkeys(("w", "wk", "week"), 7 * 86400),
}
_DURATION = re.compile(r"([0-9.]+)\s*([a-zµμ]+)")
_TYPED_FORMATS = frozenset({"date", "date-time", "duration", "byte"})


def has_typed_values(schema: Schema) -> bool:
    """Whether rules see values of this schema in another type than they have in JSON."""
    if schema.type == "string" and schema.format in _TYPED_FORMATS:
        return True
    if any(cel_name(name) != name for name in schema.properties):
        return True
    children = [*schema.properties.values(), schema.items, schema.additional_properties]
    return any(child.derive(has_typed_values) for child in children if child is not None)


def to_cel(value: Any, schema: Schema) -> Any:
    """A JSON value as rules see it."""
    if not schema.derive(has_typed_values):
        return value
    if isinstance(value, dict):
        made = {}
        for key, child in value.items():
            found = schema.child(key)
            seen = to_cel(child, found) if found is not None else child
            made[cel_name(key) if key in schema.properties else key] = seen
            if key in RESERVED and key in schema.properties:
                made[key] = seen  # rules may name it either way
        return made
    if isinstance(value, list) and schema.items is not None:
        return [to_cel(item, schema.items) for item in value]
    if isinstance(value, str) and schema.type == "string":
        try:
            return _typed(value, schema.format)
        except (ValueError, OverflowError):
            return value  # the value itself is refused, by its format
    return value


def _typed(value: str, format_name: str) -> Any:
    if format_name == "date-time":
        return times.parse_time(value)
    if format_name == "date":
        day = datetime.date.fromisoformat(value)
        return datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    if format_name == "byte":
        return base64.b64decode(value)
    return _duration(value) if format_name == "duration" else value


def _duration(text: str) -> datetime.timedelta:
    if not STRING_FORMATS["duration"](text):
        raise ValueError("no duration")
    parts = ((float(found[1]), found[2]) for found in _DURATION.finditer(text))
    seconds = sum(
        number * _SECONDS.get(unit, _SECONDS.get(unit.removesuffix("s"), 0)) for number, unit in parts
    )
    return datetime.timedelta(seconds=-seconds if text.startswith("-") else seconds)
