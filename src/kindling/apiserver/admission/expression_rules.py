"""Checks that the expressions in webhook configurations and policies compile and have the right types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubecore.cel import CompileError
from kubecore.cel.literals import plain_maps
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid

from .conditions import compiled, expression_type

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DECLARED = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}
"""Types that are declared by other names than messages of the type checker use."""


def webhook_expressions(configuration: JsonObject) -> list[FieldError]:
    """Errors in the match conditions of a webhook configuration."""
    found: list[FieldError] = []
    for index, webhook in enumerate(get_list(configuration, "webhooks")):
        path = FieldPath("webhooks").index(index).child("matchConditions")
        found += _conditions(get_list(webhook, "matchConditions"), path, ())
    return found


def policy_expressions(policy: JsonObject) -> list[FieldError]:
    """The errors in the expressions of a validating or mutating policy."""
    spec, path = get_object(policy, "spec"), FieldPath("spec")
    known: tuple[str, ...] = ("namespaceObject",)
    if spec.get("paramKind") is not None:
        known += ("params",)
    found = list(_conditions(get_list(spec, "matchConditions"), path.child("matchConditions"), known))
    variables = get_list(spec, "variables")
    if variables:
        known += ("variables",)
    types: dict[str, str] = {}
    for index, variable in enumerate(variables):
        here = path.child("variables").index(index).child("expression")
        found += _variable(variable.get("expression"), here, known, types)
        _note_type(variable, known, types)
    for index, validation in enumerate(get_list(spec, "validations")):
        here = path.child("validations").index(index)
        text, message = validation.get("expression"), validation.get("messageExpression")
        found += _expression(text, here.child("expression"), known, ("bool",), types=types)
        found += _expression(message, here.child("messageExpression"), known, ("string",), types=types)
    for index, annotation in enumerate(get_list(spec, "auditAnnotations")):
        here = path.child("auditAnnotations").index(index)
        found += _annotation_key(get_str(policy, "metadata", "name"), annotation, here.child("key"))
        value = annotation.get("valueExpression")
        wanted = ("string", "null_type")
        found += _expression(value, here.child("valueExpression"), known, wanted, types=types)
    for index, mutation in enumerate(get_list(spec, "mutations")):
        here = path.child("mutations").index(index)
        for field in ("applyConfiguration", "jsonPatch"):
            text = get_object(mutation, field).get("expression")
            if text:
                shown = here.child(field, "expression")
                found += _mutation(text, shown, known)
    return found


def _conditions(conditions: list[Any], path: FieldPath, known: tuple[str, ...]) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        here = path.index(index).child("expression")
        yield from _expression(condition.get("expression"), here, known, ("bool",))


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


def _annotation_key(policy: str, annotation: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """An annotation key is prefixed with the policy's name, and both together must be a qualified name."""
    key = get_str(annotation, "key")
    if not policy:
        yield invalid(path, key, "requires metadata.name be non-empty")
        return
    full = f"{policy}/{key}"
    for message in names.is_qualified_name(full):
        yield invalid(path, full, message)
