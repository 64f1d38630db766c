"""A short notation for declaring functions.

The CEL runtime selects overloads by the kinds of their arguments only, and all opaque types are one kind.
Overloads that differ only in opaque types therefore share one implementation, which dispatches on the type
names of the arguments; the compiler does not check those arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel

T = cel.Type
LIST = T.List(T.DYN)
STRINGS = T.List(T.STRING)


@dataclass(frozen=True)
class Declared:
    """One overload of a function; a method takes its receiver as the first parameter."""

    name: str
    parameters: tuple[Any, ...]
    returns: Any
    run: Callable[..., Any]
    is_member: bool

    @property
    def identifier(self) -> str:
        """The unique overload id."""
        kind = "method" if self.is_member else "function"
        return "_".join([self.name, kind, *(parameter.name() for parameter in self.parameters)])

    @property
    def kinds(self) -> tuple[str | bool, ...]:
        """The parameter kinds by which the runtime selects the overload."""
        return (self.is_member, *(_kind(parameter) for parameter in self.parameters))


def function(name: str, *parameters: Any, returns: Any, run: Callable[..., Any]) -> Declared:
    """A global function ``name(a, b)``."""
    return Declared(name, parameters, returns, run, is_member=False)


def method(name: str, *parameters: Any, returns: Any, run: Callable[..., Any]) -> Declared:
    """A function called on its first parameter: ``a.name(b)``."""
    return Declared(name, parameters, returns, run, is_member=True)


def declarations(functions: Iterable[Declared]) -> list[Any]:
    """The declarations for compiler and runtime."""
    by_name: dict[str, dict[tuple[str | bool, ...], list[Declared]]] = {}
    for each in functions:
        by_name.setdefault(each.name, {}).setdefault(each.kinds, []).append(each)
    return [
        cel.FunctionDecl(name, [made for same in alike.values() for made in _overloads(same)])
        for name, alike in by_name.items()
    ]


def _kind(parameter: Any) -> str:
    return "opaque" if parameter.is_message() else str(parameter.name()).partition("<")[0]


def _overloads(alike: list[Declared]) -> list[Any]:
    """One overload for all with the same kinds; parameters whose types differ are dynamic."""
    first = alike[0]
    if len(alike) == 1:
        return [
            cel.Overload(first.identifier, first.returns, list(first.parameters), first.is_member, first.run)
        ]
    parameters = [
        types[0] if len({each.name() for each in types}) == 1 else T.DYN
        for types in zip(*(each.parameters for each in alike), strict=True)
    ]
    return [cel.Overload(first.identifier, first.returns, parameters, first.is_member, _dispatcher(alike))]


def _dispatcher(alike: list[Declared]) -> Callable[..., Any]:
    by_types = {tuple(parameter.name() for parameter in each.parameters): each.run for each in alike}

    def run(*arguments: Any) -> Any:
        for types, implementation in by_types.items():
            if all(_fits(value, kind) for value, kind in zip(arguments, types, strict=True)):
                return implementation(*arguments)
        raise ValueError("No matching overloads found")

    return run


def _fits(value: Any, kind: str) -> bool:
    descriptor = getattr(value, "DESCRIPTOR", None)
    return descriptor is None or descriptor.full_name == kind
