"""Comparing, merging and pruning documents by their ownership types (`kubecore.patch.field_types`).

The sets which these functions return are those of `kubecore.patch.fieldset`.
"""

from __future__ import annotations

from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.patch.field_types import ANY, LIST, SCALAR, UNTYPED, FieldType
from kubecore.patch.fieldset import SELF, FieldSet, is_member

ABSENT: Final = object()
"""Stands for a value that is not there (null is a value)."""


def whole_set(kind: FieldType, value: Any) -> FieldSet:
    """The node of a value that only one side has: every container and every leaf."""
    if kind.kind == SCALAR or kind.atomic:
        return {}
    node: FieldSet = {}
    if isinstance(value, dict):
        if value and kind.kind != LIST:
            node[SELF] = {}
            for name, child in value.items():
                node["f:" + name] = whole_set(kind.child(name)[0], child)
    elif isinstance(value, list) and value and kind.kind == LIST:
        node[SELF] = {}
        for item in value:
            key = kind.element_key(item)
            node[key] = {} if key in node else whole_set(kind.element, item)
    return node


class Comparison:
    """What differs between two documents: paths `removed`, `modified` and `added` by the second."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}
        self.added: FieldSet = {}

    def __bool__(self) -> bool:
        return bool(self.removed or self.modified or self.added)


def compare(kind: FieldType, old: Any, new: Any) -> Comparison:
    """Compare two documents. Raises `TypedError` where elements of a list have no key."""
    result = Comparison()
    if old != new:
        _compare(kind, old, new, result)
    return result


def _compare(kind: FieldType, old: Any, new: Any, into: Comparison) -> None:
    """Compare two different values of which at least one is a container."""
    if kind.kind == LIST:
        olds, news = _items(kind, old), _items(kind, new)
        element = kind.element
        for key, value in news.items():
            _compare_child(element, key, olds.get(key, ABSENT), value, into)
        for key, value in olds.items():
            if key not in news:
                into.removed[key] = {} if value is _REPEATED else whole_set(element, value)
        return
    olds = old if isinstance(old, dict) else {}
    news = new if isinstance(new, dict) else {}
    for name, value in news.items():
        before = olds.get(name, ABSENT)
        if before is ABSENT or before != value:
            _compare_child(kind.child(name)[0], "f:" + name, before, value, into)
    for name, value in olds.items():
        if name not in news:
            into.removed["f:" + name] = whole_set(kind.child(name)[0], value)


class _Repeated:
    """Stands for all elements of a list which share a key; never equal to an element."""


_REPEATED: Final = _Repeated()


def _items(kind: FieldType, items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items if isinstance(items, list) else ():
        key = kind.element_key(item)
        found[key] = _REPEATED if key in found else item
    return found


def _compare_child(kind: FieldType, element: str, old: Any, new: Any, into: Comparison) -> None:
    if old is ABSENT or (old is _REPEATED) != (new is _REPEATED):
        into.added[element] = {} if new is _REPEATED else whole_set(kind, new)
        if old is not ABSENT:
            into.removed[element] = {} if old is _REPEATED else whole_set(kind, old)
        return
    if old == new:
        return
    if _is_leaf(kind, old, new):
        into.modified[element] = {}
        return
    below = Comparison()
    _compare(kind, old, new, below)
    if below.removed:
        into.removed[element] = below.removed
    if below.modified:
        into.modified[element] = below.modified
    if below.added:
        into.added[element] = below.added


def _is_leaf(kind: FieldType, old: Any, new: Any) -> bool:
    """Whether a difference between two values belongs to the value as a whole."""
    if kind.kind == SCALAR or kind.atomic or not (old or new):
        return True
    if kind.kind == ANY:
        return not (isinstance(old, dict) and isinstance(new, dict))
    container = list if kind.kind == LIST else dict
    return not isinstance(old, container) and not isinstance(new, container)


def field_set(kind: FieldType, document: Any) -> FieldSet:
    """The paths that an applied configuration claims; containers of named fields are not among them."""
    return _claimed(kind, document) or {}


def _claimed(kind: FieldType, value: Any) -> FieldSet | None:
    """The ownership node of a value; None if the value owns nothing."""
    if kind.kind == SCALAR or kind.atomic:
        return {}
    if kind.kind == LIST:
        return _claimed_items(kind, value) if isinstance(value, list) else None
    if not isinstance(value, dict):
        return {} if kind.kind == ANY else None
    node: FieldSet = {}
    for name, child in value.items():
        child_kind, declared = kind.child(name)
        below = _claimed(child_kind, child)
        if not declared or child is None or (isinstance(child, dict) and not child):
            node["f:" + name] = {SELF: {}, **below} if below else {}
        elif below is not None:
            node["f:" + name] = below
    return node or None


def _claimed_items(kind: FieldType, items: list[Any]) -> FieldSet | None:
    node: FieldSet = {}
    for item in items:
        key = kind.element_key(item)
        below = None if key in node else _claimed(kind.element, item)
        node[key] = {SELF: {}, **below} if below else {}
    return node or None


def with_named_fields(kind: FieldType, tree: FieldSet) -> FieldSet:
    """`tree` with the containers of named fields as members too, which `field_set` leaves out."""
    result: FieldSet = {}
    for element, node in tree.items():
        if element == SELF or not node:
            result[element] = node
            continue
        child, declared = UNTYPED, False
        if element[:2] == "f:":
            child, declared = kind.child(element[2:])
        elif kind.kind == LIST and element[:2] == "k:":
            child = kind.element
        below = with_named_fields(child, node)
        result[element] = {SELF: {}, **below} if declared and SELF not in below else below
    return result


def reconciled(kind: FieldType, tree: FieldSet) -> FieldSet:
    """`tree` after a schema change: owners of parts of a value that is now atomic own the whole value."""
    if kind.kind in {SCALAR, ANY} or not tree:
        return tree
    if kind.atomic:
        return {}
    changed: FieldSet = {}
    for element, node in tree.items():
        if not node or element == SELF:
            continue
        child = kind.element if kind.kind == LIST else kind.child(element[2:])[0]
        after = reconciled(child, node)
        if after is not node:
            changed[element] = after
    return {**tree, **changed} if changed else tree


def merge(kind: FieldType, live: Any, applied: Any) -> Any:
    """`live` with everything that `applied` sets; ABSENT means that there is no value."""
    if applied is ABSENT:
        return live
    if live is ABSENT or kind.kind == SCALAR or kind.atomic or not (live or applied):
        return applied
    if kind.kind == LIST:
        return _merge_lists(kind, live or [], applied or [])
    if kind.kind == ANY and not (isinstance(live, dict) and isinstance(applied, dict | None)):
        return applied
    merged: JsonObject = dict(live) if isinstance(live, dict) else {}
    for name, value in (applied or {}).items():
        merged[name] = merge(kind.child(name)[0], merged.get(name, ABSENT), value)
    return merged


def _merge_lists(kind: FieldType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Merge item by item. Shared items stand in the order of `applied`.

    Items which only `live` has come before the next shared item of `applied`, unless they stood behind it.
    """
    wanted = {kind.element_key(item): item for item in applied}
    live_items = [(kind.element_key(item), item) for item in live]
    mine: dict[str, Any] = {}
    for key, item in live_items:
        mine[key] = ABSENT if key in mine else item  # repeated items are replaced, not merged
    pending = [key for key in reversed(wanted) if key in mine]
    merged: list[Any] = []
    position = 0
    for key, item in wanted.items():
        position = _take_unshared(live_items, position, wanted, pending[-1] if pending else "", merged)
        merged.append(merge(kind.element, mine.get(key, ABSENT), item))
        if pending and key == pending[-1]:
            pending.pop()
            if position < len(live_items) and live_items[position][0] == key:
                position += 1
    _take_unshared(live_items, position, wanted, "", merged)
    return merged


