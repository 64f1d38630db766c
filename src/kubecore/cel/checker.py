"""The type checker: finds the type errors of a parsed expression, with the messages of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubecore.schema.formats import STRING_FORMATS
from kubecore.schema.regexes import Pattern, PatternError

from .records import Records
from .signatures import Signature, signatures
from .syntax import Call, Comprehension, Constant, Ident, ListLiteral, MapLiteral, Node, Select, qualified
from .types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Bindings,
    Type,
    TypesTooLargeError,
    field_type,
    is_less_specific,
    list_of,
    map_of,
    optional_of,
)

Problem = tuple[int, str]
"""(after how many characters of the text, message)."""

_TYPE_NAMES: Final = ("bool", "bytes", "double", "int", "null_type", "string", "type", "uint", "list", "map")
_OTHER_TYPE_NAMES: Final = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "optional_type": "optional_type",
    **{name: name for name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.URL")},
}


class Checker:
    """Walks a tree once; `problems` holds the errors."""

    def __init__(
        self,
        variables: Mapping[str, Type],
        *,
        escaped: bool,
        steps: int,
        records: Records | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self._escaped = escaped
        self._records = records or Records()
        self._bindings = Bindings(steps)
        self._free = 0
        self._texts = 0
        """In how many calls of ``format`` the walk is."""
        self._literals: list[list[tuple[int, Type]]] = []
        names = {**dict.fromkeys(_TYPE_NAMES), **_OTHER_TYPE_NAMES}
        types = {name: Type("type", (Type(known or name),)) for name, known in names.items()}
        self._scope: dict[str, Type] = {**types, **variables}

    def check(self, root: Node, *, literals: bool = True) -> Type:
        """The type of the whole expression; whether `literals` are mixed or useless is checked, too."""
        try:
            found = self._bindings.substitute(self._check(root), close=True)
            if not self.problems and literals:
                self.problems = self._mixed_literals() + literal_problems(root)
        except TypesTooLargeError:
            return self._report(0, "the types of this expression are too large to be checked")
        return ERROR if self.problems else found

    def _check(self, node: Node) -> Type:
        match node:
            case Constant():
                return Type(node.type)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)

    def _report(self, at: int, text: str) -> Type:
        self.problems.append((at, text))
        return ERROR

    def _undeclared(self, at: int, name: str) -> Type:
        return self._report(
            at, f"undeclared reference to '{name}' (in container '{self._records.container}')"
        )

    def _ident(self, node: Ident) -> Type:
        found = self._scope.get(node.name.removeprefix("."))
        return found if found is not None else self._undeclared(node.at, node.name)

    def _select(self, node: Select) -> Type:
        if not node.is_test and (name := qualified(node)) and name in self._scope:
            return self._scope[name]
        found = self._field(node.at, self._check(node.operand), node.field)
        return BOOL if node.is_test else self._bindings.substitute(found)

    def _field(self, at: int, operand: Type, name: str) -> Type:
        """The type of a field; of an optional value, it is optional, too."""
        operand = self._bindings.substitute(operand)
        if operand.name == "optional_type":
            return optional_of(self._field(at, operand.parameters[0], name))
        if operand.name == "map":
            return operand.parameters[1]
        if operand.schema is not None:
            found = field_type(operand, name, escaped=self._escaped)
            return found if found is not None else self._report(at, f"undefined field '{name}'")
        if operand.name in self._records.types:
            found = self._records.field_type(operand.name, name)
            return found if found is not None else self._report(at, f"undefined field '{name}'")
        if operand.is_parameter:
            self._bindings.assign([DYN], [operand])
        elif not operand.is_open:
            self._report(at, f"type '{operand}' does not support field selection")
        return DYN

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            return self._optional_field(node)
        self._texts += node.function == "format"
        arguments = [self._check(argument) for argument in node.args]
        self._texts -= node.function == "format"
        name, target = node.function, node.target
        if target is not None:
            arguments.insert(0, self._check(target))
        overloads = signatures().get(name)
        if overloads is None:
            return self._undeclared(node.at, name)
        if name in ("_&&_", "_||_"):
            return self._logic(node, arguments)
        found = self._resolve(overloads, arguments, is_member=target is not None)
        if found is not None:
            return found
        shown = [str(self._bindings.substitute(kind, close=True)) for kind in arguments]
        receiver = f"{shown.pop(0)}." if target is not None else ""
        signature = f"{receiver}({', '.join(shown)})"
        return self._report(node.at, f"found no matching overload for '{name}' applied to '{signature}'")

    def _optional_field(self, node: Call) -> Type:
        operand, name = node.args[0], node.args[1]
        field = name.value if isinstance(name, Constant) and isinstance(name.value, str) else ""
        found = self._field(node.at, self._check(operand), field)
        return self._bindings.substitute(found if found.name == "optional_type" else optional_of(found))

    def _logic(self, node: Call, arguments: Sequence[Type]) -> Type:
        wrong = [self._expect(part.at, BOOL, kind) for part, kind in zip(node.args, arguments, strict=True)]
        return ERROR if ERROR in wrong else BOOL

    def _expect(self, at: int, wanted: Type, found: Type) -> Type:
        if self._bindings.assign([found], [wanted]):
            return wanted
        shown = [self._bindings.substitute(kind) for kind in (wanted, found)]
        return self._report(at, f"expected type '{shown[0]}' but found '{shown[1]}'")

    def _resolve(
        self, overloads: Sequence[Signature], arguments: list[Type], *, is_member: bool
    ) -> Type | None:
        """The result type of the matching overloads; ``dyn`` if their result types differ."""
        result: Type | None = None
        for overload in overloads:
            if overload.is_member != is_member:
                continue
            fresh = self._instance((*overload.parameters, overload.result))
            if self._bindings.assign(arguments, fresh[:-1]):
                found = self._bindings.substitute(fresh[-1])
                result = found if result is None or result == found else DYN
        return result

    def _instance(self, types: Sequence[Type]) -> list[Type]:
        """The types with free variables instead of their type parameters."""
        made: dict[str, Type] = {}

        def instance(kind: Type) -> Type:
            if kind.is_parameter:
                return (
                    made.setdefault(kind.name, self._variable()) if kind.name not in made else made[kind.name]
                )
            return Type(kind.name, tuple(map(instance, kind.parameters)), kind.schema)

        return [instance(kind) for kind in types]

    def _variable(self) -> Type:
        self._free += 1
        return Type(f"_var{self._free}")

    def _join(self, known: Type | None, kind: Type) -> Type:
        """The common type of a literal's elements; ``dyn`` if there is none."""
        if known is None:
            return kind
        if self._bindings.assign([known], [kind]):
            return known if is_less_specific(known, kind) else kind
        return DYN

    def _mixed_literals(self) -> list[Problem]:
        """Lists and maps whose elements have different types."""
        found: list[Problem] = []
        for parts in self._literals:
            types = [self._bindings.substitute(kind, close=True) for _, kind in parts]
            wrong = ((at, kind) for (at, _), kind in zip(parts, types, strict=True) if kind != types[0])
            found += [(at, f"expected type '{types[0]}' but found '{kind}'") for at, kind in [*wrong][:1]]
        return found

    def _element(self, node: Node, *, is_optional: bool) -> Type:
        kind = self._check(node)
        if not is_optional or kind.is_open:
            return kind
        if kind.name == "optional_type":
            return kind.parameters[0]
        self._report(node.at, f"expected type '{optional_of(kind)}' but found '{kind}'")
        return kind

    def _list(self, node: ListLiteral) -> Type:
        kinds = [
            (element.at, self._element(element, is_optional=index in node.optionals))
            for index, element in enumerate(node.elements)
        ]
        return list_of(self._joined(kinds))

    def _map(self, node: MapLiteral) -> Type:
        if node.message:
            return self._record(node)
        keys, values = [], []
        for entry in node.entries:
            if entry.key is not None:
                keys.append((entry.key.at, self._check(entry.key)))
            values.append((entry.value.at, self._element(entry.value, is_optional=entry.is_optional)))
        return map_of(self._joined(keys), self._joined(values))

    def _record(self, node: MapLiteral) -> Type:
        name = self._records.full_name(node.message)
        if not name:
            return self._undeclared(node.at, node.message)
        for entry in node.entries:
            found = self._element(entry.value, is_optional=entry.is_optional)
            wanted = self._records.field_type(name, entry.field)
            if wanted is None:
                self._report(entry.at, f"undefined field '{entry.field}'")
            elif not self._bindings.assign([found], [wanted]):
                shown = self._bindings.substitute(found, close=True)
                text = f"expected type of field '{entry.field}' is '{wanted}' but provided type is '{shown}'"
                self._report(entry.at, text)
        return Type(name)

    def _joined(self, kinds: list[tuple[int, Type]]) -> Type:
        if not self._texts:
            self._literals.append(kinds)
        joined: Type | None = None
        for _, kind in kinds:
            joined = self._join(joined, kind)
        return joined or self._variable()

    def _comprehension(self, node: Comprehension) -> Type:
        over, start = self._check(node.range), self._check(node.initial)
        before = dict(self._scope)
        self._scope[node.accumulator] = start
        inner = dict(self._scope)
        self._scope.update(self._iterated(node, self._bindings.substitute(over)))
        self._expect(node.condition.at, BOOL, self._check(node.condition))
        self._expect(node.step.at, start, self._check(node.step))
        self._scope = inner
        result = self._check(node.result)
        self._scope = before
        return self._bindings.substitute(result)

    def _iterated(self, node: Comprehension, over: Type) -> dict[str, Type]:
        """The types of a loop's variables."""
        second = node.second_variable
        if over.name in ("list", "map"):
            first = INT if second and over.name == "list" else over.parameters[0]
            return {node.variable: first, **({second: over.parameters[-1]} if second else {})}
        kind = DYN
        if over.is_parameter:
            self._bindings.assign([DYN], [over])
        elif not over.is_open:
            what = f"expression of type '{over}' cannot be range of a comprehension"
            kind = self._report(node.range.at, f"{what} (must be list, map, or dynamic)")
        return {node.variable: kind, **({second: kind} if second else {})}


