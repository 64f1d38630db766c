"""Records: objects of declared types, read by field and written as literals."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.cel import CompileError, CostExceededError, Environment, EvaluationError
from kubecore.cel.documents import document
from kubecore.cel.records import Record, Records

RECORDS = Records(
    {
        "zoo.Animal": {"Name": "string", "Legs": "uint", "Home": "zoo.Cage", "Young": "list(zoo.Animal)"},
        "zoo.Cage": {"Area": "double", "Labels": "map(string, string)"},
    },
    container="zoo",
)
ANIMALS = Environment({"animal": "zoo.Animal"}, RECORDS)
CAT = Record("zoo.Animal", {"Name": "cat"}, RECORDS)


def evaluated(text: str, **others: Any) -> Any:
    return ANIMALS.compile(text).evaluate({"animal": CAT, **others})


@pytest.mark.parametrize(
    "text",
    [
        'animal.Name == "cat" && has(animal.Name)',
        "animal.Legs == 0u && !has(animal.Legs)",
        "animal.Home.Area == 0.0 && !has(animal.Home)",
        "size(animal.Home.Labels) == 0 && size(animal.Young) == 0",
        "Animal{Legs: uint(4)}.Legs == 4u",
        'zoo.Animal{Home: Cage{Labels: {"a": "b"}}}.Home.Labels["a"] == "b"',
        '[1, 2].map(n, Animal{Name: string(n)})[1].Name == "2"',
        'animal.Name == "cat" ? Animal{Legs: 4u}.Legs == 4u : false',
    ],
)
def test_fields_that_are_not_set_read_as_zero(text: str) -> None:
    assert evaluated(text) is True


def test_a_literal_has_the_fields_that_it_names() -> None:
    made = evaluated("Animal{Home: null, Young: [Animal{}]}")
    assert made.kind == "zoo.Animal"
    assert set(made.fields) == {"Home", "Young"}
    assert made.fields["Home"] is None
    assert made.fields["Young"][0].fields == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Animl{}", "undeclared reference to 'Animl' (in container 'zoo')"),
        ("Animal{Lgs: 4u}", "undefined field 'Lgs'"),
        ("animal.Lgs", "undefined field 'Lgs'"),
        (
            "Animal{Home: 'x'}",
            "expected type of field 'Home' is 'zoo.Cage' but provided type is 'string'",
        ),
        (
            "Animal{Young: [Cage{}]}",
            "expected type of field 'Young' is 'list(zoo.Animal)' but provided type is 'list(zoo.Cage)'",
        ),
    ],
)
def test_types_of_records_are_checked(text: str, problem: str) -> None:
    with pytest.raises(CompileError) as raised:
        ANIMALS.compile(text)
    assert problem in str(raised.value)


def test_records_cannot_be_compared() -> None:
    """A record that holds another twice doubles with each loop: comparing would take ages."""
    for text in ("animal == animal", "Animal{} in [animal]", "[animal] == [Animal{}]"):
        with pytest.raises(EvaluationError, match="cannot be compared"):
            evaluated(text)


def test_a_record_has_no_form_in_json() -> None:
    with pytest.raises(EvaluationError, match="no form in JSON"):
        document(CAT)


def test_an_environment_limits_the_cost() -> None:
    text = "lists.range(1000).all(n, n >= 0)"
    assert Environment({}).compile(text).evaluate({}) is True
    with pytest.raises(CostExceededError):
        Environment({}, limit=100).compile(text).evaluate({})
