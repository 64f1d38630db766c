"""Validation of strings and numbers (see ``validation``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kubecore.objects.fields import FieldError, invalid, too_long

from .formats import INTEGER_RANGES
from .model import Schema
from .regexes import Pattern, PatternError


class Findings(list[FieldError]):
    """Errors, and the names of values whose errors do not count since they are `unchanged`."""

    def __init__(self, *, unchanged: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.unchanged = unchanged


Check = Callable[[Any, str, Findings], None]
"""(value, name, errors). The name is relative to the validated value: ``spec.list[0]``."""

_MAX_FLOAT32 = 3.40282346638528859811704183484516925440e38
NO_PATH = "<nil>"
"""Where errors are filed that name the value in their text only."""


def string_checks(schema: Schema) -> Iterator[Check]:
    """``minLength``, ``maxLength`` and ``pattern`` of a string."""
    raw = schema.raw
    longest, shortest, pattern = raw.get("maxLength"), raw.get("minLength"), raw.get("pattern")
    if longest is not None:

        def check_longest(value: str, name: str, errors: Findings) -> None:
            if len(value) > longest:
                errors.append(too_long(name, longest))

        yield check_longest
    if shortest:

        def check_shortest(value: str, name: str, errors: Findings) -> None:
            if len(value) < shortest:
                errors.append(
                    invalid(name, value, f"{name} in body should be at least {shortest} chars long")
                )

        yield check_shortest
    if pattern:
        yield _pattern_check(pattern)


def _pattern_check(pattern: str) -> Check:
    try:
        matches = Pattern(pattern).matches
    except PatternError:

        def matches(text: str) -> bool:
            return False

    def check(value: str, name: str, errors: Findings) -> None:
        if not matches(value):
            errors.append(invalid(name, value, f"{name} in body should match '{pattern}'"))

    return check


def number_checks(schema: Schema) -> Iterator[Check]:
    """Range and ``multipleOf`` of a number."""
    raw = schema.raw
    if schema.type == "integer":
        yield _integer_check(schema.format)
    if schema.type == "number" and schema.format == "float":
        yield _check_float
    multiple = raw.get("multipleOf")
    if multiple:

        def check_multiple(value: float, name: str, errors: Findings) -> None:
            quotient = value / multiple if isinstance(multiple, float) else value % multiple
            if quotient != (int(quotient) if isinstance(multiple, float) else 0):
                errors.append(
                    invalid(name, value, f"{name} in body should be a multiple of {_number(multiple)}")
                )

        yield check_multiple
    maximum, minimum = raw.get("maximum"), raw.get("minimum")
    if maximum is not None:
        exclusive = bool(raw.get("exclusiveMaximum"))

        def check_maximum(value: float, name: str, errors: Findings) -> None:
            if value > maximum or (exclusive and value == maximum):
                words = "less than" if exclusive else "less than or equal to"
                errors.append(invalid(name, value, f"{name} in body should be {words} {_number(maximum)}"))

        yield check_maximum
    if minimum is not None:
        exclusive_minimum = bool(raw.get("exclusiveMinimum"))

        def check_minimum(value: float, name: str, errors: Findings) -> None:
            if value < minimum or (exclusive_minimum and value == minimum):
                words = "greater than" if exclusive_minimum else "greater than or equal to"
                errors.append(invalid(name, value, f"{name} in body should be {words} {_number(minimum)}"))

        yield check_minimum


def _check_float(value: float, name: str, errors: Findings) -> None:
    if abs(value) > _MAX_FLOAT32:
        errors.append(
            invalid(NO_PATH, "", f"Checked value must be of type number with format float in {name}")
        )


def _integer_check(format_name: str) -> Check:
    bounds = INTEGER_RANGES.get(format_name)
    words = f"with format {format_name}" if bounds else "(default format)"
    low, high = bounds or INTEGER_RANGES["int64"]

    def check(value: float, name: str, errors: Findings) -> None:
        if value != int(value) or not low <= value <= high:
            errors.append(invalid(NO_PATH, "", f"Checked value must be of type integer {words} in {name}"))

    return check


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
