"""Rules of custom resources."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from kindling.apiserver.crds.rules import RuleChecker
from kubecore.cel import Budget
from kubecore.objects import fields
from kubecore.schema.embedded import validate_embedded
from kubecore.schema.model import Schema, custom_resource_schema


def check(
    properties: dict[str, Any],
    new: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    warnings: list[str] | None = None,
    **spec: Any,
) -> list[str]:
    schema = custom_resource_schema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **spec}}}
    )
    before = {"spec": old} if old is not None else None
    found = RuleChecker(schema).check(
        {"spec": new}, before, [], (warnings if warnings is not None else []).append
    )
    return [error.message() for error in found]


NUMBER = {"type": "integer"}


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, **more}]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "spec: Invalid value: failed rule: self.a <= self.b"),
        ({"message": "a first"}, "spec: Invalid value: a first"),
        ({"messageExpression": "'a is ' + string(self.a)"}, "spec: Invalid value: a is 2"),
        (
            {"messageExpression": "self.none", "message": "fallback"},
            "spec: Invalid value: fallback",
        ),
        ({"fieldPath": ".a", "message": "m"}, "spec.a: Invalid value: m"),
        ({"reason": "FieldValueForbidden", "message": "m"}, "spec: Forbidden: m"),
        ({"reason": "FieldValueRequired", "message": "m"}, "spec: Required value: m"),
        ({"reason": "FieldValueDuplicate", "message": "m"}, "spec: Duplicate value"),
    ],
)
def test_a_false_rule_says_so_in_its_way(more: dict[str, Any], expected: str) -> None:
    properties = {"a": NUMBER, "b": NUMBER}
    assert check(properties, {"a": 2, "b": 1}, **rule("self.a <= self.b", **more)) == [expected]
    assert check(properties, {"a": 1, "b": 1}, **rule("self.a <= self.b", **more)) == []


def test_a_rule_without_value_fails_with_the_reason() -> None:
    assert check({"a": NUMBER}, {}, **rule("self.a > 1")) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: self.a > 1'
    ]


def test_transition_rules_need_an_old_value() -> None:
    properties = {"a": {**NUMBER, **rule("self >= oldSelf", message="must grow")}}
    assert check(properties, {"a": 1}) == []
    assert check(properties, {"a": 1}, {"a": 2}) == ["spec.a: Invalid value: 1: must grow"]
    assert check(properties, {"a": 1}, {}) == []


def test_what_an_unchanged_value_breaks_is_a_warning() -> None:
    properties = {"a": {**NUMBER, **rule("self < 3", message="must be small")}, "b": NUMBER}
    warnings: list[str] = []
    assert check(properties, {"a": 5, "b": 2}, {"a": 5, "b": 1}, warnings=warnings) == []
    assert warnings == ["spec.a: Invalid value: 5: must be small"]
    assert check(properties, {"a": 6}, {"a": 5}) == ["spec.a: Invalid value: 6: must be small"]


def test_operands_of_wrong_types_are_explained() -> None:
    properties = {"a": {"x-kubernetes-int-or-string": True, **rule("self > 3")}}
    assert check(properties, {"a": "x"}) == [
        "spec.a: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, "
        "function or macro signature for rule: self > 3"
    ]


def test_an_optional_old_value_is_none_on_create() -> None:
    text = "oldSelf.hasValue() || self == 1"
    properties = {"a": {**NUMBER, **rule(text, optionalOldSelf=True, message="starts at 1")}}
    assert check(properties, {"a": 2}) == ["spec.a: Invalid value: 2: starts at 1"]
    assert check(properties, {"a": 2}, {"a": 5}) == []


def test_elements_of_map_lists_are_compared_with_their_former_selves() -> None:
    item = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "v": {**NUMBER, **rule("self >= oldSelf", message="grow")}},
    }
    properties = {
        "l": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": item,
        }
    }
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    new = {"l": [{"k": "b", "v": 4}, {"k": "c", "v": 0}]}
    assert check(properties, new, old) == ["spec.l[0].v: Invalid value: 4: grow"]


def test_names_that_cel_cannot_spell_are_escaped_and_times_are_times() -> None:
    properties = {
        "namespace": {"type": "string"},
        "a-b": {"type": "string"},
        "until": {"type": "string", "format": "date-time"},
    }
    text = "self.__namespace__ == 'n' && self.a__dash__b == 'x' && self.until.getFullYear() == 2026"
    new = {"namespace": "n", "a-b": "x", "until": "2026-01-02T03:04:05Z"}
    assert check(properties, new, **rule(text)) == []


def test_rules_wait_until_the_object_has_its_form() -> None:
    schema = custom_resource_schema({"type": "object", **rule("self.a == 1")})
    found = [fields.type_invalid("spec.a", "string", "must be of type integer")]
    warnings: list[str] = []
    (error,) = RuleChecker(schema).check({}, None, found, warnings.append)
    assert error.message() == (
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    )


NUMBERS = {"type": "array", "items": NUMBER}
NO_FURTHER = "no further validation rules will be run"


def test_a_rule_that_costs_too_much_ends_the_check() -> None:
    text = "self.a.all(x, self.a.all(y, x + y >= 0))"
    properties = {"a": {**NUMBERS, "items": {**NUMBER, **rule("self < 0")}}}

    assert check(properties, {"a": list(range(1000))}, **rule(text)) == [
        "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': "
        f"{NO_FURTHER} due to call cost exceeds limit for rule: {text}"
    ]


def test_all_rules_of_an_object_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kindling.apiserver.crds.rules.Budget", lambda: Budget(200_000))
    text = "self.all(x, self.all(y, x + y >= 0))"
    properties = {"lists": {"type": "array", "items": {**NUMBERS, **rule(text)}}}
    lists = [list(range(50))] * 20

    assert check(properties, {"lists": lists[:5]}) == []
    (problem,) = check(properties, {"lists": lists})
    assert problem.startswith("spec.lists[")
    assert problem.endswith(
        f'Invalid value: "array": validation failed due to running out of cost budget, {NO_FURTHER}'
    )


def test_a_message_that_costs_too_much_ends_the_check() -> None:
    text = "string(self.a.all(x, self.a.all(y, x + y >= 0)))"
    properties = {"a": {**NUMBERS, "items": {**NUMBER, **rule("self < 0")}}}

    (problem,) = check(properties, {"a": list(range(1000))}, **rule("false", messageExpression=text))

    reason = f"{NO_FURTHER} due to call cost exceeds limit for messageExpression: {text}"
    assert problem == f'spec: Invalid value: "object": {reason}'


def test_former_values_that_may_be_absent_are_optional() -> None:
    properties = {"a": {**NUMBER, **rule("self >= oldSelf.orValue(5)", optionalOldSelf=True)}}

    assert check(properties, {"a": 5}) == []
    assert check(properties, {"a": 4}) == [
        "spec.a: Invalid value: 4: failed rule: self >= oldSelf.orValue(5)"
    ]
    assert check(properties, {"a": 3}, {"a": 2}) == []


def test_durations_and_times_compare() -> None:
    span = {"type": "string", "format": "duration", **rule("self > duration('1h')")}
    moment = {"type": "string", "format": "date-time", **rule("self.getFullYear() == 2024")}

    assert check({"d": span, "t": moment}, {"d": "2 days", "t": "2024-01-01T00:00:00Z"}) == []
    assert len(check({"d": span, "t": moment}, {"d": "5m", "t": "2025-01-01T00:00:00Z"})) == 2


def test_what_is_no_duration_stays_a_text() -> None:
    properties = {"d": {"type": "string", "format": "duration", **rule("self == '1' || self.size() > 9")}}

    assert check(properties, {"d": "1" * 100_000}) == []


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"type": "array", "items": {"type": "integer", **rule("self > 1")}}, [2, 1]),
        ({"type": "object", "additionalProperties": {"type": "integer", **rule("self > 1")}}, {"k": 1}),
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "integer", **rule("self > 1")}}},
            [[1]],
        ),
        ({"type": "object", "properties": {"f": {"type": "integer", **rule("self > 1")}}}, {"f": 1}),
    ],
)
def test_rules_are_found_at_any_depth(raw: dict[str, Any], value: Any) -> None:
    assert len(check({"outer": raw}, {"outer": value})) == 1


def test_looking_for_rules_makes_no_views_of_the_parts() -> None:
    parts = {f"f{number}": {"type": "array", "items": {"type": "string"}} for number in range(200)}
    schema = custom_resource_schema({"type": "object", "properties": parts})
    before = sum(isinstance(each, Schema) for each in gc.get_objects())
    assert RuleChecker(schema).check({"f1": ["x"]}, None, [], lambda _: None) == []
    assert validate_embedded({"f1": ["x"]}, schema) == []
    assert sum(isinstance(each, Schema) for each in gc.get_objects()) == before
