"""Validation rules as tables of rows, which `check_fields` evaluates from top to bottom.

A row is a field (``must``, ``may``, ``given``, ``always``) with the checks of its value, or a function of the
whole object, for rules about several fields. The checks of an object or list are rows again, so that a table
nests like the object. The modules of kinds call this one `f`::

    f.may("tls", f.items(f.may("hosts", f.items(_host)), f.may("secretName", f.SUBDOMAIN)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
)
from kubecore.objects.selectors import validate_label_selector_object, validate_labels

from .checks import messages, one_of
from .rules import Change, Judge

Check = Callable[[FieldPath, Any], Iterable[FieldError]]
"""The errors of the value at a path; never called with None."""
Test = Callable[[Any], Any]
"""Something that is true of a value or object, or is not."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: whether it must be set, and what its value must satisfy."""

    name: str
    check: Check | None = None
    required: bool = False
    detail: str = ""
    """What the error of a missing required field says."""
    empty_is_set: bool = False
    """Whether a value such as ``""`` or 0 counts as set; null never does."""
    unset: Any = None
    """The value that an absent field stands for."""


Row = Field | Check


def check_fields(obj: Any, path: FieldPath, *rows: Row) -> list[FieldError]:
    """The errors of `obj`, in the order of the table."""
    found: list[FieldError] = []
    for row in rows:
        if not isinstance(row, Field):
            found += row(path, obj)
            continue
        value = obj.get(row.name)
        if value is None:
            value = row.unset
        if value is None or not (value or row.empty_is_set):
            if row.required:
                found.append(required(path.child(row.name), row.detail))
        elif row.check is not None:
            found += row.check(path.child(row.name), value)
    return found


def must(name: str, *rows: Row, detail: str = "", given: bool = False) -> Field:
    """A field that must be set to something (with `given`: be there), and satisfy `rows`."""
    return Field(name, within(*rows) if rows else None, required=True, detail=detail, empty_is_set=given)


def may(name: str, *rows: Row) -> Field:
    """A field that is judged unless it is empty."""
    return Field(name, within(*rows))


def given(name: str, *rows: Row) -> Field:
    """A field that is judged unless it is absent or null: the empty value is judged as well."""
    return Field(name, within(*rows), empty_is_set=True)


def always(name: str, unset: Any, *rows: Row) -> Field:
    """A field that is judged in any case: as `unset` where it is absent or null."""
    return Field(name, within(*rows), empty_is_set=True, unset=unset)


def part(name: str, *rows: Row) -> Field:
    """An object that is judged by its fields even where it is absent."""
    return always(name, {}, *rows)


def never(detail: str, *names: str) -> Check:
    """Fields that may not be set to anything."""
    return lambda path, obj: [forbidden(path.child(name), detail) for name in names if obj.get(name)]


def absent(detail: str, *names: str) -> Check:
    """Fields that may not be there, empty values included."""
    return lambda path, obj: [
        forbidden(path.child(name), detail) for name in names if obj.get(name) is not None
    ]


def needed(*names: str) -> tuple[Field, ...]:
    """Fields that must be set to something."""
    return tuple(must(name) for name in names)


def counts(*names: str) -> tuple[Field, ...]:
    """Numbers that are not negative."""
    return tuple(given(name, at_least(0)) for name in names)


def when(condition: Test, *rows: Row) -> Check:
    """Rows for objects for which `condition` is true."""
    return lambda path, obj: check_fields(obj, path, *rows) if condition(obj) else ()


def unless(condition: Test, *rows: Row) -> Check:
    """Rows for objects for which `condition` is false."""
    return when(lambda obj: not condition(obj), *rows)


def equals(name: str, *values: Any) -> Test:
    """Whether a field has one of `values`: a condition of ``when`` and ``unless``."""
    return lambda obj: obj.get(name) in values


def within(*rows: Row) -> Check:
    """A check of a value by several rows."""
    if len(rows) == 1 and not isinstance(rows[0], Field):
        return rows[0]
    return lambda path, value: check_fields(value, path, *rows)


