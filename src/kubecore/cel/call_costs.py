"""Costs of function and operator calls, and the maximum size of their results (see ``costs``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kubecore.schema.model import Schema

from .sizes import UNKNOWN, max_size

LISTS, TEXTS = "list", "text"

_PER_BYTE: Final = 0.1
_PER_PATTERN_BYTE: Final = 0.25
_CHECK_COST: Final = 350_000


@dataclass(frozen=True, slots=True)
class Value:
    """Size estimate of a value. `high` is None for values without a size; a map counts as a list."""

    schema: Schema | None = None
    low: int = 0
    high: int | None = None
    kind: str = ""
    known_element: Value | None = None

    @property
    def size(self) -> int:
        """Its greatest size."""
        return 1 if self.high is None else self.high

    @property
    def is_map(self) -> bool:
        """Whether it has keys."""
        return self.schema is not None and self.schema.type == "object"

    @property
    def element(self) -> Value:
        """An element of a list, or a value of a map."""
        if self.known_element is not None or self.schema is None:
            return self.known_element or SCALAR
        return declared(self.schema.additional_properties if self.is_map else self.schema.items)


SCALAR: Final = Value()
CallCost: TypeAlias = tuple[int, Value]
_CostFunction: TypeAlias = Callable[[list[Value]], CallCost]


def declared(schema: Schema | None) -> Value:
    """The size estimate that a schema gives for its values."""
    if schema is None:
        return SCALAR
    if schema.int_or_string or schema.type == "string":
        return text(max_size(schema))
    if schema.type == "array" or (schema.type == "object" and not schema.properties):
        return Value(schema, 0, max_size(schema), LISTS)
    return Value(schema)


def text(high: int, low: int = 0) -> Value:
    """The estimate for a string of `low` to `high` bytes."""
    return Value(None, low, high, TEXTS)


def times(left: int, right: int) -> int:
    """The product, at most UNKNOWN."""
    return min(UNKNOWN, left * right)


def plus(*parts: int) -> int:
    """The sum, at most UNKNOWN."""
    return min(UNKNOWN, sum(parts))


def _share(size: int, factor: float = _PER_BYTE) -> int:
    """A size times a cost factor, rounded up."""
    return UNKNOWN if size >= UNKNOWN else math.ceil(size * factor)


def call_cost(function: str, values: list[Value]) -> CallCost:
    """The cost of the call itself and the estimate of its result; `values` starts with the receiver."""
    known = _PRICES.get(function)
    return known(values) if known is not None and values else (1, SCALAR)


def _second(values: list[Value]) -> Value:
    return values[1] if len(values) > 1 else SCALAR


def _free(values: list[Value]) -> CallCost:
    return 0, SCALAR


def _comparison(values: list[Value]) -> CallCost:
    return _share(min(values[0].size, _second(values).size)), SCALAR


def _sum(values: list[Value]) -> CallCost:
    left, right = values[0], _second(values)
    size, low = plus(left.size, right.size), plus(left.low, right.low)
    kind = left.kind or right.kind
    if kind == LISTS:
        element = max(left.element, right.element, key=lambda value: value.size)
        return 1, Value(None, low, size, LISTS, element)
    return (_share(size), text(size, low)) if kind == TEXTS else (1, SCALAR)


def _in(values: list[Value]) -> CallCost:
    within = _second(values)
    return (within.size if within.kind == LISTS and not within.is_map else 1), SCALAR


def _itself(values: list[Value]) -> CallCost:
    return 1, values[0]


def _matches(values: list[Value]) -> CallCost:
    walked = _share(plus(values[0].size, 1))
    return times(walked, _share(_second(values).size, _PER_PATTERN_BYTE)), SCALAR


def _find(values: list[Value]) -> CallCost:
    return _matches(values)[0], text(values[0].size)


def _find_all(values: list[Value]) -> CallCost:
    size = values[0].size
    return _matches(values)[0], Value(None, 0, size, LISTS, text(size))


def _contains(values: list[Value]) -> CallCost:
    return times(_share(values[0].size), _share(_second(values).size)), SCALAR


def _by_argument(values: list[Value]) -> CallCost:
    return _share(_second(values).size), SCALAR


def _walked(values: list[Value]) -> CallCost:
    return _share(values[0].size), SCALAR


def _rewritten(values: list[Value]) -> CallCost:
    return _share(values[0].size), text(values[0].size, values[0].low)


def _replace(values: list[Value]) -> CallCost:
    """Every shortest match becomes the longest replacement."""
    if len(values) < 3:
        return 1, SCALAR
    whole, old, new = values[:3]
    if old.low == 0:
        size = plus(times(plus(whole.size, 1), new.size), whole.size)
    elif new.size <= old.low:
        size = whole.size
    else:
        size = times(-(-whole.size // old.low), new.size)
    return _share(whole.size, 2 * _PER_BYTE), text(size)


def _split(values: list[Value]) -> CallCost:
    size = values[0].size
    return _share(size, 2 * _PER_BYTE), Value(None, 0, size, LISTS, text(size))


def _join(values: list[Value]) -> CallCost:
    count = values[0].size
    gaps = times(max(0, count - 1), values[1].size) if len(values) > 1 else 0
    size = plus(times(count, _element_size(values[0])), gaps)
    return _share(size), text(size)


def _element_size(values: Value) -> int:
    """Of lists that expressions make, Kubernetes knows no sizes of elements."""
    return values.element.size if values.schema is not None else UNKNOWN


def _walk(values: list[Value]) -> CallCost:
    """The cost of functions that visit each element once."""
    if values[0].kind != LISTS:
        return _walked(values)
    element = values[0].element
    each = plus(1, _share(_element_size(values[0])) if element.kind == TEXTS else 0)
    return times(values[0].size, each), element


def _pairs(values: list[Value]) -> CallCost:
    return times(values[0].size, _second(values).size), SCALAR


def _format(values: list[Value]) -> CallCost:
    return _share(values[0].size), text(UNKNOWN)


def _string(values: list[Value]) -> CallCost:
    return 1, text(values[0].size if values[0].kind == TEXTS else UNKNOWN)


def _check(values: list[Value]) -> CallCost:
    return _CHECK_COST, SCALAR


_PRICES: Final[Mapping[str, _CostFunction]] = {
    **dict.fromkeys(("_&&_", "_||_"), _free),
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _comparison),
    "_+_": _sum,
    "@in": _in,
    **dict.fromkeys(("_[_]", "_[?_]"), lambda values: (1, values[0].element)),
    **dict.fromkeys(("optional.of", "optional.ofNonZeroValue", "value", "orValue"), _itself),
    "matches": _matches,
    "find": _find,
    "findAll": _find_all,
    "contains": _contains,
    **dict.fromkeys(("startsWith", "endsWith"), _by_argument),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "reverse"), _rewritten),
    **dict.fromkeys(("url", "isURL", "ip", "isIP", "cidr", "isCIDR", "bytes"), _walked),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver", "ip.isCanonical"), _walked),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"), _walk),
    **dict.fromkeys(("sets.contains", "sets.intersects", "sets.equivalent"), _pairs),
    "format": _format,
    "string": _string,
    "check": _check,
}
