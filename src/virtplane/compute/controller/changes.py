"""Turning the difference between two states of an object into a guarded JSON patch."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject, get_object


def guarded_patch(old: JsonObject, new: JsonObject, *parents: tuple[str, ...]) -> list[JsonObject]:
    """Operations that change `old` into `new` below each of `parents`, field by field.

    Every changed field is tested for its old value first, so that a writer who got there before makes the
    patch fail instead of being overwritten.
    """
    tests: list[JsonObject] = []
    operations: list[JsonObject] = []
    for parent in parents:
        before, after = get_object(old, *parent), get_object(new, *parent)
        if not _exists(old, parent) and after:
            operations.append({"op": "add", "path": _pointer(*parent), "value": after})
            continue
        for key in sorted({*before, *after}):
            if before.get(key) == after.get(key) and (key in before) == (key in after):
                continue
            path = _pointer(*parent, key)
            if key in before:
                tests.append({"op": "test", "path": path, "value": before[key]})
            operations.append(_operation(path, key in before, key in after, after.get(key)))
    return [*tests, *operations]


def _operation(path: str, was_there: bool, stays: bool, value: Any) -> JsonObject:
    if not stays:
        return {"op": "remove", "path": path}
    return {"op": "replace" if was_there else "add", "path": path, "value": value}


def _exists(document: JsonObject, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(document, dict) or not isinstance(document.get(key), dict):
            return False
        document = document[key]
    return True


def pointer_token(text: str) -> str:
    """A key as part of a JSON pointer."""
    return text.replace("~", "~0").replace("/", "~1")


def _pointer(*path: str) -> str:
    return "".join("/" + pointer_token(part) for part in path)