@dataclass(frozen=True, slots=True)
class Once:
    """A row of list elements: none may have the same field `name` as one before it (or be equal, without)."""

    name: str = ""

    def over_a_list(self) -> Check:
        """The check of the elements of one list, which remembers them."""
        seen: set[Any] = set()

        def check(path: FieldPath, item: Any) -> Iterator[FieldError]:
            key = item.get(self.name) or "" if self.name else item
            if key in seen:
                yield duplicate(path.child(self.name) if self.name else path, key)
            seen.add(key)

        return check


def items(*rows: Row | Once) -> Check:
    """A check of each element of a list."""

    def check(path: FieldPath, values: Iterable[Any]) -> Iterator[FieldError]:
        judged = [row.over_a_list() if isinstance(row, Once) else row for row in rows]
        for position, item in enumerate(values):
            yield from check_fields(item, path.index(position), *judged)

    return check


def named(rule: Callable[[Any], Iterable[str]]) -> Check:
    """A check by a name rule."""
    return lambda path, value: messages(path, value, rule)


def choice(*allowed: str) -> Check:
    """A check for one of `allowed`, which the error lists in this order."""
    return lambda path, value: one_of(path, value, allowed)


def refused(is_bad: Test, detail: str) -> Check:
    """A check that refuses values as invalid of which `is_bad` is true."""
    return lambda path, value: [invalid(path, value, detail)] if is_bad(value) else []


def lacking(is_bad: Test, detail: str = "", *names: str) -> Check:
    """Values or objects of which `is_bad` is true lack something: the fields `names`, if there are any."""

    def check(path: FieldPath, value: Any) -> Iterator[FieldError]:
        if is_bad(value):
            yield from (required(at, detail) for at in (map(path.child, names) if names else (path,)))

    return check


def between(lowest: int, highest: int, detail: str = "") -> Check:
    """A check for a number of a range."""
    text = detail or f"must be between {lowest} and {highest}, inclusive"
    return refused(lambda value: not lowest <= value <= highest, text)


def at_least(lowest: int, detail: str = "") -> Check:
    """A check for a number that is not below `lowest`."""
    return refused(lambda value: value < lowest, detail or f"must be greater than or equal to {lowest}")


def at_most(highest: int, detail: str = "") -> Check:
    """A check for a number that is not above `highest`."""
    return refused(lambda value: value > highest, detail or f"must be less than or equal to {highest}")


def shorter(limit: int) -> Check:
    """A check for a text of at most `limit` characters."""
    return lambda path, value: [too_long(path, limit)] if len(value) > limit else []


def fewer(limit: int) -> Callable[[FieldPath, Any], list[FieldError]]:
    """A check for a list or map of at most `limit` entries."""
    return lambda path, value: [too_many(path, len(value), limit)] if len(value) > limit else []


def selector(path: FieldPath, value: JsonObject) -> Iterable[FieldError]:
    """A label selector."""
    return validate_label_selector_object(value, path)


def labels(path: FieldPath, value: JsonObject) -> Iterable[FieldError]:
    """A map of labels."""
    return validate_labels(value, path)


LABEL = named(names.is_dns1123_label)
SUBDOMAIN = named(names.is_dns1123_subdomain)
QUALIFIED = named(names.is_qualified_name)
PATH_SEGMENT = named(names.is_path_segment_name)
LABEL_VALUE = named(names.is_label_value)
PORT_NAME = named(names.is_port_name)
PROTOCOL = choice("SCTP", "TCP", "UDP")
SERVICE_PORT = between(1, 65535, "port is not valid: must be between 1 and 65535, inclusive")
"""The port of a service that the API server calls."""


def document(*rows: Row) -> Judge:
    """The validation of a kind by a table of its top-level fields."""
    return lambda obj: check_fields(obj, FieldPath(), *rows)


def spec(*rows: Row) -> Judge:
    """The validation of a kind by a table of the fields of its spec."""
    return lambda obj: check_fields(get_object(obj, "spec"), FieldPath("spec"), *rows)


def status(*rows: Row) -> Change:
    """The validation of a status by a table of its fields."""
    return lambda new, old: check_fields(get_object(new, "status"), FieldPath("status"), *rows)
