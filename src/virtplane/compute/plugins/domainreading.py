"""A domain's XML as records."""

from __future__ import annotations

from typing import Any

from lxml import etree

from kubecore.cel.records import Record, Records
from kubecore.cel.values import Uint
from virtplane.compute.domain.xml import Element
from virtplane.compute.plugins.domaintypes import Part, Place, alternatives_around, parts


class ReadRecord(Record):
    """A record that was read: where an expression passes it on, all of its element goes along, also what
    expressions do not know.
    """

    __slots__ = ("element",)

    def __init__(self, kind: str, fields: dict[str, Any], records: Records, element: Element) -> None:
        super().__init__(kind, fields, records)
        self.element = element


def record_of(node: Element, kind: str, records: Records) -> ReadRecord:
    """The element `node` as a record of the type `kind`, with the fields that are set."""
    return _read(node, kind, records, node)


def _read(node: Element, kind: str, records: Records, around: Element) -> ReadRecord:
    fields: dict[str, Any] = {}
    for part in parts()[kind].values():
        value = _value(node, part, records, around)
        if value is not None:
            fields[part.name] = value
    return ReadRecord(kind, fields, records, node)


def _value(node: Element, part: Part, records: Records, around: Element) -> Any:
    match part.place:
        case Place.ATTRIBUTE:
            return _scalar(part, node.get(part.tag))
        case Place.TEXT:
            return _scalar(part, node.text)
        case Place.SAME | Place.AROUND:
            holder = around if part.place is Place.AROUND else node
            is_it = all(holder.get(name) == value for name, value in part.when)
            return _read(node, part.type, records, around) if is_it else None
    found = node.findall(part.tag) if part.is_list else node.findall(part.tag)[:1]
    if not found and part.is_record and _is_told_around(part, node):
        found = [etree.Element(part.tag)]
    values = [
        _read(each, part.type, records, node) if part.is_record else _scalar(part, each.text or "")
        for each in found
    ]
    if part.is_list:
        return values or None
    return values[0] if values else None


def _is_told_around(part: Part, node: Element) -> bool:
    """Whether an element that is missing has a value all the same, as ``<serial type="pty"/>`` its source."""
    return any(
        all(node.get(name) == value for name, value in each.when) for each in alternatives_around(part.type)
    )


def _scalar(part: Part, text: str | None) -> Any:
    """The value of a text; None for none, for zero where that is the same, and for what is no number."""
    if text is None or (not text and not part.keeps_zero):
        return None
    if part.type == "string":
        return text
    try:
        number = int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        return None
    if number == 0 and not part.keeps_zero:
        return None
    is_small = 0 <= number < 1 << 64 if part.type == "uint" else abs(number) < 1 << 63
    return (Uint(number) if part.type == "uint" else number) if is_small else None
