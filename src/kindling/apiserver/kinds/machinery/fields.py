"""Flat rules: what the fields of an object must satisfy each by itself, as tables that one function reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.objects.fields import FieldError, FieldPath, required

from .checks import messages, one_of

Check = Callable[[FieldPath, Any], Iterable[FieldError]]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: whether it must be set, and what a set value must satisfy."""

    name: str
    check: Check | None = None
    required: bool = False
    detail: str = ""
    """What the error of a missing required field says."""
    empty_is_set: bool = False
    """Whether a value such as ``""`` or 0 counts as set; null never does."""


def check_fields(obj: Mapping[str, Any], path: FieldPath, *fields: Field) -> list[FieldError]:
    """The errors of `fields` of `obj`, in the order of the table."""
    found: list[FieldError] = []
    for field in fields:
        value = obj.get(field.name)
        if value is None or not (value or field.empty_is_set):
            if field.required:
                found.append(required(path.child(field.name), field.detail))
        elif field.check is not None:
            found += field.check(path.child(field.name), value)
    return found


def must(name: str, check: Check | None = None, detail: str = "", *, given: bool = False) -> Field:
    """A field that must be set to something (with `given`: be there), and pass `check`."""
    return Field(name, check, required=True, detail=detail, empty_is_set=given)


def may(name: str, check: Check) -> Field:
    """A field that is checked unless it is empty."""
    return Field(name, check)


def given(name: str, check: Check) -> Field:
    """A field that is checked unless it is absent or null: the empty value is judged as well."""
    return Field(name, check, empty_is_set=True)


def needed(*names: str) -> tuple[Field, ...]:
    """Fields that must be set to something."""
    return tuple(must(name) for name in names)


def within(*fields: Field) -> Check:
    """A check of an object by its fields."""
    return lambda path, value: check_fields(value, path, *fields)


def items(check: Check) -> Check:
    """A check of each element of a list."""
    return lambda path, value: [
        error for position, item in enumerate(value) for error in check(path.index(position), item)
    ]


def named(rule: Callable[[Any], Iterable[str]]) -> Check:
    """A check by a name rule."""
    return lambda path, value: messages(path, value, rule)


def choice(*allowed: str) -> Check:
    """A check for one of `allowed`, which the error lists in this order."""
    return lambda path, value: one_of(path, value, allowed)
