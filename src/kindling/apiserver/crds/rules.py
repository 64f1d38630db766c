"""Rules of custom resources (``x-kubernetes-validations``): CEL over a value and the value it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kubecore.cel import (
    Budget,
    BudgetExceededError,
    CompileError,
    CostExceededError,
    Environment,
    EvaluationError,
    Program,
)
from kubecore.cel.values import NO_OVERLOAD, NONE, Optional
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, invalid
from kubecore.schema.model import Schema
from kubecore.schema.ratcheting import elements_by_key, is_unchanged, map_key

from .rule_values import has_typed_values, to_cel

REASONS = {
    "FieldValueInvalid": fields.INVALID,
    "FieldValueForbidden": fields.FORBIDDEN,
    "FieldValueRequired": fields.REQUIRED,
    "FieldValueDuplicate": fields.DUPLICATE,
}
_BLOCKING = {fields.REQUIRED, fields.NOT_SUPPORTED, fields.TOO_LONG, fields.TOO_MANY, fields.TYPE_INVALID}
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_MAX_MESSAGE_BYTES = 5 * 1024
_NO_FURTHER = "no further validation rules will be run"
_FAILED_BUDGET = "failed due to running out of cost budget"
Warn = Callable[[str], None]


@cache
def _environment(optional_old: bool) -> Environment:
    return Environment({"self": "dyn", "oldSelf": "optional_type(dyn)" if optional_old else "dyn"})


def compile_rule(text: str, optional_old: bool) -> Program:
    """The program of a rule or its message. Raises CompileError."""
    return _environment(optional_old).compile(text)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One compiled rule."""

    program: Program
    message: str
    message_program: Program | None
    reason: str
    field_path: str
    optional_old: bool
    is_transition: bool
    text: str


def _rule(raw: JsonObject) -> _Rule:
    text, optional_old = str(raw.get("rule") or ""), bool(raw.get("optionalOldSelf"))
    message_text = str(raw.get("messageExpression") or "")
    return _Rule(
        compile_rule(text, optional_old),
        str(raw.get("message") or ""),
        compile_rule(message_text, optional_old) if message_text else None,
        REASONS.get(str(raw.get("reason") or ""), fields.INVALID),
        str(raw.get("fieldPath") or ""),
        optional_old,
        "oldSelf" in text,
        text,
    )


class RuleChecker:
    """The validation rules of one schema, compiled at their first use."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._has_rules = schema.derive(_has_rules)

    def check(
        self, new: JsonObject, old: JsonObject | None, found: list[FieldError], warn: Warn
    ) -> list[FieldError]:
        """Errors of the rules; where `found` shows that the object is not of the right form, only a hint.

        What unchanged values break is but a warning (ratcheting).
        """
        if not self._has_rules:
            return []
        if any(error.type in _BLOCKING for error in found):
            return [invalid(FieldPath(), None, _NOT_CHECKED)]
        return list(
            _until_out_of_budget(_walk(_Place(new, old, self._schema, FieldPath(), None), warn, Budget()))
        )


def _has_rules(schema: Schema) -> bool:
    """Whether rules stand at or below a node.

    Its raw form is read: views of all nodes of all definitions would take far more memory than those that
    objects need.
    """
    return _mentions_rules(schema.raw)


def _mentions_rules(raw: Any) -> bool:
    if not isinstance(raw, dict):
        return False
    if raw.get("x-kubernetes-validations"):
        return True
    properties = raw.get("properties")
    parts = properties.values() if isinstance(properties, dict) else ()
    return any(_mentions_rules(part) for part in (*parts, raw.get("items"), raw.get("additionalProperties")))


def _rules_of(schema: Schema) -> list[_Rule]:
    rules = []
    for raw in schema.validations:
        try:
            rules.append(_rule(raw))
        except CompileError:
            continue  # refused when the definition was written; an older server may have let it in
    return rules


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, its old value (None if there is none), its schema, and its parent value."""

    new: Any
    old: Any
    schema: Schema
    path: FieldPath
    parent: _Place | None

    def is_unchanged(self) -> bool:
        """Whether the value, or one that it is a part of, is as it was."""
        if self.old is not None and is_unchanged(self.new, self.old, self.schema):
            return True
        return self.parent is not None and self.parent.is_unchanged()

    def parts(self) -> Iterator[_Place]:
        """The fields or elements that have a schema."""
        new, old, schema = self.new, self.old, self.schema
        if isinstance(new, dict):
            former = old if isinstance(old, dict) else {}
            for key, value in new.items():
                if (child := schema.child(key)) is not None:
                    here = self.path.child(key) if key in schema.properties else self.path.key(key)
                    yield _Place(value, former.get(key), child, here, self)
        elif isinstance(new, list) and schema.items is not None:
            before = elements_by_key(old, schema)
            for index, item in enumerate(new):
                was = before.get(map_key(item, schema) or b"")
                yield _Place(item, was, schema.items, self.path.index(index), self)