def _take_unshared(
    live_items: list[tuple[str, Any]], position: int, shared: dict[str, Any], stop: str, into: list[Any]
) -> int:
    """Move items that are not in `shared` from `position` on, up to the item `stop`; the new position."""
    while position < len(live_items) and live_items[position][0] != stop:
        key, item = live_items[position]
        if key not in shared:
            into.append(item)
        position += 1
    return position


def remove(kind: FieldType, value: Any, tree: FieldSet) -> Any:
    """`value` without the paths of `tree` and what is below them; ABSENT when nothing is left."""
    if kind.kind == SCALAR:
        return value
    if kind.atomic or not value:
        return ABSENT
    if kind.kind == LIST and isinstance(value, list):
        kept = []
        for item in value:
            node = tree.get(kind.element_key(item))
            left = item if node is None else ABSENT if is_member(node) else remove(kind.element, item, node)
            if left is not ABSENT:
                kept.append(left)
        return kept or ABSENT
    if not isinstance(value, dict):
        return value if kind.kind == ANY and not isinstance(value, list) else ABSENT
    fields: JsonObject = {}
    for name, child in value.items():
        node = tree.get("f:" + name)
        left = (
            child if node is None else ABSENT if is_member(node) else remove(kind.child(name)[0], child, node)
        )
        if left is not ABSENT:
            fields[name] = left
    return fields or ABSENT
