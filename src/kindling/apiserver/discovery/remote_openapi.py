"""What aggregated API servers say of their own group versions in OpenAPI. Pure.

An aggregated server describes what it serves, and nothing else: of its documents count only the paths below
its group version, the definitions that these refer to, and kinds of its own group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kubecore.json import JsonObject, get_object

from . import gnostic

_DEFINITION = "#/definitions/"
_KINDS = "x-kubernetes-group-version-kind"
_DEEPEST = 64
_MOST_PATHS = 2000
_MOST_DEFINITIONS = 4000


class UnusableDocument(Exception):
    """A server's document is none, or is not one that can be merged into the cluster's."""


@dataclass(frozen=True, slots=True)
class RemoteDocument:
    """A document as it was read, and the server's own tag for it."""

    body: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class RemoteApi:
    """What an aggregated server says of one group version; each part may be missing."""

    v2: JsonObject | None = None
    """``paths`` and ``definitions``."""
    v3: bytes | None = None


def read_v3(body: bytes) -> bytes:
    """The document of a group version, checked. Raises UnusableDocument."""
    document = _parsed(body)
    if not str(document.get("openapi") or "").startswith("3.") or not isinstance(document.get("paths"), dict):
        raise UnusableDocument("it is no OpenAPI 3 document with paths")
    return body


def read_v2(body: bytes, group: str, version: str) -> JsonObject:
    """The paths of a group version and the definitions that they need. Raises UnusableDocument."""
    document = _parsed(body)
    base = f"/apis/{group}/{version}"
    paths = {
        path: item
        for path, item in get_object(document, "paths").items()
        if isinstance(item, dict) and (path == base or path.startswith(f"{base}/"))
    }
    if len(paths) > _MOST_PATHS:
        raise UnusableDocument(f"it has more than {_MOST_PATHS} paths")
    definitions = get_object(document, "definitions")
    needed: JsonObject = {}
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        found = definitions.get(name)
        if not isinstance(found, dict):
            raise UnusableDocument(f"it refers to the definition {name[:100]!r}, which it does not have")
        if name not in needed:
            needed[name] = found
            waiting += _references(found)
        if len(needed) > _MOST_DEFINITIONS:
            raise UnusableDocument(f"it has more than {_MOST_DEFINITIONS} definitions")
    own = {
        "paths": _without_foreign_kinds(paths, group),
        "definitions": _without_foreign_kinds(needed, group),
    }
    try:
        gnostic.encode({"swagger": "2.0", "info": {"title": "", "version": ""}, **own})
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
        raise UnusableDocument(f"it cannot be written as protobuf: {error}") from error
    return own


def merge_v2(document: JsonObject, remote: Mapping[str, Any]) -> None:
    """Add a server's paths and definitions to `document`.

    What is there already stays: a definition of the same name and another content gets a name of its own.
    """
    paths, definitions = document["paths"], document["definitions"]
    names = {name: _free_name(name, found, definitions) for name, found in remote["definitions"].items()}
    for name, found in remote["definitions"].items():
        definitions.setdefault(names[name], _renamed(found, names))
    for path, item in remote["paths"].items():
        paths.setdefault(path, _renamed(item, names))


def _free_name(name: str, found: object, definitions: Mapping[str, object]) -> str:
    chosen, number = name, 1
    while chosen in definitions and definitions[chosen] != found:
        number += 1
        chosen = f"{name}_v{number}"
    return chosen


def _parsed(body: bytes) -> JsonObject:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnusableDocument(f"it is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnusableDocument("it is no JSON object")
    level: list[object] = [document]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in _children(node)]
        if not level:
            return document
    raise UnusableDocument(f"it is nested more than {_DEEPEST} deep")


def _children(node: object) -> list[object]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict) and isinstance(target := node.get("$ref"), str):
        yield target.removeprefix(_DEFINITION)
    for child in _children(node):
        yield from _references(child)


def _without_foreign_kinds(node: Any, group: str) -> Any:
    """Without claims to be a kind of another group, by which clients would look for that kind here."""
    if isinstance(node, list):
        return [_without_foreign_kinds(child, group) for child in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _without_foreign_kinds(value, group) for key, value in node.items() if key != _KINDS}
    claimed = node.get(_KINDS)
    if isinstance(claimed, list):
        own = [item for item in claimed if isinstance(item, dict) and item.get("group") == group]
        return {**kept, _KINDS: own} if own else kept
    is_own = isinstance(claimed, dict) and claimed.get("group") == group
    return {**kept, _KINDS: claimed} if is_own else kept


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(child, names) for child in node]
    if not isinstance(node, dict):
        return node
    made = {key: _renamed(value, names) for key, value in node.items()}
    target = node.get("$ref")
    if isinstance(target, str):
        name = target.removeprefix(_DEFINITION)
        made["$ref"] = _DEFINITION + names.get(name, name)
    return made
