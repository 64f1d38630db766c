"""Documents as kubectl's family of programs prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from kubecore.json import JsonObject, get_object

Fields = Mapping[str, Any]
"""The fields of an object in the order of their printing; each with the fields below it, or None."""


class _Dumper(yaml.SafeDumper):
    """YAML in the style of Go's library: keys in order, texts of several lines as blocks, double quotes."""


_CONTROLS = re.compile(r"[\x7f-\x9f]")
"""Control characters that JSON may have as they are; terminals obey some."""
_LOOKS_OTHERWISE = re.compile(r"[yYnN]|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""Texts that other readers of YAML than Python's take for truth values or numbers."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    if "\n" in value:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
    resolver: Any = dumper  # Its types are not declared.
    plain = resolver.resolve(yaml.ScalarNode, value, (True, False)) == "tag:yaml.org,2002:str"
    plain = plain and not _LOOKS_OTHERWISE.fullmatch(value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain and value else '"')


_Dumper.add_representer(str, _text)


def as_yaml(document: JsonObject) -> str:
    """A document as YAML."""
    return str(yaml.dump(document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True))


def as_json(document: Any, indent: int) -> str:
    """A document as JSON: integers without a decimal point, and no newline at the end.

    What a guest or a user calls himself controls no terminal: control characters are escaped, all of them.
    """
    text = json.dumps(_numbers(document), indent=indent, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _numbers(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_numbers(member) for member in value]
    return value


def in_order(document: Any, fields: Fields | None) -> Any:
    """A document with only the given fields, in the given order; lists consist of such documents."""
    if fields is None:
        return document
    if isinstance(document, Sequence) and not isinstance(document, str):
        return [in_order(item, fields) for item in document]
    if not isinstance(document, dict):
        return document
    return {key: in_order(document[key], below) for key, below in fields.items() if key in document}


def machine_in_full(machine: JsonObject) -> JsonObject:
    """A VirtualMachine with the parts that its type always has, in the order of their printing."""
    template = get_object(machine, "spec", "template")
    instance = get_object(template, "spec")
    domain: JsonObject = {"resources": {}, **get_object(instance, "domain")}
    domain["devices"] = domain.pop("devices", {})
    whole = {"metadata": {}, **template, "spec": {**instance, "domain": domain}}
    return {
        "kind": "VirtualMachine",
        "apiVersion": "kubevirt.io/v1",
        "metadata": get_object(machine, "metadata"),
        "spec": {**get_object(machine, "spec"), "template": whole},
        "status": get_object(machine, "status"),
    }


def quoted(text: str) -> str:
    """The text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def harmless(text: str) -> str:
    """Words of servers and files without what would control a terminal, laid out as they were."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def printable(text: str) -> str:
    """Words of servers and files without what would control a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text).strip()
