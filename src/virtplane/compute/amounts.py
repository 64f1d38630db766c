"""Amounts of memory and CPU written the way Kubernetes writes them.

Sums keep the notation of what the user wrote (``1Gi`` stays binary, ``1G`` decimal), as the API does.
"""

from __future__ import annotations

import re

from kubecore.objects.quantity import Quantity

KI = 1024
MI = 1024 * KI
GI = 1024 * MI

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
"""Fits the API's integers."""

_BINARY = (
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
)
_DECIMAL = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def to_bytes(text: str | int | float | None) -> int:
    """Bytes of a quantity, rounded up; 0 for none. Raises ValueError for what is no quantity."""
    return Quantity.parse(text).value if text is not None else 0


def to_milli(text: str | int | float | None) -> int:
    """Thousandths of a quantity, rounded up; 0 for none."""
    return Quantity.parse(text).milli_value if text is not None else 0


def whole(text: str) -> int | None:
    """The number in an annotation, which its owner may write; None for what is none, or too large."""
    return int(text) if _WHOLE.fullmatch(text) else None


def binary(count: int) -> str:
    """Bytes in binary notation: ``416Mi``; a plain number where no unit divides it."""
    return _format(count, _BINARY)


def decimal(count: int) -> str:
    """Bytes in decimal notation: ``1050M``."""
    return _format(count, _DECIMAL)


def like(count: int, sample: str | int | float | None) -> str:
    """Bytes in the notation of `sample`; binary when there is none."""
    if sample is None or str(sample).endswith("i"):
        return binary(count)
    return decimal(count)


def cpus(milli: int) -> str:
    """Thousandths of a CPU: ``100m``, ``1600m``, ``2``."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def kilo(count: int) -> int:
    """Bytes in thousands, rounded up (the resolution of some of KubeVirt's own arithmetic)."""
    return -(-count // 1000)


def _format(count: int, units: tuple[tuple[str, int], ...]) -> str:
    for suffix, size in units:
        if count and count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)
