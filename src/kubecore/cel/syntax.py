"""Syntax trees of expressions, read from the parser's serialized form (``cel.expr.ParsedExpr``)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kubecore.protobuf import fields_of

from .signatures import signatures
from .values import Uint

_ANY_VALUE: Final = 2
_PARSED_EXPR: Final = 2
_CHECKED_EXPR: Final = 4
_SOURCE_INFO: Final = (3, 5)
_POSITIONS: Final = 4
_LITERALS: Final = {1: "null", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    type: str
    value: Any
    at: int


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Select:
    """``operand.field``, or ``has(operand.field)`` (`is_test`)."""

    operand: Node
    field: str
    is_test: bool
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or operator; `target` is the receiver of a method call."""

    function: str
    target: Node | None
    args: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """``[...]``; `optionals` are the positions of elements written ``?x``."""

    elements: tuple[Node, ...]
    optionals: frozenset[int]
    at: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a map, or (`field`) of a message."""

    key: Node | None
    field: str
    value: Node
    is_optional: bool
    at: int = 0


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """``{...}`` (`message` is empty) or ``Message{...}``."""

    message: str
    entries: tuple[Entry, ...]
    at: int


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
    at: int


Node: TypeAlias = Constant | Ident | Select | Call | ListLiteral | MapLiteral | Comprehension
"""Each has `at`: how many characters of the text come before it (before the operator or the parenthesis)."""


def qualified(node: Node | None) -> str:
    """``a.b.c`` for a chain of fields of a variable; empty for everything else."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.is_test and (prefix := qualified(node.operand)):
        return f"{prefix}.{node.field}"
    return ""


def parse(serialized: bytes) -> Node:
    """The tree of a parsed or compiled expression."""
    for message in _members(serialized).get(_ANY_VALUE, []):
        members = _members(message)
        source = next((members[number][0] for number in _SOURCE_INFO if number in members), b"")
        positions = {}
        for entry in _members(source).get(_POSITIONS, []):
            pair = _members(entry)
            positions[pair[1][0]] = pair[2][0] if 2 in pair else 0
        for number in (_PARSED_EXPR, _CHECKED_EXPR):
            for expression in members.get(number, []):
                found = _Reader(positions).node(expression)
                if found is not None:
                    return found
    return Constant("null", None, 0)


def _members(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in fields_of(data):
        found.setdefault(number, []).append(value)
    return found


def _text(members: Mapping[int, list[Any]], number: int) -> str:
    return members[number][0].decode() if number in members else ""


class _Reader:
    """Reads ``cel.expr.Expr`` messages."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self._positions = positions

    def node(self, data: bytes) -> Node | None:
        """Whichever of its kinds is set; None for an empty message."""
        message = _members(data)
        at = self._positions.get(message[2][0], 0) if 2 in message else 0
        for number in range(3, 10):
            if number in message:
                return self._read(number, _members(message[number][0]), at)
        return None

    def _read(self, number: int, members: dict[int, list[Any]], at: int) -> Node:
        match number:
            case 3:
                return _constant(members, at)
            case 4:
                return Ident(_text(members, 1), at)
            case 5:
                return Select(self._first(members, 1), _text(members, 2), 3 in members, at)
            case 6:
                return self._call(members, at)
            case 7:
                packed = members.get(2, [])
                optionals = b"".join(part if isinstance(part, bytes) else bytes([part]) for part in packed)
                return ListLiteral(self._nodes(members.get(1, [])), frozenset(optionals), at)
            case 8:
                entries = tuple(self._entry(_members(entry)) for entry in members.get(2, []))
                return MapLiteral(_text(members, 1), entries, at)
        loop = [self._first(members, part) for part in (2, 4, 5, 6, 7)]
        names = [_text(members, part) for part in (1, 8, 3)]
        return Comprehension(names[0], names[1], loop[0], names[2], loop[1], loop[2], loop[3], loop[4], at)

    def _call(self, members: dict[int, list[Any]], at: int) -> Call:
        target = self._first(members, 1) if 1 in members else None
        name, arguments = _text(members, 2), self._nodes(members.get(3, []))
        if (prefix := qualified(target)) and f"{prefix}.{name}" in signatures():
            return Call(f"{prefix}.{name}", None, arguments, at)
        return Call(name, target, arguments, at)

    def _first(self, members: dict[int, list[Any]], number: int) -> Node:
        found = self.node(members[number][0]) if number in members else None
        return found or Constant("null", None, 0)

    def _nodes(self, values: list[bytes]) -> tuple[Node, ...]:
        return tuple(node for value in values if (node := self.node(value)) is not None)

    def _entry(self, members: dict[int, list[Any]]) -> Entry:
        key = self._first(members, 3) if 3 in members else None
        at = self._positions.get(members[1][0], 0) if 1 in members else 0
        return Entry(key, _text(members, 2), self._first(members, 4), 5 in members, at)


def _constant(members: dict[int, list[Any]], at: int) -> Constant:
    for number, name in _LITERALS.items():
        if number in members:
            return Constant(name, _literal(name, members[number][0]), at)
    return Constant("null", None, at)


def _literal(name: str, value: Any) -> Any:
    """The value of a literal from its field."""
    match name:
        case "null":
            return None
        case "bool":
            return bool(value)
        case "int":
            return value - (1 << 64) if value >> 63 else value
        case "uint":
            return Uint(value)
        case "double":
            return struct.unpack("<d", value)[0]
        case "string":
            return value.decode()
    return value
