"""JSON patches with ``test`` operations, which fail instead of overwriting concurrent changes."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject, get_object
from kubecore.objects import meta


def guarded_patch(old: JsonObject, new: JsonObject, *parents: tuple[str, ...]) -> list[JsonObject]:
    """Operations that change `old` into `new` below each of `parents`, field by field; empty where equal.
    They test the object's uid and the old value (or absence) of every changed field, so that the patch
    fails (422) after a concurrent write instead of overwriting it.
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
    """The test of the uid: the patch fails on another object of the same name."""
    uid = meta.uid(obj)
    return [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []


def same_version(obj: JsonObject) -> list[JsonObject]:
    """The test of the resourceVersion: the patch fails if the object was written since `obj` was read."""
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
