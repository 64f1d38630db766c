"""A short notation for functions, and the choice among them by the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .values import NO_OVERLOAD, EvaluationError, type_of


@dataclass(frozen=True, slots=True)
class Declared:
    """One overload of a function; a method takes its receiver first. ``dyn`` takes anything."""

    name: str
    parameters: tuple[str, ...]
    run: Callable[..., Any]
    is_member: bool


def function(name: str, *parameters: str, run: Callable[..., Any]) -> Declared:
    """A global function ``name(a, b)``."""
    return Declared(name, parameters, run, is_member=False)


def method(name: str, *parameters: str, run: Callable[..., Any]) -> Declared:
    """A function called on its first parameter: ``a.name(b)``."""
    return Declared(name, parameters, run, is_member=True)


def choose(overloads: list[Declared]) -> Callable[..., Any]:
    """A function that runs the overload whose parameters fit the arguments. It raises EvaluationError."""

    def run(*arguments: Any) -> Any:
        kinds = tuple(map(type_of, arguments))
        for each in overloads:
            if len(kinds) == len(each.parameters) and all(
                wanted in ("dyn", kind) for wanted, kind in zip(each.parameters, kinds, strict=True)
            ):
                try:
                    return each.run(*arguments)
                except EvaluationError:
                    raise
                except (ValueError, OverflowError) as error:
                    raise EvaluationError(str(error)) from None
        raise EvaluationError(NO_OVERLOAD)

    return run
