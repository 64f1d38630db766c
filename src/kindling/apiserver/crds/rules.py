"""Rules of custom resources (``x-kubernetes-validations``): CEL over a value and the value it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson

from kubecore.cel import CompileError, Environment, EvaluationError, Program
from kubecore.cel.program import NO_OVERLOAD, OUT_OF_BUDGET
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, Verbatim, invalid, not_supported, required
from kubecore.schema import Schema, custom_resource_schema
from kubecore.schema.ratcheting import elements_by_key, is_unchanged, map_key

from . import rule_costs
from .rule_values import has_typed_values, to_cel

_KEYWORD = "x-kubernetes-validations"
_REASONS = {
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
_OPTIONAL_OLD = "(hasOldSelf ? optional.of(oldSelfValue) : optional.none())"


Warn = Callable[[str], None]


@cache
def _environment(optional_old: bool) -> Environment:
    if optional_old:
        return Environment({"self": "dyn", "oldSelfValue": "dyn", "hasOldSelf": "bool"})
    return Environment({"self": "dyn", "oldSelf": "dyn"})


def _compile(text: str, optional_old: bool) -> Program:
    if optional_old:
        text = f"cel.bind(oldSelf, {_OPTIONAL_OLD}, ({text}))"
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
        _compile(text, optional_old),
        str(raw.get("message") or ""),
        _compile(message_text, optional_old) if message_text else None,
        _REASONS.get(str(raw.get("reason") or ""), fields.INVALID),
        str(raw.get("fieldPath") or ""),
        optional_old,
        "oldSelf" in text,
        text,
    )


class RuleChecker:
    """The rules of one schema, compiled when they are first needed."""

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
        return list(_walk(_Place(new, old, self._schema, FieldPath(), None), warn))


def _has_rules(schema: Schema) -> bool:
    """Whether rules stand at or below a node."""
    if schema.validations:
        return True
    return any(child.derive(_has_rules) for child in _children(schema))


def _children(schema: Schema) -> list[Schema]:
    found = [*schema.properties.values(), schema.items, schema.additional_properties]
    return [child for child in found if child is not None]


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
    """A value, what it replaces (None for nothing), its schema, and the value that it is a part of."""

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


def _walk(place: _Place, warn: Warn) -> Iterator[FieldError]:
    """Errors at a value and below it."""
    if not place.schema.derive(_has_rules) or place.new is None:
        return
    if place.schema.validations:
        yield from _at_node(place, warn)
    for part in place.parts():
        yield from _walk(part, warn)


def _at_node(place: _Place, warn: Warn) -> Iterator[FieldError]:
    schema, new, old = place.schema, place.new, place.old
    if schema.derive(has_typed_values):
        new, old = to_cel(new, schema), to_cel(old, schema)
    for rule in schema.derive(_rules_of):
        if rule.is_transition and old is None and not rule.optional_old:
            continue
        values = {"self": new, "oldSelf": old}
        if rule.optional_old:
            values = {"self": new, "oldSelfValue": old, "hasOldSelf": old is not None}
        try:
            if rule.program.evaluate(values) is True:
                continue
        except EvaluationError as error:
            yield invalid(place.path, schema.type, _problem(str(error), rule))
            continue
        failure = _failure(rule, values, place)
        if not rule.is_transition and place.is_unchanged():
            warn(failure.message())
        else:
            yield failure


def _problem(text: str, rule: _Rule) -> str:
    """The text for a rule that has no value."""
    if text == OUT_OF_BUDGET:
        return text
    shown = rule.message or rule.text
    if text == NO_OVERLOAD:
        what = "call arguments did not match a supported operator, function or macro signature"
        return f"'{text}': {what} for rule: {shown}"
    return f"{text} evaluating rule: {shown}"


def _failure(rule: _Rule, values: JsonObject, place: _Place) -> FieldError:
    message = rule.message.strip() or f"failed rule: {rule.text}"
    if rule.message_program is not None:
        try:
            text = rule.message_program.evaluate(values)
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


def check_rules(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """What is wrong with the rules in a schema: they must compile, and say what they need to."""
    budget = rule_costs.Budget()
    yield from _check_node(custom_resource_schema(raw), 1, budget, path)
    yield from budget.check_total(path)


def _check_node(
    schema: Schema, cardinality: int, budget: rule_costs.Budget, path: FieldPath
) -> Iterator[FieldError]:
    """`cardinality`: how many values of this schema an object can have."""
    for index, raw in enumerate(schema.validations):
        yield from _check_rule(raw, schema, cardinality, budget, path.child(_KEYWORD).index(index))
    for name, child in schema.properties.items():
        yield from _check_node(child, cardinality, budget, path.child("properties").key(name))
    inner = rule_costs.below(schema, cardinality)
    if schema.items is not None:
        yield from _check_node(schema.items, inner, budget, path.child("items"))
    if isinstance(schema.raw.get("additionalProperties"), dict) and schema.additional_properties is not None:
        values = path.child("additionalProperties")
        yield from _check_node(schema.additional_properties, inner, budget, values)


def _check_rule(
    raw: JsonObject, schema: Schema, cardinality: int, budget: rule_costs.Budget, path: FieldPath
) -> Iterator[FieldError]:
    text, optional_old = str(raw.get("rule") or ""), bool(raw.get("optionalOldSelf"))
    if not text.strip():
        yield required(path.child("rule"), "rule is not specified")
        return
    message = raw.get("message")
    if isinstance(message, str) and message and not message.strip():
        yield invalid(path.child("message"), message, "message must be non-empty if specified")
    elif isinstance(message, str) and "\n" in message.strip():
        yield invalid(path.child("message"), message, "message must not contain line breaks")
    elif "\n" in text.strip() and not message:
        yield required(path.child("message"), "message must be specified if rule contains line breaks")
    reason = raw.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(path.child("reason"), reason, tuple(_REASONS))
    field_path = str(raw.get("fieldPath") or "")
    if field_path and not _names_a_field(schema, field_path):
        yield invalid(
            path.child("fieldPath"),
            field_path,
            "fieldPath must be a valid path: does not refer to a valid field",
        )
    if optional_old and "oldSelf" not in text:
        yield invalid(path.child("optionalOldSelf"), True, "may not be set if oldSelf is not used in rule")
    for field, wanted, what in (("rule", "bool", "cel expression"), ("messageExpression", "string", "")):
        expression = str(raw.get(field) or "")
        if not expression:
            continue
        here = path.child(field)
        program, problem = _compiled(expression, schema, optional_old)
        if program is None:
            yield invalid(here, _shown(raw), f"compilation failed: {problem}")
        elif program.return_type not in (wanted, "dyn"):
            yield invalid(here, _shown(raw), f"{what or field} must evaluate to a {wanted}")
        else:
            yield from budget.check(program, schema, cardinality, here, field)


def _type_problem(text: str, schema: Schema, optional_old: bool) -> str:
    """What the types of the schema have against a rule; former values that may be absent are not typed."""
    others = {"oldSelf": "dyn"} if optional_old else {}
    typed = {"self": schema} if optional_old else {"self": schema, "oldSelf": schema}
    if optional_old:
        text = text.replace("oldSelf", "optional.of(oldSelf)")
    from kubecore.cel.type_checking import check_types  # noqa: PLC0415 (loads the interpreter)

    return check_types(text, typed, others)


def _compiled(text: str, schema: Schema, optional_old: bool) -> tuple[Program | None, str]:
    """The program, or None and what is wrong with the text."""
    try:
        program = _compile(text, optional_old)
        problem = _type_problem(text, schema, optional_old)
    except CompileError as error:
        problem = str(error)
    return (None, problem) if problem else (program, "")


def _shown(raw: JsonObject) -> Verbatim:
    """A rule as messages dump it."""
    return Verbatim(
        orjson.dumps(
            {
                "Rule": raw.get("rule") or "",
                "Message": raw.get("message") or "",
                "MessageExpression": raw.get("messageExpression") or "",
                "Reason": raw.get("reason"),
                "FieldPath": raw.get("fieldPath") or "",
                "OptionalOldSelf": raw.get("optionalOldSelf"),
            }
        ).decode()
    )


def _names_a_field(schema: Schema, text: str) -> bool:
    """Whether a path such as ``.spec.list['key']`` leads to a field of the schema."""
    node: Schema | None = schema
    for part in text.replace("['", ".").replace("']", "").removeprefix(".").split("."):
        node = node.child(part) if node is not None else None
    return node is not None
