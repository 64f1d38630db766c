"""The raw JSON of API objects, and typed ways to read it.

Objects are written as raw documents: unknown fields survive because nothing decodes an object into classes
and writes it back. Kinds that have a struct are read as one (`kubecore.objects.structs`); documents of other
kinds are read by the getters below, which never raise for absent fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

JsonObject: TypeAlias = dict[str, Any]
"""A mutable JSON object; values are JSON values."""

MAX_DEPTH: Final = 250
"""Objects and lists inside of each other that a document may have: the encoder's limit is just above it."""
TOO_DEEP: Final = "exceeded max depth"


class TooDeep(ValueError):
    """A document is nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


def encode(value: Any) -> bytes:
    """The JSON text of a value. Raises TooDeep."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "ecursion" in str(error):
            raise TooDeep from error
        raise


def decode(text: bytes) -> Any:
    """The value of JSON text. Raises orjson.JSONDecodeError, TooDeep."""
    value = orjson.loads(text)
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH:
        encode(value)  # raises TooDeep: the fastest exact check of the depth
    return value


def deep_copy(document: JsonObject) -> JsonObject:
    """A copy that shares nothing with `document` (an encode/decode round trip beats ``copy.deepcopy``).

    Raises TooDeep.
    """
    copied: JsonObject = orjson.loads(encode(document))
    return copied


def has_more_values(value: Any, most: int) -> bool:
    """Whether there are more than `most` values in `value`, however deep; it is read no further than that."""
    waiting, count = [value], 0
    while waiting:
        found = waiting.pop()
        inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        count += len(inner)
        if count > most:
            return True
        waiting += inner
    return False


def get_object(document: Mapping[str, Any] | None, *path: str) -> JsonObject:
    """The object at `path`; a new empty one if a part of the path is missing or not an object."""
    value = _value(document, path)
    return value if isinstance(value, dict) else {}


def get_list(document: Mapping[str, Any] | None, *path: str) -> list[Any]:
    """The list at `path`, or a new empty one."""
    value = _value(document, path)
    return value if isinstance(value, list) else []


def get_str(document: Mapping[str, Any] | None, *path: str, default: str = "") -> str:
    """The string at `path`, or `default`."""
    value = _value(document, path)
    return value if isinstance(value, str) else default


def get_int(document: Mapping[str, Any] | None, *path: str, default: int = 0) -> int:
    """The integer at `path`, or `default` (booleans do not count as integers)."""
    value = _value(document, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def get_bool(document: Mapping[str, Any] | None, *path: str, default: bool = False) -> bool:
    """The boolean at `path`, or `default`."""
    value = _value(document, path)
    return value if isinstance(value, bool) else default


def _value(document: Any, path: Sequence[str]) -> Any:
    """The value at `path`, or None."""
    value = document
    for key in path:
        # This is the hottest path: checking for an exact type is much faster than for an abstract one.
        if type(value) is not dict and not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