class _OutOfBudgetError(Exception):
    """No further rules are run; `error` says why."""

    def __init__(self, error: FieldError) -> None:
        super().__init__()
        self.error = error


def _until_out_of_budget(found: Iterator[FieldError]) -> Iterator[FieldError]:
    try:
        yield from found
    except _OutOfBudgetError as end:
        yield end.error


def _walk(place: _Place, warn: Warn, budget: Budget) -> Iterator[FieldError]:
    """Errors at a value and below it."""
    if not place.schema.derive(_has_rules) or place.new is None:
        return
    if place.schema.validations:
        yield from _at_node(place, warn, budget)
    for part in place.parts():
        yield from _walk(part, warn, budget)


def _at_node(place: _Place, warn: Warn, budget: Budget) -> Iterator[FieldError]:
    schema, new, old = place.schema, place.new, place.old
    if schema.derive(has_typed_values):
        new, old = to_cel(new, schema), to_cel(old, schema)
    for rule in schema.derive(_rules_of):
        if rule.is_transition and old is None and not rule.optional_old:
            continue
        former = (NONE if old is None else Optional((old,))) if rule.optional_old else old
        values = {"self": new, "oldSelf": former}
        try:
            if rule.program.evaluate(values, budget=budget) is True:
                continue
        except EvaluationError as error:
            found = invalid(place.path, schema.type, _problem(error, rule))
            if isinstance(error, CostExceededError):
                raise _OutOfBudgetError(found) from None
            yield found
            continue
        failure = _failure(rule, values, place, budget)
        if not rule.is_transition and place.is_unchanged():
            warn(failure.message())
        else:
            yield failure


def _problem(error: EvaluationError, rule: _Rule) -> str:
    """The text for a rule that has no value."""
    text, shown = str(error), rule.message or rule.text
    if isinstance(error, BudgetExceededError):
        return text
    if isinstance(error, CostExceededError):
        return f"'{text}': {_NO_FURTHER} due to call cost exceeds limit for rule: {shown}"
    if text == NO_OVERLOAD:
        what = "call arguments did not match a supported operator, function or macro signature"
        return f"'{text}': {what} for rule: {shown}"
    return f"{text} evaluating rule: {shown}"


def _failure(rule: _Rule, values: JsonObject, place: _Place, budget: Budget) -> FieldError:
    message = rule.message.strip() or f"failed rule: {rule.text}"
    if rule.message_program is not None:
        try:
            text = rule.message_program.evaluate(values, budget=budget)
        except CostExceededError as error:
            what = f"messageExpression: {rule.message_program.text}"
            why = f"{_NO_FURTHER} due to call cost exceeds limit for {what}"
            if isinstance(error, BudgetExceededError):
                why = f"messageExpression evaluation {_FAILED_BUDGET}, {_NO_FURTHER}"
            raise _OutOfBudgetError(invalid(place.path, place.schema.type, why)) from None
        except EvaluationError:
            text = None
        if isinstance(text, str) and 0 < len((text := text.strip()).encode()) <= _MAX_MESSAGE_BYTES:
            message = message if "\n" in text else text
    field = (
        f"{place.path}{rule.field_path}" if str(place.path) != "<nil>" else rule.field_path.removeprefix(".")
    )
    value = OMITTED if place.schema.type in ("object", "array") else place.new
    detail = "" if rule.reason == fields.DUPLICATE else message
    return FieldError(rule.reason, field if rule.field_path else str(place.path), value, detail)
