"""Operators: arithmetic that does not overflow silently, comparison, membership, indexing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from .records import Record
from .values import NO_OVERLOAD, EvaluationError, Optional, Uint, before, equal, shown

_SIGNED, _UNSIGNED = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
_TIME, _SPAN = datetime.datetime, datetime.timedelta


def to_int(value: int) -> int:
    """A signed number of 64 bits. Raises EvaluationError."""
    if not _SIGNED[0] <= value <= _SIGNED[1]:
        raise EvaluationError("integer overflow")
    return int(value)


def to_uint(value: int) -> Uint:
    """An unsigned number of 64 bits. Raises EvaluationError."""
    if not _UNSIGNED[0] <= value <= _UNSIGNED[1]:
        raise EvaluationError("unsigned integer overflow")
    return Uint(value)


def _number(left: Any, right: Any, whole: Callable[[int, int], int], real: Callable[[Any, Any], Any]) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return to_int(whole(left, right))
        if kind is Uint:
            return to_uint(whole(int(left), int(right)))
        if kind is float:
            return real(left, right)
    raise EvaluationError(NO_OVERLOAD)


def _add(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is other and kind in (str, bytes, list):
        return left + right
    if {kind, other} <= {_TIME, _SPAN} and _SPAN in (kind, other):
        return _moved(lambda: left + right)
    return _number(left, right, lambda a, b: a + b, lambda a, b: a + b)


def _subtract(left: Any, right: Any) -> Any:
    if type(left) in (_TIME, _SPAN) and (type(right) is _SPAN or type(right) is type(left)):
        return _moved(lambda: left - right)
    return _number(left, right, lambda a, b: a - b, lambda a, b: a - b)


def _moved(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


def _multiply(left: Any, right: Any) -> Any:
    return _number(left, right, lambda a, b: a * b, lambda a, b: a * b)


def _divide(left: Any, right: Any) -> Any:
    def whole(a: int, b: int) -> int:
        if b == 0:
            raise EvaluationError("division by zero")
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def real(a: float, b: float) -> float:
        if b:
            return a / b
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)

    return _number(left, right, whole, real)


def _modulo(left: Any, right: Any) -> Any:
    def whole(a: int, b: int) -> int:
        if b == 0:
            raise EvaluationError("modulus by zero")
        return abs(a) % abs(b) * (-1 if a < 0 else 1)

    if type(left) is float:
        raise EvaluationError(NO_OVERLOAD)
    return _number(left, right, whole, lambda a, b: a)


def _negate(value: Any) -> Any:
    if type(value) is int:
        return to_int(-value)
    if type(value) is float:
        return -value
    raise EvaluationError(NO_OVERLOAD)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(NO_OVERLOAD)
    return not value


def _within(value: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return isinstance(value, str | int | float) and value in container
    if isinstance(container, list):
        return any(equal(value, each) for each in container)
    raise EvaluationError(NO_OVERLOAD)


def index(container: Any, key: Any) -> Any:
    """``container[key]``. Raises EvaluationError."""
    if isinstance(container, Optional):
        return optional_index(container, key)
    if isinstance(container, dict):
        if not isinstance(key, str | int | float):
            raise EvaluationError(NO_OVERLOAD)
        if key not in container:
            raise EvaluationError(f"no such key: {str(key).lower() if isinstance(key, bool) else key}")
        return container[key]
    if not isinstance(container, list) or isinstance(key, bool) or not isinstance(key, int | float):
        raise EvaluationError(NO_OVERLOAD)
    if not float(key).is_integer():
        raise EvaluationError(f"unsupported index value {key}")
    if not 0 <= key < len(container):
        raise EvaluationError(f"index out of bounds: {int(key)}")
    return container[int(key)]


def field(container: Any, name: str) -> Any:
    """``container.name``; null and scalars count as objects without fields. Raises EvaluationError."""
    if isinstance(container, dict) and name in container:
        return container[name]
    if isinstance(container, Optional):
        return optional_index(container, name)
    if isinstance(container, Record):
        return container.get(name)
    raise EvaluationError(f"no such key: {name}")


def optional_index(container: Any, key: Any) -> Optional:
    """``container[?key]`` and ``container.?key``. Raises EvaluationError."""
    if isinstance(container, Optional):
        return optional_index(container.held[0], key) if container.held else container
    if isinstance(container, dict):
        if not isinstance(key, str | int | float):
            raise EvaluationError(NO_OVERLOAD)
        return Optional((container[key],)) if key in container else Optional()
    if isinstance(container, list):
        there = isinstance(key, int | float) and 0 <= key < len(container) and float(key).is_integer()
        return Optional((index(container, key),)) if there else Optional()
    raise EvaluationError(f"no such key: {shown(key)}")


OPERATORS: Final[Mapping[str, Callable[..., Any]]] = {
    "_==_": equal,
    "_!=_": lambda left, right: not equal(left, right),
    "_<_": before,
    "_>_": lambda left, right: before(right, left),
    "_<=_": lambda left, right: before(left, right) or left == right,
    "_>=_": lambda left, right: before(right, left) or left == right,
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _multiply,
    "_/_": _divide,
    "_%_": _modulo,
    "-_": _negate,
    "!_": _not,
    "@in": _within,
    "_[_]": index,
    "_[?_]": optional_index,
    "_?._": optional_index,
}
