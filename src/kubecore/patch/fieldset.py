"""Sets of field paths in the form in which ``managedFields`` stores them (``FieldsV1``).

A set is a tree of dicts. Keys are path elements: ``f:<name>`` a field, ``k:<json>`` the element of a keyed
list, ``v:<json>`` a value of a set, ``i:<n>`` an index. A node belongs to the set when it is empty or has
the member ``.``; the root never does. Trees are values: no function here changes its arguments, and results
share nodes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import orjson

FieldSet: TypeAlias = dict[str, Any]
"""A node: path elements to nodes, and ``.`` for the node itself."""

SELF: Final = "."


def is_member(node: FieldSet) -> bool:
    """Whether the path that leads to `node` belongs to the set."""
    return not node or SELF in node


def _node(member: bool, children: FieldSet) -> FieldSet | None:
    """A node; None if it would be empty."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths that belong to either set (of which both are non-empty nodes, or the root)."""
    if not right:
        return left
    if not left:
        return right
    result = dict(left)
    for element, node in right.items():
        if element == SELF:
            result[SELF] = {}
            continue
        other = left.get(element)
        if other is None:
            result[element] = node
        elif other is not node:
            result[element] = _union_node(other, node)
    return result


def _union_node(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        children = left or right
        return {SELF: {}, **children} if children and SELF not in children else children
    return union(left, right)


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths of `left` that are not in `right`; paths below one of `right` are kept."""
    if not left or not right:
        return left
    result: FieldSet = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            if element != SELF or SELF not in right:
                result[element] = node
            continue
        rest = _node(is_member(node) and not is_member(other), _children(difference(node, other)))
        if rest is not None:
            result[element] = rest
    return result


def recursive_difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths of `left` that neither belong to `right` nor lie below a path of it."""
    if not left or not right:
        return left
    result: FieldSet = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            result[element] = node
        elif not is_member(other):
            rest = _node(is_member(node), _children(recursive_difference(node, other)))
            if rest is not None:
                result[element] = rest
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths that belong to both sets."""
    result: FieldSet = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            continue
        shared = _node(is_member(node) and is_member(other), _children(intersection(node, other)))
        if shared is not None:
            result[element] = shared
    return result


def _children(node: FieldSet) -> FieldSet:
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def is_subset(left: FieldSet, right: FieldSet) -> bool:
    """Whether every path of `left` belongs to `right`."""
    return not difference(left, right)


def has(tree: FieldSet, path: Iterable[str]) -> bool:
    """Whether the path made of these elements belongs to the set."""
    node: FieldSet | None = tree
    for element in path:
        node = node.get(element) if node is not None else None
        if node is None:
            return False
    return node is not None and is_member(node)


def of_path(path: Iterable[str]) -> FieldSet:
    """The set of one path."""
    tree: FieldSet = {}
    for element in reversed(list(path)):
        tree = {element: tree}
    return tree


def of_fields(*paths: str) -> FieldSet:
    """The set of the given dotted field paths: ``of_fields("status", "metadata.labels")``."""
    tree: FieldSet = {}
    for path in paths:
        tree = union(tree, of_path(f"f:{name}" for name in path.split(".")))
    return tree


def paths(tree: FieldSet) -> Iterator[tuple[str, ...]]:
    """All paths in the order of conflict lists: at each level members first, then what is below."""
    elements = sorted((element for element in tree if element != SELF), key=_sort_key)
    for element in elements:
        if is_member(tree[element]):
            yield (element,)
    for element in elements:
        for path in paths(tree[element]):
            yield (element, *path)


def format_path(path: Iterable[str]) -> str:
    """A path as messages show it: ``.spec.containers[name="main"].image``."""
    return "".join(format_element(element) for element in path)


def format_element(element: str) -> str:
    """One path element as messages show it."""
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        pairs = orjson.loads(text).items()
        return f"[{','.join(f'{name}={orjson.dumps(value).decode()}' for name, value in pairs)}]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"


def _sort_key(element: str) -> tuple[int, Any]:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return 0, text
    if kind == "k:":
        return 1, [(name, _value_key(value)) for name, value in sorted(orjson.loads(text).items())]
    if kind == "v:":
        return 2, _value_key(orjson.loads(text))
    return 3, int(text) if text.isdigit() else 0


def _value_key(value: Any) -> tuple[int, Any]:
    """Numbers before strings before truth values, each in its own order."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, str(value))
