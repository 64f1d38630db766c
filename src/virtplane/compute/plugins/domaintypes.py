"""The types of a domain, read from ``domaintable``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from virtplane.compute.domain.xml import QEMU_NAMESPACE
from virtplane.compute.plugins.domaintable import TABLE

CONTAINER = "libvirtxml"
DOMAIN = f"{CONTAINER}.Domain"
SCALARS = frozenset(("string", "int", "uint"))

_FIELD = re.compile(
    r"(?P<mark>[@.~^]?)(?P<name>\w+)(?::(?P<type>\w+)(?P<list>\*?))?(?P<zero>\??)(?:=(?P<tag>\S+))?"
)


class Place(Enum):
    """Where in the XML the value of a field is."""

    ELEMENT = ""
    ATTRIBUTE = "@"
    TEXT = "."
    SAME = "~"
    AROUND = "^"


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a type."""

    name: str
    type: str
    """A scalar, or the full name of a record."""
    place: Place
    tag: str
    """The name of the element or attribute."""
    is_list: bool
    keeps_zero: bool
    """Whether 0 and the empty text are written; else they are the same as no value."""
    when: tuple[tuple[str, str], ...]
    """Of the alternatives of a type, this one is it where the attributes have these values."""

    @property
    def is_record(self) -> bool:
        """Whether the value has fields itself."""
        return self.type not in SCALARS

    @property
    def cel_type(self) -> str:
        """The type in expressions."""
        return f"list({self.type})" if self.is_list else self.type


@cache
def parts() -> Mapping[str, Mapping[str, Part]]:
    """The fields of each type by their names."""
    fields = dict(_lines())

    def expanded(name: str) -> list[str]:
        return [
            inner
            for field in fields[name]
            for inner in (expanded(field[1:]) if field.startswith("+") else [field])
        ]

    return {f"{DOMAIN}{name}": {part.name: part for part in map(_part, expanded(name))} for name in fields}


@cache
def alternatives_around(kind: str) -> tuple[Part, ...]:
    """The alternatives of a type that attributes of the element around it tell apart."""
    return tuple(part for part in parts()[kind].values() if part.place is Place.AROUND)


def _lines() -> list[tuple[str, list[str]]]:
    text = TABLE.strip("\n").replace("\n  ", " ")
    return [(name, rest.split()) for name, _, rest in (line.partition(":") for line in text.split("\n"))]


def _part(text: str) -> Part:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise ValueError(f"no field: {text}")
    kind, place, tag = found["type"] or "string", Place(found["mark"]), found["tag"] or ""
    is_alternative = place in (Place.SAME, Place.AROUND)
    pairs = [pair.partition(":") for pair in tag.split(",")] if is_alternative else []
    return Part(
        name=found["name"],
        type=kind if kind in SCALARS else f"{DOMAIN}{kind}",
        place=place,
        tag="" if is_alternative else _qualified(tag or found["name"].lower()),
        is_list=bool(found["list"]),
        keeps_zero=bool(found["zero"]) or (place is Place.TEXT and kind != "string"),
        when=tuple((attribute, value) for attribute, _, value in pairs),
    )


def _qualified(tag: str) -> str:
    """The name as lxml has it."""
    inner = tag.removeprefix("qemu:")
    return tag if inner == tag else f"{{{QEMU_NAMESPACE}}}{inner}"
