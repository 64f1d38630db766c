"""Conversions between types, ``format``, and the parts of timestamps and durations."""

from __future__ import annotations

import datetime
import math
import re
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kubecore.objects import times

from .declarations import function, method
from .operators import to_int, to_uint
from .values import EvaluationError, TypeValue, size_of, type_of

_NAMES = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)\Z", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_REAL = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)\Z", re.I | re.ASCII
)
_TRUE, _FALSE = {"1", "t", "T", "true", "TRUE", "True"}, {"0", "f", "F", "false", "FALSE", "False"}
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)\Z", re.ASCII)
_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d*))?(.)?)", re.DOTALL)
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def _unconvertible(value: Any, kind: str) -> EvaluationError:
    source = _NAMES.get(type_of(value), type_of(value))
    return EvaluationError(f"type conversion error from '{source}' to '{_NAMES.get(kind, kind)}'")


def _refuser(kind: str) -> Callable[[Any], Any]:
    """What is tried last: a conversion that no other overload makes."""

    def refuse(value: Any) -> Any:
        raise _unconvertible(value, kind)

    return refuse


def _duration(text: str) -> datetime.timedelta:
    if not _DURATION.match(text):
        raise _unconvertible(text, "duration")
    seconds = sum(float(part[1]) * _UNITS[part[2]] for part in _DURATION_PART.finditer(text))
    return _span(-seconds if text.startswith("-") else seconds)


def _span(seconds: float) -> datetime.timedelta:
    if abs(seconds) > 315_576_000_000:
        raise EvaluationError("duration out of range")
    return datetime.timedelta(seconds=seconds)


def _timestamp(text: str) -> datetime.datetime:
    try:
        return times.parse_time(text)
    except ValueError:
        raise _unconvertible(text, "timestamp") from None


def _int(value: float) -> int:
    if not math.isfinite(value) or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _uint(value: float) -> int:
    if not math.isfinite(value) or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return to_uint(int(value))


def _parsed_int(text: str) -> int:
    if not _INTEGER.match(text) or not -(2**63) <= int(text[:32]) < 2**63:
        raise _unconvertible(text, "int")
    return int(text)


def _parsed_uint(text: str) -> int:
    if not text.isdigit() or not text.isascii() or int(text[:32]) >= 2**64:
        raise _unconvertible(text, "uint")
    return to_uint(int(text))


def _parsed_double(text: str) -> float:
    if not _REAL.match(text):
        raise _unconvertible(text, "double")
    return float(text)


def _parsed_bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise _unconvertible(text, "bool")
    return text in _TRUE


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """The shortest text of a number, as Go's ``%g`` writes it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    number = Decimal(repr(value)).normalize()
    exponent = number.adjusted()
    if -4 <= exponent < 6:
        return f"{number:f}"
    mantissa = number.scaleb(-exponent)
    return f"{mantissa:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def text_of(value: Any) -> str:
    """The text of a scalar, as ``string(value)`` gives it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".") + "Z"
    return value.name if isinstance(value, TypeValue) else str(value)


def _shown(value: Any) -> str:
    """What ``%s`` makes of a value."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        entries = sorted((_shown(key), _shown(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in entries) + "}"
    return "null" if value is None else text_of(value)


def _format(text: str, values: list[Any]) -> str:
    """``'%s has %d'.format([...])``."""
    remaining = iter(values)

    def clause(found: re.Match[str]) -> str:
        if found[1]:
            return "%"
        kind, precision = found[3] or "", int(found[2]) if found[2] else 6
        if precision > 1000:
            raise EvaluationError("error during formatting: precision is too large")
        for value in remaining:
            return _clause(kind, precision, value)
        raise EvaluationError(f"error during formatting: index {len(values)} out of range")

    return _CLAUSE.sub(clause, text)


def _clause(kind: str, precision: int, value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == "s":
        return _shown(value)
    if kind == "d" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if whole else double_text(value)
    if kind in ("f", "e") and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.{precision}{kind}}"
    if kind == "b" and isinstance(value, bool):
        return str(int(value))
    if kind in ("b", "o", "x", "X") and whole:
        return f"{value:{kind}}"
    if kind in ("x", "X") and isinstance(value, str | bytes):
        made = (value.encode() if isinstance(value, str) else value).hex()
        return made.upper() if kind == "X" else made
    if kind not in "sdfeboxX":
        raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{kind}"')
    raise EvaluationError(f"error during formatting: unsupported type {type_of(value)} for %{kind}")


def _zone(name: str) -> datetime.tzinfo:
    if found := _OFFSET.match(name):
        minutes = int(found[2]) * 60 + int(found[3])
        return datetime.timezone(datetime.timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _reader(read: Callable[[datetime.datetime], int]) -> Callable[..., int]:
    return lambda moment, zone="UTC": read(moment.astimezone(_zone(zone)))


_OF_TIME: dict[str, Callable[[datetime.datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_OF_DURATION: dict[str, Callable[[datetime.timedelta], int]] = {
    "getHours": lambda span: int(span / datetime.timedelta(hours=1)),
    "getMinutes": lambda span: int(span / datetime.timedelta(minutes=1)),
    "getSeconds": lambda span: int(span.total_seconds()),
    "getMilliseconds": lambda span: int(span / datetime.timedelta(milliseconds=1)),
}
_SAME = {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"}
_SIZED = ("string", "bytes", "list", "map")

FUNCTIONS = (
    *(function(name, name, run=lambda value: value) for name in _SAME),
    function("dyn", "dyn", run=lambda value: value),
    function("type", "dyn", run=lambda value: TypeValue(_NAMES.get(type_of(value), type_of(value)))),
    *(function("size", kind, run=size_of) for kind in _SIZED),
    *(method("size", kind, run=size_of) for kind in _SIZED),
    function("bool", "string", run=_parsed_bool),
    function("bytes", "string", run=str.encode),
    function("double", "string", run=_parsed_double),
    function("double", "int", run=float),
    function("double", "uint", run=float),
    function("duration", "string", run=_duration),
    function("int", "string", run=_parsed_int),
    function("int", "double", run=_int),
    function("int", "uint", run=to_int),
    function("int", "timestamp", run=lambda moment: math.floor((moment - _EPOCH).total_seconds())),
    function("int", "duration", run=lambda span: to_int(round(span.total_seconds() * 1e9))),
    function("uint", "string", run=_parsed_uint),
    function("uint", "double", run=_uint),
    function("uint", "int", run=to_uint),
    function("timestamp", "string", run=_timestamp),
    function("timestamp", "int", run=lambda seconds: _EPOCH + _span(seconds)),
    *(
        function("string", kind, run=text_of)
        for kind in ("bool", "bytes", "double", "duration", "int", "timestamp", "uint")
    ),
    *(function(name, "dyn", run=_refuser(name)) for name in _SAME),
    method("format", "string", "list", run=_format),
    *(method(name, "timestamp", run=_reader(read)) for name, read in _OF_TIME.items()),
    *(method(name, "timestamp", "string", run=_reader(read)) for name, read in _OF_TIME.items()),
    *(method(name, "duration", run=read) for name, read in _OF_DURATION.items()),
)
