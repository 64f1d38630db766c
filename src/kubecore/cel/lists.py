"""Functions of lists, sets and maps."""

from __future__ import annotations

import datetime
import functools
import itertools
import operator
from typing import Any

from .declarations import function, method
from .values import NO_OVERLOAD, NONE, EvaluationError, Optional, before, equal, type_of

_ALIKE = {int, str, bool, bytes, datetime.datetime, datetime.timedelta}
_COMPARABLE = {"int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"}


def _are_alike(values: list[Any]) -> bool:
    """Whether Python compares all elements as CEL does."""
    return len(kinds := set(map(type, values))) == 1 and kinds <= _ALIKE


def _is_sorted(values: list[Any]) -> bool:
    if _are_alike(values):
        return all(map(operator.le, values, values[1:]))
    return not any(before(right, left) for left, right in itertools.pairwise(values))


def _sum(values: list[Any]) -> Any:
    if not values:
        return 0
    start = datetime.timedelta() if isinstance(values[0], datetime.timedelta) else type(values[0])()
    return sum(values, start)


def _min(values: list[Any]) -> Any:
    if not values:
        raise ValueError("min called on empty list")
    if _are_alike(values):
        return min(values)
    return functools.reduce(lambda best, value: value if before(value, best) else best, values)


def _max(values: list[Any]) -> Any:
    if not values:
        raise ValueError("max called on empty list")
    if _are_alike(values):
        return max(values)
    return functools.reduce(lambda best, value: value if before(best, value) else best, values)


def _index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if equal(value, wanted)), -1)


def _last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(values))) if equal(values[index], wanted)), -1)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise ValueError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise ValueError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(values):
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    made: list[Any] = []
    for value in values:
        if isinstance(value, list) and depth > 0:
            made += _flatten(value, depth - 1) if depth > 1 else value
        else:
            made.append(value)
    return made


def _sort(values: list[Any]) -> list[Any]:
    return _sort_by(values, values)


def _sort_by(values: list[Any], keys: list[Any]) -> list[Any]:
    if keys and (type_of(keys[0]) not in _COMPARABLE or len({type_of(key) for key in keys}) > 1):
        raise ValueError("list elements must be comparable and of the same type")
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [values[index] for index in order]


def _distinct(values: list[Any]) -> list[Any]:
    made: list[Any] = []
    seen: set[tuple[str, Any]] = set()
    for value in values:
        kind = "number" if type(value) in (float, int) else type_of(value)
        if kind in _COMPARABLE or kind == "number":
            if (kind, value) not in seen:
                seen.add((kind, value))
                made.append(value)
        elif not any(equal(value, known) for known in made):
            made.append(value)
    return made


def _contains(values: list[Any], wanted: list[Any]) -> bool:
    return all(any(equal(value, each) for value in values) for each in wanted)


def _intersects(values: list[Any], others: list[Any]) -> bool:
    return any(any(equal(value, each) for value in values) for each in others)


def _at_end(values: list[Any], index: int) -> Optional:
    return Optional((values[index],)) if values else NONE


def with_entries(known: dict[Any, Any], *entries: Any) -> dict[Any, Any]:
    """Adds a key and its value, or those of a map, to `known` itself. Raises EvaluationError."""
    for key, value in entries[0].items() if len(entries) == 1 else [entries]:
        if key in known:
            raise EvaluationError(f"insert failed: key {key} already exists")
        known[key] = value
    return known


def _absent(value: Any) -> bool:
    return value is None or value in (False, 0, "", b"", [], {}, datetime.timedelta())


def _held(value: Optional) -> Any:
    if not value.held:
        raise ValueError("optional.none() dereference")
    return value.held[0]


def _unwrap(values: list[Any]) -> list[Any]:
    if not all(isinstance(value, Optional) for value in values):
        raise ValueError(NO_OVERLOAD)
    return [value.held[0] for value in values if value.held]


_OPTIONAL = "optional_type"
FUNCTIONS = (
    method("isSorted", "list", run=_is_sorted),
    method("sum", "list", run=_sum),
    method("min", "list", run=_min),
    method("max", "list", run=_max),
    method("indexOf", "list", "dyn", run=_index_of),
    method("lastIndexOf", "list", "dyn", run=_last_index_of),
    method("slice", "list", "int", "int", run=_slice),
    method("flatten", "list", run=_flatten),
    method("flatten", "list", "int", run=_flatten),
    method("sort", "list", run=_sort),
    method("@sortByAssociatedKeys", "list", "list", run=_sort_by),
    function("lists.range", "int", run=lambda count: list(range(count))),
    method("reverse", "list", run=lambda values: values[::-1]),
    method("distinct", "list", run=_distinct),
    method("first", "list", run=lambda values: _at_end(values, 0)),
    method("last", "list", run=lambda values: _at_end(values, -1)),
    function("sets.contains", "list", "list", run=_contains),
    function("sets.intersects", "list", "list", run=_intersects),
    function("sets.equivalent", "list", "list", run=lambda a, b: _contains(a, b) and _contains(b, a)),
    function("cel.@mapInsert", "map", "map", run=lambda known, more: with_entries(dict(known), more)),
    function("cel.@mapInsert", "map", "dyn", "dyn", run=lambda m, k, v: with_entries(dict(m), k, v)),
    function("optional.of", "dyn", run=lambda value: Optional((value,))),
    function(
        "optional.ofNonZeroValue", "dyn", run=lambda value: NONE if _absent(value) else Optional((value,))
    ),
    function("optional.none", run=lambda: NONE),
    function("optional.unwrap", "list", run=_unwrap),
    method("unwrapOpt", "list", run=_unwrap),
    method("value", _OPTIONAL, run=_held),
    method("hasValue", _OPTIONAL, run=lambda value: bool(value.held)),
)
