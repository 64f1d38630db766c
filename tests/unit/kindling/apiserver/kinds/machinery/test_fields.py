"""Flat rules: fields that are required, judged unless empty, or judged whenever they are given."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import port
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldPath

_AT = FieldPath("spec")


def _told(obj: JsonObject, *fields: f.Row) -> list[str]:
    return [error.message() for error in f.check_fields(obj, _AT, *fields)]


@pytest.mark.parametrize("obj", [{}, {"name": None}, {"name": ""}])
def test_what_must_be_set_may_not_be_empty(obj: JsonObject) -> None:
    check = f.named(names.is_dns1123_label)
    assert _told(obj, f.must("name", check, detail="say it")) == ["spec.name: Required value: say it"]
    assert _told(obj, f.may("name", check)) == []


def test_set_values_are_judged_by_their_check_in_the_order_of_the_table() -> None:
    fields = (f.may("number", port), f.must("mode", f.choice("A", "B")), *f.needed("x", "y"))
    assert _told({"number": 70000, "mode": "C", "y": 1}, *fields) == [
        "spec.number: Invalid value: 70000: must be between 1 and 65535, inclusive",
        'spec.mode: Unsupported value: "C": supported values: "A", "B"',
        "spec.x: Required value",
    ]
    assert _told({"number": 1, "mode": "A", "x": 1, "y": 1}, *fields) == []


def test_the_empty_value_of_a_given_field_is_judged() -> None:
    field = f.given("mode", f.choice("A"))
    assert _told({"mode": ""}, field) == ['spec.mode: Unsupported value: "": supported values: "A"']
    assert _told({"mode": None}, field) == _told({}, field) == []


def test_a_table_nests_as_its_object_does() -> None:
    table = f.may(
        "tls", f.items(f.may("hosts", f.items(f.named(names.is_dns1123_label))), *f.needed("secretName"))
    )
    found = _told({"tls": [{"secretName": "s"}, {"hosts": ["good", "-"]}]}, table)
    assert [message.partition(": ")[0] for message in found] == [
        "spec.tls[1].hosts[1]",
        "spec.tls[1].secretName",
    ]


def test_absent_fields_are_judged_as_what_they_stand_for() -> None:
    table = (f.always("port", 0, port), f.part("strategy", f.must("type")), f.given("limits", f.must("cpu")))
    assert _told({"port": None}, *table) == [
        "spec.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "spec.strategy.type: Required value",
    ]


def test_elements_that_must_be_unique_are_told_at_the_row_that_says_so() -> None:
    table = f.may("ports", f.items(f.Once("name"), f.must("port")))
    twice = {"ports": [{"name": "a", "port": 1}, {"name": "a"}]}
    for _ in range(2):  # nothing is remembered from one list to the next
        assert _told(twice, table) == [
            'spec.ports[1].name: Duplicate value: "a"',
            "spec.ports[1].port: Required value",
        ]
    assert _told({"modes": ["a", "b", "a"]}, f.may("modes", f.items(f.Once()))) == [
        'spec.modes[2]: Duplicate value: "a"'
    ]


def test_rows_with_a_condition_judge_the_objects_for_which_it_holds() -> None:
    is_one = f.equals("type", "One")
    table = (f.when(is_one, f.must("one")), f.unless(is_one, f.never("only of One", "one")))
    assert _told({"type": "One"}, *table) == ["spec.one: Required value"]
    assert _told({"type": "Two", "one": 1}, *table) == ["spec.one: Forbidden: only of One"]
    assert _told({"type": "Two"}, *table) == _told({"type": "One", "one": 1}, *table) == []


def test_an_empty_value_is_there_although_nothing_is_set() -> None:
    assert _told({"config": {}}, f.absent("not here", "config")) == ["spec.config: Forbidden: not here"]
    assert _told({"config": {}}, f.never("not here", "config")) == []


def test_numbers_and_lengths_have_limits() -> None:
    table = (f.given("seconds", f.at_least(1, "be positive")), f.given("items", f.fewer(2)))
    assert _told({"seconds": 0, "items": [1, 2, 3]}, *table) == [
        "spec.seconds: Invalid value: 0: be positive",
        "spec.items: Too many: 3: must have at most 2 items",
    ]
    assert _told({"seconds": 1, "items": [1, 2]}, *table) == []


def test_the_table_of_a_spec_judges_a_document_without_one() -> None:
    assert [error.field for error in f.spec(*f.needed("name"))({})] == ["spec.name"]


def test_what_a_condition_is_true_of_is_refused_or_lacks_fields() -> None:
    table = (
        f.given("policy", f.refused(lambda policy: policy != "A", "must be 'A'")),
        f.given("seconds", f.between(1, 30, "too long or too short"), f.at_most(20)),
        f.lacking(lambda obj: not obj.get("x") and not obj.get("y"), "x or y", "x", "y"),
        f.given("name", f.lacking(lambda name: not name.strip(), "say it")),
    )
    assert _told({"policy": "B", "seconds": 31, "name": " "}, *table) == [
        "spec.policy: Invalid value: \"B\": must be 'A'",
        "spec.seconds: Invalid value: 31: too long or too short",
        "spec.seconds: Invalid value: 31: must be less than or equal to 20",
        "spec.x: Required value: x or y",
        "spec.y: Required value: x or y",
        "spec.name: Required value: say it",
    ]
    assert _told({"policy": "A", "seconds": 20, "y": 1, "name": "n"}, *table) == []
