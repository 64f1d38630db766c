"""Names of bounded length."""

from __future__ import annotations

LONGEST = 63

_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


def bounded(base: str, suffix: str, longest: int = LONGEST) -> str:
    """``base-suffix``; where that is too long, with a hash in the place of what is left out."""
    name = f"{base}-{suffix}"
    if len(name) <= longest:
        return name
    kept = longest - 10 - len(suffix)
    if kept < 0:
        return f"{base[: longest - 9]}-{_fnv(name)}"
    return f"{base[:kept]}-{_fnv(base)}-{suffix}"


def _fnv(text: str) -> str:
    """FNV-1a of 32 bits, as eight hexadecimal digits."""
    value = _OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return f"{value:08x}"