def literal_problems(node: Node) -> list[Problem]:
    """Patterns, durations and times that are written out and can never be used."""
    found = [problem for child in children(node) for problem in literal_problems(child)]
    if isinstance(node, Call) and node.args and (accepts := _LITERALS.get(node.function)) is not None:
        literal = node.args[0]
        if isinstance(literal, Constant) and isinstance(literal.value, str) and not accepts(literal.value):
            found.append((literal.at, f"invalid {node.function} argument"))
    return found


def _is_pattern(text: str) -> bool:
    try:
        Pattern(text)
    except PatternError:
        return False
    return True


_DURATION: Final = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)\Z")
_LITERALS: Final[Mapping[str, Callable[[str], bool]]] = {
    "matches": _is_pattern,
    "duration": lambda text: _DURATION.match(text) is not None,
    "timestamp": STRING_FORMATS["date-time"],
}


def children(node: Node) -> list[Node]:
    """The direct parts of a node."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListLiteral():
            return list(node.elements)
        case MapLiteral():
            return [part for entry in node.entries for part in (entry.key, entry.value) if part is not None]
        case Comprehension():
            return [node.range, node.initial, node.condition, node.step, node.result]
        case _:
            return []


def mentions(node: Node, name: str) -> bool:
    """Whether an expression reads the variable `name`."""
    return (isinstance(node, Ident) and node.name == name) or any(
        mentions(child, name) for child in children(node)
    )
