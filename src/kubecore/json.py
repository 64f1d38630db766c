"""The raw JSON of API objects, and typed ways to read it.

The raw document is the truth: unknown fields survive because nobody decodes an object into classes
and writes it back. Readers go through the getters below, which never raise on absent fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson

JsonObject: TypeAlias = dict[str, Any]
"""A mutable JSON object; values are JSON values."""


def deep_copy(document: JsonObject) -> JsonObject:
    """A copy that shares nothing with `document` (an encode/decode round trip beats ``copy.deepcopy``)."""
    copied: JsonObject = orjson.loads(orjson.dumps(document))
    return copied


def get_object(document: Mapping[str, Any] | None, *path: str) -> JsonObject:
    """The object at `path`, or a new empty one where something on the way is absent or no object."""
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping):
            return {}
        value = value.get(key)
    return value if isinstance(value, dict) else {}


def get_list(document: Mapping[str, Any] | None, *path: str) -> list[Any]:
    """The list at `path`, or a new empty one."""
    value = get_object(document, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else []


def get_str(document: Mapping[str, Any] | None, *path: str, default: str = "") -> str:
    """The string at `path`, or `default`."""
    value = get_object(document, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else default


def get_int(document: Mapping[str, Any] | None, *path: str, default: int = 0) -> int:
    """The integer at `path`, or `default` (booleans do not count as integers)."""
    value = get_object(document, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def get_bool(document: Mapping[str, Any] | None, *path: str, default: bool = False) -> bool:
    """The boolean at `path`, or `default`."""
    value = get_object(document, *path[:-1]).get(path[-1])
    return value if isinstance(value, bool) else default
