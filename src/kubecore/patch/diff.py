"""Patches computed from two documents: applied to the first, they result in the second.

For writers that change a copy of an object and send only the difference: a merge patch where lists may be
replaced whole, a JSON patch where single elements matter or a value must be tested first.
"""

from __future__ import annotations

from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.patch.jsonpatch import is_equal

_ABSENT: Final = object()


def create_json_patch(old: JsonObject, new: JsonObject) -> list[JsonObject]:
    """Operations of a JSON patch that turn `old` into `new`; empty when they are equal."""
    operations: list[JsonObject] = []
    _diff("", old, new, operations)
    return operations


def expecting(path: str, value: Any) -> JsonObject:
    """A ``test`` operation: the patch fails unless `path` (a JSON pointer) has this value."""
    return {"op": "test", "path": path, "value": value}


def pointer(*segments: str | int) -> str:
    """A JSON pointer: ``pointer("metadata", "labels", "a/b")`` is ``/metadata/labels/a~1b``."""
    return "".join(f"/{_escape(str(segment))}" for segment in segments)


def _escape(segment: str) -> str:
    return segment.replace("~", "~0").replace("/", "~1")


def _diff(path: str, old: Any, new: Any, into: list[JsonObject]) -> None:
    if is_equal(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old:
            if name not in new:
                into.append({"op": "remove", "path": f"{path}/{_escape(name)}"})
        for name, value in new.items():
            child = f"{path}/{_escape(name)}"
            if name in old:
                _diff(child, old[name], value, into)
            else:
                into.append({"op": "add", "path": child, "value": value})
    elif isinstance(old, list) and isinstance(new, list):
        _diff_lists(path, old, new, into)
    else:
        into.append({"op": "replace", "path": path, "value": new})


def _diff_lists(path: str, old: list[Any], new: list[Any], into: list[JsonObject]) -> None:
    """Common elements at both ends stay; those in between are paired in order."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and is_equal(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and is_equal(old[-1 - tail], new[-1 - tail]):
        tail += 1
    middle_old, middle_new = len(old) - tail, len(new) - tail
    paired = min(middle_old, middle_new)
    for index in range(head, paired):
        _diff(f"{path}/{index}", old[index], new[index], into)
    for index in range(middle_old - 1, paired - 1, -1):
        into.append({"op": "remove", "path": f"{path}/{index}"})
    for index in range(paired, middle_new):
        into.append({"op": "add", "path": f"{path}/{index}", "value": new[index]})


def create_merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """The merge patch that turns `old` into `new`; empty when they are equal.

    A merge patch cannot set null: such members count as absent.
    """
    patch: JsonObject = {name: None for name in old if new.get(name) is None and old[name] is not None}
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if value is None or (before is not _ABSENT and is_equal(before, value)):
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[name] = create_merge_patch(before, value)
        else:
            patch[name] = value
    return patch
