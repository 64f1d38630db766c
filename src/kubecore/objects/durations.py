"""Lengths of time as Go reads and writes them (`1h30m0s`, `300ms`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from kubecore.objects.fields import go_quote

_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^.0-9]*)")
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_LONGEST_SECONDS: Final = 2**63 / 1e9


def seconds_of(text: str) -> float:
    """The seconds that `text` names. Raises ValueError, in Go's words, where it names none."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    seconds, position = 0.0, 0
    while part := _PART.match(rest, position):
        if part[2] not in _SECONDS:
            problem = f"unknown unit {go_quote(part[2])}" if part[2] else "missing unit"
            raise ValueError(f"time: {problem} in duration {go_quote(text)}")
        seconds += float(part[1]) * _SECONDS[part[2]]
        position = part.end()
    if not rest or position != len(rest) or seconds > _LONGEST_SECONDS:
        raise ValueError(f"time: invalid duration {go_quote(text)}")
    return sign * seconds


def text_of(length: timedelta) -> str:
    """`length` in Go's form: from a second on with all smaller units, less than that in the one that fits."""
    microseconds = abs(length) // timedelta(microseconds=1)
    sign = "-" if length < timedelta() else ""
    if 0 < microseconds < 1000:
        return f"{sign}{microseconds}\u00b5s"
    if 0 < microseconds < 1_000_000:
        return f"{sign}{_decimal(microseconds, 3)}ms"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_decimal(rest, 6)}s"


def _decimal(value: int, places: int) -> str:
    whole, fraction = divmod(value, 10**places)
    return f"{whole}.{fraction:0{places}}".rstrip("0").rstrip(".") if fraction else str(whole)
