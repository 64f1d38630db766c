"""Documents read as structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kubecore.objects.structs import UnfitDocument, decode, encode, part, parts


class Wheel(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    name: str
    size_in_inches: int | None = None


class Spec(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    colour: str | None = None
    wheels: tuple[Wheel, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    spare: Wheel | None = None


class Car(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    kind: str = ""
    spec: Spec = Spec()


def _car(**spec: Any) -> dict[str, Any]:
    return {"kind": "Car", "metadata": {"name": "mini", "namespace": "garage"}, "spec": spec}


def test_fields_are_read_by_name() -> None:
    car = decode(Car, _car(colour="red", wheels=[{"name": "left", "sizeInInches": 14}]))
    assert (car.spec.colour, car.spec.wheels[0].size_in_inches) == ("red", 14)


def test_what_is_absent_has_its_default() -> None:
    assert decode(Car, {}).spec == Spec()


def test_unknown_fields_are_passed_over() -> None:
    assert decode(Car, _car(wings=2)).spec == Spec()


@pytest.mark.parametrize(
    "spec",
    [
        {"wheels": None, "tags": None, "colour": None},
        {"wheels": [], "tags": {"a": None}},
        {"spare": None},
    ],
)
def test_null_is_absent(spec: dict[str, Any]) -> None:
    assert decode(Car, _car(**spec)).spec == Spec()


def test_an_integer_may_be_written_with_a_point() -> None:
    assert decode(Wheel, {"name": "left", "sizeInInches": 14.0}).size_in_inches == 14


@pytest.mark.parametrize(
    ("spec", "path", "problem"),
    [
        ({"colour": 7}, "spec.colour", "Expected `str | null`, got `int`"),
        ({"wheels": [{"name": "a"}, {}]}, "spec.wheels[1]", "Object missing required field `name`"),
        ({"wheels": [None]}, "spec.wheels[0]", "Expected `object`, got `null`"),
        ({"wheels": [{"name": "a", "sizeInInches": 1.5}]}, "spec.wheels[0].sizeInInches", "Expected"),
        ({"tags": {"a": 1}}, "spec.tags[...]", "Expected `str`, got `int`"),
    ],
)
def test_a_document_that_does_not_fit_is_named_with_the_field(
    spec: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(UnfitDocument) as caught:
        decode(Car, _car(**spec))
    error = caught.value
    assert (error.kind, error.namespace, error.name, error.path) == ("Car", "garage", "mini", path)
    assert str(error).startswith(f"Car garage/mini: {path}: {problem}")


def test_a_part_of_a_document_is_named_by_its_type() -> None:
    with pytest.raises(UnfitDocument, match=r"^Wheel: Object missing required field `name`$"):
        decode(Wheel, {})


def test_a_part_is_encoded_as_it_was_written() -> None:
    spec = {"colour": "red", "wheels": [{"name": "left"}], "tags": {"a": "b"}, "spare": {"name": "x"}}
    assert encode(decode(Spec, spec)) == spec


def test_a_part_of_a_document_is_the_one_that_is_written_there() -> None:
    document = _car(spare={"name": "fifth", "unknown": 1}, wheels=[{"name": "left"}])
    assert part(document, Car, lambda car: car.spec.spare) is document["spec"]["spare"]
    assert parts(document, Car, lambda car: car.spec.wheels) is document["spec"]["wheels"]


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {"spare": None, "wheels": None}}])
def test_a_part_that_is_not_there_is_empty(document: dict[str, Any]) -> None:
    assert part(document, Car, lambda car: car.spec.spare) == {}
    assert parts(document, Car, lambda car: car.spec.wheels) == []


def test_a_part_has_a_name_that_its_type_knows() -> None:
    with pytest.raises(AttributeError, match="wings"):
        part({}, Car, lambda car: car.spec.wings)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="size"):
        part({}, Car, lambda car: car.spec.colour.size)  # type: ignore[union-attr]
