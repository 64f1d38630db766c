"""Checks that the expressions in webhook configurations and policies compile and have the right types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubecore.cel import CompileError
from kubecore.cel.literals import plain_maps
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, invalid

from .conditions import compiled, expression_type

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DECLARED = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}
"""Types that are declared by other names than messages of the type checker use."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """The checks of the expressions of one webhook or policy: they compile and give what is wanted."""

    known: tuple[str, ...]
    """The variables that the server declares for them."""
    types: dict[str, str] = field(default_factory=dict)
    """The types of the policy's own variables, as far as they have been judged."""
    has_variables: bool = False

    @classmethod
    def of_policy(cls, spec: JsonObject) -> Expressions:
        """Those of a policy, which knows namespaces and perhaps a parameter."""
        params = ("params",) if spec.get("paramKind") is not None else ()
        return cls(("namespaceObject", *params), has_variables=bool(spec.get("variables")))

    @property
    def _all(self) -> tuple[str, ...]:
        return (*self.known, "variables") if self.has_variables else self.known

    def condition(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """A condition of a match, which is judged before the variables are."""
        return _expression(text, path, self.known, ("bool",))

    def truth(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """What must be true."""
        return _expression(text, path, self._all, ("bool",), types=self.types)

    def text(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """What gives a text."""
        return _expression(text, path, self._all, ("string",), types=self.types)

    def text_or_null(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """What gives a text or nothing."""
        return _expression(text, path, self._all, ("string", "null_type"), types=self.types)

    def variable(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """The expression of a variable, which may give anything."""
        return _variable(text, path, self._all, self.types)

    def note_type(self, path: FieldPath, variable: JsonObject) -> Iterable[FieldError]:
        """Learn the type of a variable, which those after it use; nothing is wrong with it here."""
        _note_type(variable, self._all, self.types)
        return ()

    def mutation(self, path: FieldPath, text: str) -> Iterable[FieldError]:
        """What gives a change."""
        return _mutation(text, path, self._all)


def _variable(
    text: Any, path: FieldPath, known: tuple[str, ...], types: Mapping[str, str]
) -> Iterator[FieldError]:
    """Errors of the expression of a policy's variable, which may give anything."""
    problem, _ = expression_type(str(text), known, types) if text and str(text).strip() else ("", "")
    if problem:
        yield invalid(path, text, f"compilation failed: {problem}")


def _note_type(variable: JsonObject, known: tuple[str, ...], types: dict[str, str]) -> None:
    """Add the type of a policy's variable to `types`, from which its expression may take others."""
    name, text = str(variable.get("name")), str(variable.get("expression") or "")
    if _IDENTIFIER.fullmatch(name) and text.strip():
        problem, kind = expression_type(text, known, types)
        types[name] = "dyn" if problem else kind


def _expression(
    text: Any,
    path: FieldPath,
    known: tuple[str, ...],
    wanted: tuple[str, ...],
    *,
    types: Mapping[str, str] | None = None,
) -> Iterator[FieldError]:
    """Errors of one expression; a missing one is reported by the caller.

    `types` are those of the policy's variables, as far as the expression may use them.
    """
    if not text or not str(text).strip():
        return
    problem, found = expression_type(str(text), known, types or {})
    if problem:
        yield invalid(path, text, f"compilation failed: {problem}")
    elif (shown := _DECLARED.get(found, found)) not in wanted:
        expected = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        yield invalid(path, text, f"must evaluate to {expected} but got {shown}")


def _mutation(text: Any, path: FieldPath, known: tuple[str, ...]) -> Iterator[FieldError]:
    """Errors of an expression that makes a change; its types exist for one schema only."""
    program = compiled(plain_maps(str(text)), *known) if text and str(text).strip() else None
    if isinstance(program, CompileError):
        yield invalid(path, text, f"compilation failed: {program}")
