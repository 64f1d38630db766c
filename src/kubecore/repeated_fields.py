"""Fields that JSON text names more than once, and where in the text fields stand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kubecore.objects.fields import go_quote

_MEMBERS = frozenset({"op", "path", "from", "value"})


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs, in order."""


def may_repeat_fields(raw: bytes, encoded: bytes) -> bool:
    """Whether the text of a document, which is `encoded` when written anew, may name a field twice.

    A repeated field is missing in `encoded`, together with its quotes, and all other quotes are in it, except
    those written as escape sequences: so the number of quotes differs.
    """
    if len(encoded) == len(raw.rstrip()):
        return False
    return b"\\u" in raw or raw.count(b'"') != encoded.count(b'"')


def duplicate_fields(raw: bytes) -> list[str]:
    """Paths of fields that one object names more than once, each once."""
    return list(dict.fromkeys(path for path, repeated in _occurrences(_parsed(raw), "") if repeated))


def in_order(raw: bytes, duplicates: Sequence[str], unknown: Sequence[str]) -> list[str]:
    """Complaints about repeated and unknown fields, as a decoder that reads `raw` once would find them.

    Such a decoder skips the values of unknown fields, and does not mind if those are repeated.
    """
    skipped = tuple(f"{path}{sign}" for path in unknown for sign in ".[")
    duplicates = [path for path in duplicates if path not in unknown and not path.startswith(skipped)]
    first: dict[tuple[str, bool], int] = {}
    for position, occurrence in enumerate(_occurrences(_parsed(raw), "")):
        first.setdefault(occurrence, position)
    found = [(first.get((path, False), len(first)), f"unknown field {go_quote(path)}") for path in unknown]
    found += [
        (first.get((path, True), len(first)), f"duplicate field {go_quote(path)}") for path in duplicates
    ]
    return [text for _, text in sorted(found, key=lambda entry: entry[0])]


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None


def _occurrences(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Fields in the order of the text: (path, whether their object has named them before)."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            inner = f"{path}.{key}" if path else key
            yield inner, key in seen
            seen.add(key)
            yield from _occurrences(child, inner)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _occurrences(child, f"{path}[{index}]")


def has_odd_members(patch: Any) -> bool:
    """Whether an operation of a JSON patch has members that operations do not have."""
    operations = patch if isinstance(patch, list) else ()
    return any(isinstance(each, dict) and not each.keys() <= _MEMBERS for each in operations)


def in_operations(raw: bytes) -> list[str]:
    """Complaints about the members of a JSON patch's operations, in the order of the text."""
    found: list[str] = []
    operations = _parsed(raw)
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        seen: set[str] = set()
        for key, _ in operation if isinstance(operation, _Pairs) else ():
            if key not in _MEMBERS:
                found.append(f"json patch unknown field {go_quote(f'[{index}].{key}')}")
            elif key in seen:
                found.append(f"json patch duplicate field {go_quote(f'[{index}].{key}')}")
            seen.add(key)
    return list(dict.fromkeys(found))
