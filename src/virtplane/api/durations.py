"""Lengths of time as Go writes them (`1h30m`, `300ms`)."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^.\d]*)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 2**63 / 1e9


def parse_duration(text: str) -> timedelta:
    """The duration in `text`. Raises ValueError with Go's message if it is invalid."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta()
    seconds, position = 0.0, 0
    while rest[position:]:
        part = _PART.match(rest, position)
        if part is None:
            break
        if part[2] not in _SECONDS:
            problem = f'unknown unit "{part[2]}"' if part[2] else "missing unit"
            raise ValueError(f'time: {problem} in duration "{text}"')
        seconds += float(part[1]) * _SECONDS[part[2]]
        position = part.end()
    if not rest or position != len(rest) or seconds > _LONGEST_SECONDS:
        raise ValueError(f'time: invalid duration "{text}"')
    return timedelta(seconds=sign * seconds)
