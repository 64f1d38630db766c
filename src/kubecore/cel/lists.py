"""Functions of lists: ``isSorted``, ``sum``, ``min``, ``max``, ``indexOf``, ``lastIndexOf``."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from .declarations import LIST, T, method


def _is_sorted(values: list[Any]) -> bool:
    return all(left <= right for left, right in itertools.pairwise(values))


def _sum(values: list[Any]) -> Any:
    if not values:
        return 0
    if isinstance(values[0], datetime.timedelta):
        return sum(values, datetime.timedelta())
    return sum(values)


def _min(values: list[Any]) -> Any:
    if not values:
        raise ValueError("min called on empty list")
    return min(values)


def _max(values: list[Any]) -> Any:
    if not values:
        raise ValueError("max called on empty list")
    return max(values)


def _index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if _same(value, wanted)), -1)


def _last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(values))) if _same(values[index], wanted)), -1)


def _same(left: Any, right: Any) -> bool:
    """Equality as in CEL: unlike in Python, true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


FUNCTIONS = (
    method("isSorted", LIST, returns=T.BOOL, run=_is_sorted),
    method("sum", LIST, returns=T.DYN, run=_sum),
    method("min", LIST, returns=T.DYN, run=_min),
    method("max", LIST, returns=T.DYN, run=_max),
    method("indexOf", LIST, T.DYN, returns=T.INT, run=_index_of),
    method("lastIndexOf", LIST, T.DYN, returns=T.INT, run=_last_index_of),
)
