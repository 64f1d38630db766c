"""Lists of indexes of a job, such as ``1,3-5``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubecore.objects.fields import go_quote

_NUMBER = re.compile("[+-]?[0-9]{1,18}", re.ASCII)


def count_indexes(text: str, completions: int) -> int:
    """How many indexes `text` lists, in rising order and below `completions`. Raises ValueError."""
    total, last = 0, None
    for interval in text.split(",") if text else ():
        first, end = _interval(interval, completions)
        if last is not None and last >= first:
            raise ValueError(f"non-increasing order, previous: {last}, current: {first}")
        total += end - first + 1
        last = end
    return total


def shared_index(one: str, other: str, completions: int) -> int | None:
    """The first index that both lists have; what cannot be read in them is passed over."""
    left, right = _readable(one, completions), _readable(other, completions)
    mine, theirs = next(left, None), next(right, None)
    while mine is not None and theirs is not None:
        begin, end = max(mine[0], theirs[0]), min(mine[1], theirs[1])
        if begin <= end:
            return begin
        if mine[0] < theirs[0]:
            mine = next(left, None)
        else:
            theirs = next(right, None)
    return None


def _readable(text: str, completions: int) -> Iterator[tuple[int, int]]:
    for interval in text.split(","):
        try:
            yield _interval(interval, completions)
        except ValueError:
            continue  # reported where the list itself is judged


def _interval(text: str, completions: int) -> tuple[int, int]:
    parts = text.split("-")
    if len(parts) > 2:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise ValueError(f"the fragment {go_quote(text)} {rule}")
    first = _index(parts[0], completions)
    if len(parts) == 1:
        return first, first
    end = _index(parts[1], completions)
    if first >= end:
        raise ValueError(f"non-increasing order, previous: {first}, current: {end}")
    return first, end


def _index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"cannot convert string to integer for index: {go_quote(text)}")
    if int(text) >= completions:
        raise ValueError(f"too large index: {go_quote(text)}")
    return int(text)
