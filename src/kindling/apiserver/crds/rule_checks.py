"""Whether the rules in a definition's schema can work: they compile, say what they need to, and are cheap."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubecore.cel import CompileError
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported, required
from kubecore.schema.model import Schema, custom_resource_schema

from .internal_form import rule_form
from .rule_costs import Budget, below
from .rules import REASONS, compile_rule

_KEYWORD = "x-kubernetes-validations"
_LINE_BREAK = re.compile(r"[\n\r]")
_STEP = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def check_rules(raw: JsonObject, path: FieldPath, *, is_well: bool = True) -> list[FieldError]:
    """The errors of the rules in a schema; expressions are checked only if the schema `is_well`."""
    checks = _Checks(is_well=is_well)
    checks.walk(custom_resource_schema(raw), 1, None, path)
    return [*checks.forms, *checks.expressions, *checks.budget.check_total(path)]


class _Checks:
    """Collects the errors of rules and of their expressions."""

    def __init__(self, *, is_well: bool) -> None:
        self._is_well = is_well
        self.forms: list[FieldError] = []
        self.expressions: list[FieldError] = []
        self.budget = Budget()

    def walk(
        self, schema: Schema, cardinality: int | None, unrelated: FieldPath | None, path: FieldPath
    ) -> None:
        """Parts first. `cardinality`: how many values of this schema an object can have, None if unknown.
        `unrelated` is the list below which values have no former ones.
        """
        before = len(self.forms)
        inner = below(schema, cardinality)
        values = schema.additional_properties
        if isinstance(schema.raw.get("additionalProperties"), dict) and values is not None:
            self.walk(values, inner, unrelated, path.child("additionalProperties"))
        for name in schema.raw.get("properties") or ():
            child = schema.properties[name]
            self.walk(child, inner, unrelated, path.child("properties").key(name))
        if schema.items is not None:
            lost = unrelated or (None if schema.list_type == "map" else path)
            self.walk(schema.items, inner, lost, path.child("items"))
        self._branches(schema, path)
        for index, rule in enumerate(schema.validations):
            self.forms += _form(rule, schema, path.child(_KEYWORD).index(index))
        if len(self.forms) == before and self._is_well:
            for index, rule in enumerate(schema.validations):
                here = path.child(_KEYWORD).index(index)
                self.expressions += self._expressions(rule, schema, cardinality, unrelated, here)

    def _branches(self, schema: Schema, path: FieldPath) -> None:
        """For rules in branches (allOf, anyOf, ...), which schemas should not have, only the form is
        checked.
        """
        inner = [(schema.raw["not"], path.child("not"))] if isinstance(schema.raw.get("not"), dict) else []
        for keyword in ("allOf", "oneOf", "anyOf"):
            for index, raw in enumerate(schema.raw.get(keyword) or ()):
                inner.append((raw, path.child(keyword).index(index)))
        for raw, here in inner:
            branch = schema.branch(raw)
            self._branches(branch, here)
            for index, rule in enumerate(branch.validations):
                self.forms += _form(rule, branch, here.child(_KEYWORD).index(index))

    def _expressions(
        self,
        raw: JsonObject,
        schema: Schema,
        cardinality: int | None,
        unrelated: FieldPath | None,
        path: FieldPath,
    ) -> Iterator[FieldError]:
        from kubecore.cel.checker import mentions  # noqa: PLC0415 (loads the interpreter)
        from kubecore.cel.type_checking import check_types  # noqa: PLC0415

        optional = ("oldSelf",) if raw.get("optionalOldSelf") else ()
        typed = {"self": schema, "oldSelf": schema}
        is_transition = False
        for field, wanted, prefix in (
            ("rule", "bool", ""),
            ("messageExpression", "string", "messageExpression "),
        ):
            text, here = str(raw.get(field) or ""), path.child(field)
            if not text:
                continue
            checked = check_types(text, typed, {}, optional=optional)
            problem = checked.problem and f"{prefix}compilation failed: {checked.problem}"
            if not problem and checked.type != wanted:
                problem = f"{prefix or 'cel expression '}must evaluate to a {wanted}"
            if not problem:
                try:
                    program = compile_rule(text, bool(optional))
                except CompileError as error:
                    problem = f"{prefix}compilation failed: {error}"
            if problem:
                yield invalid(here, rule_form(raw), problem)
                break
            if field == "rule":
                is_transition = checked.tree is not None and mentions(checked.tree, "oldSelf")
            times = cardinality if field == "rule" else 1
            yield from self.budget.check(program, schema, times, here, field)
        if is_transition and unrelated is not None:
            where = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {unrelated}"
            yield invalid(path.child("rule"), raw.get("rule"), where)
        elif not is_transition and raw.get("optionalOldSelf") is not None:
            message = "may not be set if oldSelf is not used in rule"
            yield invalid(path.child("optionalOldSelf"), raw["optionalOldSelf"], message)


def _form(raw: JsonObject, schema: Schema, path: FieldPath) -> Iterator[FieldError]:
    """The errors of a rule except those of its expressions."""
    rule, message = str(raw.get("rule") or "").strip(), str(raw.get("message") or "")
    if not rule:
        yield required(path.child("rule"), "rule is not specified")
    elif message and not message.strip():
        yield invalid(path.child("message"), message, "must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(path.child("message"), message, "must not contain line breaks")
    elif _LINE_BREAK.search(rule) and not message.strip():
        yield required(path.child("message"), "message must be specified if rule contains line breaks")
    expression = str(raw.get("messageExpression") or "")
    if expression and not expression.strip():
        yield required(path.child("messageExpression"), "messageExpression must be non-empty if specified")
    reason = raw.get("reason")
    if reason is not None and reason not in REASONS:
        yield not_supported(path.child("reason"), reason, sorted(REASONS))
    field = str(raw.get("fieldPath") or "")
    if field and not field.strip():
        yield invalid(path.child("fieldPath"), field, "must be non-empty if specified")
    if _LINE_BREAK.search(field):
        yield invalid(path.child("fieldPath"), field, "must not contain line breaks")
    if field and field_path(field, schema) is None:
        yield invalid(path.child("fieldPath"), field, "must be a valid path")


def field_path(text: str, schema: Schema) -> FieldPath | None:
    """The path of ``.spec.list['key']``; None if it does not lead to a field of the schema."""
    node, path, position = schema, FieldPath(), 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return None
        name = step[1] or re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], ""), step[2])
        if node.raw.get("properties"):
            found, path = node.properties.get(name), path.child(name)
        else:
            found, path = node.additional_properties, path.key(name)
        if found is None:
            return None
        node, position = found, step.end()
    return path
