"""What an update changed that it may not change, for the words of a refusal."""

from __future__ import annotations

from typing import Any


def difference(new: Any, old: Any, path: str = "") -> str:
    """What differs, one line per field: shown after the words of a refusal."""
    if isinstance(new, dict) and isinstance(old, dict):
        keys = sorted(new.keys() | old.keys())
        return "".join(difference(new.get(key), old.get(key), f"{path}.{key}") for key in keys)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return "".join(
            difference(one, two, f"{path}[{at}]") for at, (one, two) in enumerate(zip(new, old, strict=True))
        )
    return "" if new == old else f"-{path.lstrip('.')}: {old!r}\n+{path.lstrip('.')}: {new!r}\n"
