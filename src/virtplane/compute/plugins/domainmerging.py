"""Writing what a mutation gives into a domain: the fields that it sets, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from lxml import etree

from kubecore.cel.records import Record
from virtplane.compute.domain.xml import QEMU_NAMESPACE, Element
from virtplane.compute.plugins.domainreading import ReadRecord
from virtplane.compute.plugins.domaintypes import Part, Place, alternatives_around, parts

MOST_BYTES = 1 << 20
"""Of what one mutation writes, as much as a sidecar may answer. Values that occur twice are written twice."""

_ELEMENT_BYTES = 64


class MergeError(ValueError):
    """What a mutation gives cannot be written into a domain."""


def merged(domain: Element, change: Record) -> Element:
    """A copy of `domain` with the fields that `change` sets. Lists are replaced as a whole.

    Raises MergeError.
    """
    made = copy.deepcopy(domain)
    try:
        _Writer().merge(made, change, made)
    except RecursionError:
        raise MergeError("values are nested too deeply") from None
    return made


class _Writer:
    def __init__(self) -> None:
        self._left = MOST_BYTES

    def _pay(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise MergeError(f"the mutation writes more than {MOST_BYTES} bytes")

    def merge(self, node: Element, change: Record, around: Element) -> None:
        """Write the fields of `change`; `around` is the element that `node` is in."""
        declared = parts().get(change.kind)
        if declared is None:
            raise MergeError(f"{change.kind} is no part of a domain")
        for name, value in change.fields.items():
            part = declared[name]
            if part.when:
                _choose(node if part.place is Place.SAME else around, node, part, declared)
            try:
                self._write(node, part, value, around)
                if part.place is Place.ELEMENT:
                    _sort_in(node, part, declared)
            except (TypeError, ValueError) as error:
                if isinstance(error, MergeError):
                    raise
                raise MergeError(f"{change.kind}.{name}: {error}") from error

    def _write(self, node: Element, part: Part, value: Any, around: Element) -> None:
        match part.place:
            case Place.ATTRIBUTE:
                text = self._text(part, value)
                if text is not None:
                    node.set(part.tag, text)
                elif part.tag in node.attrib:
                    del node.attrib[part.tag]
            case Place.TEXT:
                node.text = self._text(part, value)
            case Place.SAME | Place.AROUND:
                self.merge(node, _record(part, value), around)
            case Place.ELEMENT if part.is_list:
                self._replace_all(node, part, value)
            case Place.ELEMENT:
                self._child(node, part, value)

    def _text(self, part: Part, value: Any) -> str | None:
        """A scalar as text; None where it is the same as no value."""
        if value is None or (not value and not part.keeps_zero):
            return None
        wanted = str if part.type == "string" else int
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise MergeError(f"{part.name}: a value of type {part.type} is expected")
        text = str(value)
        self._pay(len(text.encode()))
        return text

    def _child(self, node: Element, part: Part, value: Any) -> None:
        present = node.find(part.tag)
        if not part.is_record:
            text = self._text(part, value)
            if text is None:
                value = None
            elif present is not None:
                present.text = text
                return
        if value is None:
            if present is not None:
                node.remove(present)
        elif present is None:
            made = self._element(part, value, node)
            if len(made) or made.attrib or not (part.is_record and alternatives_around(part.type)):
                node.append(made)
        elif isinstance(value, ReadRecord):
            node.replace(present, self._element(part, value, node))
        else:
            self.merge(present, _record(part, value), node)

    def _replace_all(self, node: Element, part: Part, values: Any) -> None:
        if not isinstance(values, list):
            raise MergeError(f"{part.name}: a list is expected")
        present = node.findall(part.tag)
        made = [self._element(part, value, node) for value in values]
        for each in present:
            node.remove(each)
        node.extend(made)

    def _element(self, part: Part, value: Any, around: Element) -> Element:
        """A new element for a value."""
        self._pay(_ELEMENT_BYTES)
        if not part.is_record:
            made = _new(part)
            made.text = self._text(part, value)
            return made
        record = _record(part, value)
        if isinstance(record, ReadRecord):
            made = copy.deepcopy(record.element)
            made.tag, made.tail = part.tag, None
            for each in alternatives_around(record.kind):
                if each.name in record.fields:
                    _mark(around, each)
            self._pay(len(etree.tostring(made)))
            return made
        made = _new(part)
        self.merge(made, record, around)
        return made


def _choose(holder: Element, node: Element, part: Part, declared: Mapping[str, Part]) -> None:
    """Make `node` the alternative that `part` is; what others have goes."""
    if all(holder.get(name) == wanted for name, wanted in part.when):
        return
    _mark(holder, part)
    for other in declared.values():
        for inner in parts()[other.type].values() if other.when and other is not part else ():
            if inner.place is Place.ATTRIBUTE:
                node.attrib.pop(inner.tag, "")
            elif inner.place is Place.TEXT:
                node.text = None
            for child in node.findall(inner.tag) if inner.place is Place.ELEMENT else ():
                node.remove(child)


def _sort_in(node: Element, part: Part, declared: Mapping[str, Part]) -> None:
    """Move the elements of a field before those that the table has after it: libvirt's schema wants so."""
    names = list(declared)
    later = {declared[name].tag for name in names[names.index(part.name) + 1 :]} - {"", part.tag}
    behind = next((child for child in node if child.tag in later), None)
    if behind is not None:
        for each in node.findall(part.tag):
            behind.addprevious(each)


def _mark(holder: Element, part: Part) -> None:
    for name, wanted in part.when:
        holder.set(name, wanted)


def _new(part: Part) -> Element:
    return etree.Element(part.tag, nsmap={"qemu": QEMU_NAMESPACE} if part.tag.startswith("{") else None)


def _record(part: Part, value: Any) -> Record:
    if not isinstance(value, Record) or value.kind != part.type:
        raise MergeError(f"{part.name}: an object {part.type} is expected")
    return value
