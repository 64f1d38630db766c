"""Syntax trees of compiled expressions, read from the compiler's serialized form
(``cel.expr.CheckedExpr``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kubecore.protobuf import fields_of

_ANY_VALUE: Final = 2
_CHECKED_EXPR: Final = 4


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; ``value`` is str, bytes, or None for every literal without a size."""

    value: str | bytes | None


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """``operand.field``, or ``has(operand.field)``."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or operator; `target` is the receiver of a method call."""

    function: str
    target: Node | None
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """``[...]``."""

    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """``{...}`` (`message` is empty) or ``Message{...}``; `parts` are keys and values."""

    message: str
    parts: tuple[Node, ...]
    entries: int


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A loop over `range`: what ``all``, ``exists``, ``map``, ``filter``, ``cel.bind`` and others become."""

    variable: str
    second_variable: str
    range: Node
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node


Node: TypeAlias = Constant | Ident | Select | Call | ListLiteral | MapLiteral | Comprehension
_NOTHING: Final = Constant(None)


def parse(serialized: bytes) -> Node:
    """The tree of a compiled expression."""
    for message in _members(serialized).get(_ANY_VALUE, []):
        for expression in _members(message).get(_CHECKED_EXPR, []):
            return _node(expression)
    return _NOTHING


def _members(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in fields_of(data):
        found.setdefault(number, []).append(value)
    return found


def _node(data: bytes) -> Node:
    """One ``Expr``: whichever of its kinds is set."""
    for number, values in _members(data).items():
        if number in _MAKERS:
            return _MAKERS[number](_members(values[0]))
    return _NOTHING


def _first(members: dict[int, list[Any]], number: int) -> Node:
    return _node(members[number][0]) if number in members else _NOTHING


def _text(members: dict[int, list[Any]], number: int) -> str:
    return members[number][0].decode() if number in members else ""


def _nodes(values: list[Any]) -> tuple[Node, ...]:
    return tuple(_node(value) for value in values)


def _constant(members: dict[int, list[Any]]) -> Constant:
    if 6 in members:
        return Constant(_text(members, 6))
    return Constant(members[7][0] if 7 in members else None)


def _ident(members: dict[int, list[Any]]) -> Ident:
    return Ident(_text(members, 1))


def _select(members: dict[int, list[Any]]) -> Select:
    return Select(_first(members, 1), _text(members, 2))


def _call(members: dict[int, list[Any]]) -> Call:
    target = _first(members, 1) if 1 in members else None
    return Call(_text(members, 2), target, _nodes(members.get(3, [])))


def _list(members: dict[int, list[Any]]) -> ListLiteral:
    return ListLiteral(_nodes(members.get(1, [])))


def _map(members: dict[int, list[Any]]) -> MapLiteral:
    entries = [_members(entry) for entry in members.get(2, [])]
    parts = tuple(_node(entry[number][0]) for entry in entries for number in (3, 4) if number in entry)
    return MapLiteral(_text(members, 1), parts, len(entries))


def _comprehension(members: dict[int, list[Any]]) -> Comprehension:
    return Comprehension(
        _text(members, 1),
        _text(members, 8),
        _first(members, 2),
        _text(members, 3),
        _first(members, 4),
        _first(members, 5),
        _first(members, 6),
        _first(members, 7),
    )


_MAKERS: Final[Mapping[int, Callable[[dict[int, list[Any]]], Node]]] = {
    3: _constant,
    4: _ident,
    5: _select,
    6: _call,
    7: _list,
    8: _map,
    9: _comprehension,
}
