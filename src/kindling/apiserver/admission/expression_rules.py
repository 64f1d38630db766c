"""Whether the expressions in webhook configurations and policies compile, and give what they should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubecore.cel import CompileError, Program
from kubecore.cel.literals import plain_maps
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid

from .conditions import compiled, typed_environment

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VARIABLE = re.compile(r"(?<![\w.])variables\s*\.\s*([A-Za-z_]\w*)", re.ASCII)
_LITERAL = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|[rR]"[^"\n]*"|[rR]'[^'\n]*'"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


def webhook_expressions(configuration: JsonObject) -> list[FieldError]:
    """Errors in the match conditions of a webhook configuration."""
    found: list[FieldError] = []
    for index, webhook in enumerate(get_list(configuration, "webhooks")):
        path = FieldPath("webhooks").index(index).child("matchConditions")
        found += _conditions(get_list(webhook, "matchConditions"), path, ())
    return found


def policy_expressions(policy: JsonObject) -> list[FieldError]:
    """Errors in the expressions of a policy, validating or mutating."""
    spec, path = get_object(policy, "spec"), FieldPath("spec")
    known: tuple[str, ...] = ("namespaceObject",)
    if spec.get("paramKind") is not None:
        known += ("params",)
    found = list(_conditions(get_list(spec, "matchConditions"), path.child("matchConditions"), known))
    variables = get_list(spec, "variables")
    if variables:
        known += ("variables",)
    types: dict[str, Any] = {}
    for index, variable in enumerate(variables):
        here = path.child("variables").index(index).child("expression")
        found += _expression(variable.get("expression"), here, known, (), types=types)
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
                found += _expression(text, shown, known, (), program_text=plain_maps(str(text)))
    return found


def _conditions(conditions: list[Any], path: FieldPath, known: tuple[str, ...]) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        here = path.index(index).child("expression")
        yield from _expression(condition.get("expression"), here, known, ("bool",))


def _note_type(variable: JsonObject, known: tuple[str, ...], types: dict[str, Any]) -> None:
    """Add the type of a policy's variable to `types`, from which its expression may take others."""
    name, text = str(variable.get("name")), str(variable.get("expression"))
    if not _IDENTIFIER.fullmatch(name):
        return
    try:
        types[name] = typed_environment(known, types).compile(text).result
    except CompileError:
        types[name] = "dyn"


def _expression(
    text: Any,
    path: FieldPath,
    known: tuple[str, ...],
    wanted: tuple[str, ...],
    *,
    program_text: str = "",
    types: Mapping[str, Any] | None = None,
) -> Iterator[FieldError]:
    """Errors of one expression; an absent one is somebody else's to report.

    `types` are those of the policy's variables, as far as the expression may use them.
    """
    if not text or not str(text).strip():
        return
    undefined = _undefined_variable(str(text), types) if types is not None and "variables" in known else ""
    if undefined:
        yield invalid(path, text, f"compilation failed: {undefined}")
        return
    if types:
        try:
            program: Program | CompileError = typed_environment(known, types).compile(str(text))
        except CompileError as error:
            program = error
    else:
        program = compiled(program_text or str(text), *known)
    if isinstance(program, CompileError):
        yield invalid(path, text, f"compilation failed: {program}")
    elif wanted and program.return_type not in wanted:
        shown = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        yield invalid(path, text, f"must evaluate to {shown} but got {program.return_type}")


def _undefined_variable(text: str, types: Mapping[str, Any]) -> str:
    """What the compiler says of the first of the policy's variables that is not (yet) defined."""
    blanked = _LITERAL.sub(lambda found: "_" * len(found[0]), text)
    for found in _VARIABLE.finditer(blanked):
        if found[1] not in types:
            before, _, _ = text[: found.start(1)].rpartition(".")
            line, column = before.count("\n") + 1, len(before.rpartition("\n")[2])
            shown = text.split("\n")[line - 1]
            place = f"<input>:{line}:{column + 1}: undefined field '{found[1]}'"
            return f"ERROR: {place}\n | {shown}\n | {'.' * column}^"
    return ""


def _annotation_key(policy: str, annotation: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Keys are recorded behind the policy's name, and must be a qualified name with it."""
    key = annotation.get("key")
    if key:
        full = f"{policy}/{key}"
        for message in names.is_qualified_name(full):
            yield invalid(path, full, message)
