"""Flat rules: fields that are required, judged unless empty, or judged whenever they are given."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.machinery.checks import port
from kindling.apiserver.kinds.machinery.fields import (
    Field,
    check_fields,
    choice,
    given,
    may,
    must,
    named,
    needed,
)
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldPath

_AT = FieldPath("spec")


def _told(obj: JsonObject, *fields: Field) -> list[str]:
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
