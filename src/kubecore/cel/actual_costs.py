"""What a call costs with the arguments that it has (see ``costs`` for what it can cost).

The prices are those of Kubernetes. Where they say nothing about the size of what is worked on, the time that
this server needs is added, so that the limit of an evaluation bounds its time, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from .values import Optional, elements_below, size_of

_PER_BYTE: Final = 0.1
_PER_PATTERN_BYTE: Final = 0.25
_CHECK_COST: Final = 350_000
_SCALARS: Final = frozenset((int, float, bool))
_FREE_WORK: Final = 64
"""So many small steps take as long as one unit of cost."""


def work(steps: int) -> int:
    """The cost of small steps that Kubernetes does not count."""
    return steps // _FREE_WORK


def _share(size: int, factor: float = _PER_BYTE) -> int:
    return math.ceil(size * factor)


def _walked(first: Any, *_: Any) -> int:
    return _share(size_of(first))


def _by_argument(_: Any, part: Any) -> int:
    return _share(size_of(part))


def _comparison(left: Any, right: Any) -> int:
    if type(left) in _SCALARS:
        return 1
    cost = _share(min(size_of(left), size_of(right)))
    if isinstance(left, list | dict | Optional) and type(left) is type(right):
        cost += elements_below(left)
    return cost


def _sum(left: Any, right: Any) -> int:
    if type(left) in _SCALARS:
        return 1
    size = size_of(left) + size_of(right)
    return _share(size) if isinstance(left, str | bytes) else 1 + work(size if isinstance(left, list) else 0)


def _in(value: Any, container: Any) -> int:
    if not isinstance(container, list):
        return 1
    return elements_below(container) if isinstance(value, list | dict | Optional) else len(container)


def _matches(text: Any, pattern: Any, *_: Any) -> int:
    return _share(1 + size_of(text)) * _share(size_of(pattern), _PER_PATTERN_BYTE)


def _contains(text: Any, part: Any) -> int:
    return _share(size_of(text)) * _share(size_of(part))


def _rewritten(text: Any, *_: Any) -> int:
    return _share(size_of(text), 2 * _PER_BYTE)


def _replace(text: Any, old: Any, new: Any, *_: Any) -> int:
    if not all(isinstance(part, str) for part in (text, old, new)):
        return 1
    return _rewritten(text) + work(text.count(old) * len(new))


def _join(parts: Any, separator: Any = "") -> int:
    if not isinstance(parts, list):
        return 1
    return _share(sum(map(size_of, parts)) + size_of(separator) * max(0, len(parts) - 1), 2 * _PER_BYTE)


def _traversal(values: Any, *_: Any) -> int:
    """Functions that look at each element once, or at each byte of a text."""
    if not isinstance(values, list):
        return _share(size_of(values))
    return sum(
        _share(len(value)) if isinstance(value, str | bytes) else elements_below(value) for value in values
    )


def _elements(values: Any, *_: Any) -> int:
    """Functions whose price does not depend on the size of a list."""
    return 1 + work(elements_below(values) * 8)


def _nested(values: Any) -> int:
    """The values inside the elements of a list."""
    return max(0, elements_below(values) - size_of(values) - 1)


def _pairs(left: Any, right: Any) -> int:
    return (size_of(left) + _nested(left)) * size_of(right)


def _distinct(values: Any) -> int:
    return 1 + _nested(values) * size_of(values) + work(size_of(values) ** 2)


def _range(count: Any) -> int:
    return 1 + work(count if isinstance(count, int) else 0)


def _format(text: Any, values: Any = ()) -> int:
    return _walked(text) + work(elements_below(values) * 16)


PRICES: Final[Mapping[str, Callable[..., int]]] = {
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _comparison),
    "_+_": _sum,
    "@in": _in,
    **dict.fromkeys(("matches", "find", "findAll"), _matches),
    "contains": _contains,
    **dict.fromkeys(("startsWith", "endsWith", "validate"), _by_argument),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "url", "isURL"), _walked),
    **dict.fromkeys(
        ("ip", "isIP", "cidr", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _walked
    ),
    **dict.fromkeys(("bytes", "string", "int", "double", "uint", "duration", "timestamp"), _walked),
    **dict.fromkeys(("split", "ip.isCanonical"), _rewritten),
    "replace": _replace,
    "join": _join,
    **dict.fromkeys(("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"), _traversal),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys", "flatten", "reverse", "slice"), _elements),
    **dict.fromkeys(("cel.@mapInsert", "optional.unwrap", "unwrapOpt"), _elements),
    "distinct": _distinct,
    **dict.fromkeys(("sets.contains", "sets.intersects", "sets.equivalent"), _pairs),
    "lists.range": _range,
    "format": _format,
    "check": lambda *_: _CHECK_COST,
}
"""All other functions cost 1."""
