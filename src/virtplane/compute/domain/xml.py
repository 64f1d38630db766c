"""Building XML elements; escaping is lxml's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lxml import etree

Element: TypeAlias = etree._Element

ALIAS_PREFIX = "ua-"
"""Of the aliases that users of libvirt, not libvirt itself, give."""

Attributes: TypeAlias = Mapping[str, object]


QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"


def element(tag: str, attributes: Attributes | None = None, *children: Element | str | None) -> Element:
    """An XML element; attributes that are None are left out, booleans become ``on``/``off``."""
    node = etree.Element(tag)
    for name, value in (attributes or {}).items():
        if value is not None:
            node.set(name, on_off(value) if isinstance(value, bool) else str(value))
    for child in children:
        if isinstance(child, str):
            node.text = child
        elif child is not None:
            node.append(child)
    return node


def on_off(value: bool) -> str:
    """libvirt's spelling of a feature's state."""
    return "on" if value else "off"


def yes_no(value: bool) -> str:
    """libvirt's spelling of a property's value."""
    return "yes" if value else "no"


def alias(name: str) -> Element:
    """A user alias, by which later changes find the device."""
    return element("alias", {"name": f"{ALIAS_PREFIX}{name}"})
