"""Values of expressions: JSON as Python decodes it, and what JSON does not have.

Timestamps are ``datetime`` and durations ``timedelta``; the types below are the rest.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

NO_OVERLOAD: Final = "no such overload"
OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
CALL_TOO_EXPENSIVE: Final = "operation cancelled: actual cost limit exceeded"


class EvaluationError(ValueError):
    """The expression has no value for these variables (a missing field, division by zero)."""


class CostExceededError(EvaluationError):
    """The evaluation cost more than it may; no operator takes this for an ordinary error."""


class Uint(int):
    """An unsigned integer; Python has one kind of integers only."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What ``type(x)`` gives."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value. An absent one has no `held`."""

    held: tuple[Any, ...] = ()


NONE: Final = Optional()


class Opaque(SimpleNamespace):
    """A value of a type that Kubernetes adds, called `kind`; functions read its other attributes."""

    kind: str


_NAMES: Final[Mapping[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    datetime.datetime: "timestamp",
    datetime.timedelta: "duration",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_of(value: Any) -> str:
    """The name of a value's type, as ``signatures`` has it."""
    return _NAMES.get(type(value)) or str(value.kind)


def shown(value: Any) -> str:
    """A value in the text of an error; lists, maps and optional values by their type: they may be endless."""
    return type_of(value) if isinstance(value, list | dict | Optional) else str(value)


def size_of(value: Any) -> int:
    """The characters, bytes, elements or entries of a value; 1 for all others."""
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def equal(left: Any, right: Any) -> bool:
    """Equality as in CEL: numbers compare by value, whatever their types; true is not 1."""
    kind = type(left)
    if kind is type(right):
        if kind in (list, dict) and left != right:
            return False  # what Python tells apart, CEL does, too; it does so in less time
        if kind is list:
            return len(left) == len(right) and all(map(equal, left, right))
        if kind is dict:
            return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
        return bool(left == right)
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return isinstance(left, int | float) and isinstance(right, int | float) and left == right


_ORDERED: Final = (bool, str, bytes, datetime.datetime, datetime.timedelta)


def before(left: Any, right: Any) -> bool:
    """Whether `left` is less than `right`. Raises EvaluationError where the types have no order."""
    if isinstance(left, int | float) and isinstance(right, int | float):
        if isinstance(left, bool) == isinstance(right, bool):
            return left < right
    elif type(left) is type(right) and isinstance(left, _ORDERED):
        return bool(left < right)
    raise EvaluationError(NO_OVERLOAD)


MOST_ELEMENTS: Final = 2_000_000
"""More than one evaluation may cost, so that more need not be counted."""


def elements_below(value: Any) -> int:
    """How many values there are in a value, itself among them; no more than `MOST_ELEMENTS` are counted.

    A list that holds another twice doubles with every nested loop, although it takes little memory.
    """
    total, waiting = 0, [value]
    while waiting and total <= MOST_ELEMENTS:
        current = waiting.pop()
        total += 1
        if isinstance(current, list):
            waiting += current
        elif isinstance(current, dict):
            waiting += current.values()
        elif isinstance(current, Optional):
            waiting += current.held
    return total
