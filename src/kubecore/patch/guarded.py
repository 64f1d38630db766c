"""Turning the difference between two states of an object into a JSON patch that guards itself."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject, get_object
from kubecore.objects import meta


def guarded_patch(old: JsonObject, new: JsonObject, *parents: tuple[str, ...]) -> list[JsonObject]:
    """Operations that change `old` into `new` below each of `parents`, field by field; none where equal.

    The object's uid and the old value of every changed field are tested first, absent ones too, so that a
    writer who got there before makes the patch fail (422) instead of being overwritten.
    """
    tests: list[JsonObject] = []
    operations: list[JsonObject] = []
    for parent in parents:
        before, after = get_object(old, *parent), get_object(new, *parent)
        if not _exists(old, parent):
            if after:
                operations.append(replacing(tests, _pointer(*parent), None, after))
            continue
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key) or (key in before) != (key in after):
                operations.append(replacing(tests, _pointer(*parent, key), before.get(key), after.get(key)))
    if not operations:
        return []
    return [*same_object(old), *tests, *operations]


def same_object(obj: JsonObject) -> list[JsonObject]:
    """The test that a patch meets this very object, and not another that took its name."""
    uid = meta.uid(obj)
    return [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []


def same_version(obj: JsonObject) -> list[JsonObject]:
    """The test that nothing at all was written since `obj` was read."""
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version(obj)}
    return [*same_object(obj), version]


def replacing(tests: list[JsonObject], path: str, before: Any, after: Any) -> JsonObject:
    """The operation that makes `after` (None: nothing) of the value `before` at `path`, and its test."""
    tests.append({"op": "test", "path": path, "value": before})  # an absent member equals null
    if after is None:
        return {"op": "remove", "path": path}
    return {"op": "add" if before is None else "replace", "path": path, "value": after}


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
