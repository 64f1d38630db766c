"""Flat rules: fields that are required, judged unless empty, or judged whenever they are given."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.machinery.checks import port
from kindling.apiserver.kinds.machinery.fields import (
    Once,
    Row,
    absent,
    always,
    at_least,
    check_fields,
    choice,
    equals,
    fewer,
    given,
    items,
    may,
    must,
    named,
    needed,
    never,
    part,
    spec,
    unless,
    when,
)
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldPath

_AT = FieldPath("spec")


def _told(obj: JsonObject, *fields: Row) -> list[str]:
    return [error.message() for error in check_fields(obj, _AT, *fields)]


@pytest.mark.parametrize("obj", [{}, {"name": None}, {"name": ""}])
def test_what_must_be_set_may_not_be_empty(obj: JsonObject) -> None:
    check = named(names.is_dns1123_label)
    assert _told(obj, must("name", check, detail="say it")) == ["spec.name: Required value: say it"]
    assert _told(obj, may("name", check)) == []


def test_set_values_are_judged_by_their_check_in_the_order_of_the_table() -> None:
    fields = (may("number", port), must("mode", choice("A", "B")), *needed("x", "y"))
    assert _told({"number": 70000, "mode": "C", "y": 1}, *fields) == [
        "spec.number: Invalid value: 70000: must be between 1 and 65535, inclusive",
        'spec.mode: Unsupported value: "C": supported values: "A", "B"',
        "spec.x: Required value",
    ]
    assert _told({"number": 1, "mode": "A", "x": 1, "y": 1}, *fields) == []


def test_the_empty_value_of_a_given_field_is_judged() -> None:
    field = given("mode", choice("A"))
    assert _told({"mode": ""}, field) == ['spec.mode: Unsupported value: "": supported values: "A"']
    assert _told({"mode": None}, field) == _told({}, field) == []


def test_a_table_nests_as_its_object_does() -> None:
    table = may("tls", items(may("hosts", items(named(names.is_dns1123_label))), *needed("secretName")))
    found = _told({"tls": [{"secretName": "s"}, {"hosts": ["good", "-"]}]}, table)
    assert [message.partition(": ")[0] for message in found] == [
        "spec.tls[1].hosts[1]",
        "spec.tls[1].secretName",
    ]


def test_absent_fields_are_judged_as_what_they_stand_for() -> None:
    table = (always("port", 0, port), part("strategy", must("type")), given("limits", must("cpu")))
    assert _told({"port": None}, *table) == [
        "spec.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "spec.strategy.type: Required value",
    ]


def test_elements_that_must_be_unique_are_told_at_the_row_that_says_so() -> None:
    table = may("ports", items(Once("name"), must("port")))
    twice = {"ports": [{"name": "a", "port": 1}, {"name": "a"}]}
    for _ in range(2):  # nothing is remembered from one list to the next
        assert _told(twice, table) == [
            'spec.ports[1].name: Duplicate value: "a"',
            "spec.ports[1].port: Required value",
        ]
    assert _told({"modes": ["a", "b", "a"]}, may("modes", items(Once()))) == [
        'spec.modes[2]: Duplicate value: "a"'
    ]


def test_rows_with_a_condition_judge_the_objects_for_which_it_holds() -> None:
    is_one = equals("type", "One")
    table = (when(is_one, must("one")), unless(is_one, never("only of One", "one")))
    assert _told({"type": "One"}, *table) == ["spec.one: Required value"]
    assert _told({"type": "Two", "one": 1}, *table) == ["spec.one: Forbidden: only of One"]
    assert _told({"type": "Two"}, *table) == _told({"type": "One", "one": 1}, *table) == []


def test_an_empty_value_is_there_although_nothing_is_set() -> None:
    assert _told({"config": {}}, absent("not here", "config")) == ["spec.config: Forbidden: not here"]
    assert _told({"config": {}}, never("not here", "config")) == []


def test_numbers_and_lengths_have_limits() -> None:
    table = (given("seconds", at_least(1, "be positive")), given("items", fewer(2)))
    assert _told({"seconds": 0, "items": [1, 2, 3]}, *table) == [
        "spec.seconds: Invalid value: 0: be positive",
        "spec.items: Too many: 3: must have at most 2 items",
    ]
    assert _told({"seconds": 1, "items": [1, 2]}, *table) == []


def test_the_table_of_a_spec_judges_a_document_without_one() -> None:
    assert [error.field for error in spec(*needed("name"))({})] == ["spec.name"]
