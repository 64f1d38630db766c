"""JSON values as CEL values: timestamps and durations by format, escaped field names."""

from __future__ import annotations

import base64
import datetime
import re
from typing import TYPE_CHECKING, Any

from kubecore.cel.escaping import RESERVED, cel_name
from kubecore.objects import times
from kubecore.schema import Schema

if TYPE_CHECKING:
    from google.protobuf import timestamp_pb2

_DURATION_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"([0-9.]+)(ms|us|µs|ns|h|m|s)")
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
        return _typed(value, schema.format)
    return value


def _typed(value: str, format_name: str) -> Any:
    if format_name == "date-time":
        return _timestamp(times.parse_time(value))
    if format_name == "date":
        day = datetime.date.fromisoformat(value)
        return _timestamp(datetime.datetime.combine(day, datetime.time(), datetime.UTC))
    if format_name == "byte":
        return base64.b64decode(value)
    if format_name == "duration":
        from google.protobuf import duration_pb2  # noqa: PLC0415 - loaded with the interpreter of rules

        seconds = sum(float(found[1]) * _DURATION_UNITS[found[2]] for found in _DURATION.finditer(value))
        made = duration_pb2.Duration()
        made.FromTimedelta(datetime.timedelta(seconds=-seconds if value.startswith("-") else seconds))
        return made
    return value


def _timestamp(moment: datetime.datetime) -> timestamp_pb2.Timestamp:
    """Inside of maps and lists CEL takes times in this form only."""
    from google.protobuf import timestamp_pb2  # noqa: PLC0415 - loaded with the interpreter of rules

    made = timestamp_pb2.Timestamp()
    made.FromDatetime(moment)
    return made
