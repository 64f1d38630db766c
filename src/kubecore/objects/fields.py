"""Field paths and field errors: what validation reports, in the words of the Kubernetes API.

A validation function returns a list of `FieldError`; `kubecore.errors.invalid` turns the list into the
``Invalid`` status. Values are shown as Go prints them: JSON for objects and lists, quoted strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubecore.json import JsonObject

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
NOT_FOUND: Final = "FieldValueNotFound"
INTERNAL: Final = "InternalError"

_WORDS: Final = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
    NOT_FOUND: "Not found",
    INTERNAL: "Internal error",
}
_WITHOUT_VALUE: Final = frozenset({REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL})


class FieldPath:
    """Where a value stands in a document: ``spec.containers[0].env[name]``. Immutable."""

    __slots__ = ("_segment", "_up")

    def __init__(self, *names: str) -> None:
        """The path of nested fields `names`; without any, the root, which prints as ``<nil>``."""
        up: FieldPath | None = None
        for name in names[:-1]:
            up = _extend(up, name)
        self._up = up
        self._segment = names[-1] if names else ""

    def child(self, *names: str) -> FieldPath:
        """The field `names` below this one."""
        path = self
        for name in names:
            path = _extend(path, name)
        return path

    def index(self, position: int) -> FieldPath:
        """Element `position` of this list."""
        return _extend(self, f"[{position}]")

    def key(self, key: str) -> FieldPath:
        """The entry `key` of this map."""
        return _extend(self, f"[{key}]")

    def __str__(self) -> str:
        segments: list[str] = []
        path: FieldPath | None = self
        while path is not None:
            if path._segment:
                segments.append(path._segment)
            path = path._up
        if not segments:
            return "<nil>"
        segments.reverse()
        text = segments[0]
        for segment in segments[1:]:
            text += segment if segment[0] == "[" else f".{segment}"
        return text

    def __repr__(self) -> str:
        return f"FieldPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _extend(up: FieldPath | None, segment: str) -> FieldPath:
    path = FieldPath.__new__(FieldPath)
    path._up = up
    path._segment = segment
    return path


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. `type` is the reason that the API reports for it (``FieldValue…``)."""

    type: str
    field: str
    bad_value: Any
    detail: str

    def body(self) -> str:
        """The message without the field: ``Invalid value: "x": must be ...``."""
        words = _WORDS.get(self.type, self.type)
        silent = self.type in _WITHOUT_VALUE or self.bad_value == OMITTED
        text = words if silent else f"{words}: {format_value(self.bad_value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def message(self) -> str:
        """The whole message: ``spec.x: Invalid value: "x": must be ...``."""
        return f"{self.field}: {self.body()}"

    def cause(self) -> JsonObject:
        """The entry for ``details.causes`` of a status."""
        return {"reason": self.type, "message": self.body(), "field": self.field}


def format_value(value: Any) -> str:
    """An invalid value as it is quoted in API messages."""
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_float(value)
    return html_safe_json(value)


def html_safe_json(value: Any) -> str:
    """JSON as Go writes it: characters with a meaning in HTML are escaped."""
    text = orjson.dumps(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A bad value whose printed form is not JSON (the server's internal form of an object)."""

    text: str


OMITTED: Final = Verbatim("")
"""A bad value that the message leaves out: ``Invalid value: must be ...``."""


def format_float(value: float) -> str:
    """A float as Go prints it with ``%v``: the shortest digits, an exponent below 1e-4 and from 1e21."""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    return f"{mantissa.removesuffix('.0')}e{'-' if exponent[0] == '-' else '+'}{abs(int(exponent)):02d}"


def go_quote(text: str) -> str:
    """A string in double quotes with Go's escapes (``%q``)."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    named |= {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    parts = []
    for char in text:
        if char in named:
            parts.append(named[char])
        elif char.isprintable():
            parts.append(char)
        elif ord(char) < 0x80:
            parts.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            parts.append(f"\\u{ord(char):04x}")
        else:
            parts.append(f"\\U{ord(char):08x}")
    return '"' + "".join(parts) + '"'


def required(path: FieldPath | str, detail: str = "") -> FieldError:
    """A value that must be given is missing."""
    return FieldError(REQUIRED, str(path), "", detail)


def invalid(path: FieldPath | str, value: Any, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError(INVALID, str(path), value, detail)


def not_supported(path: FieldPath | str, value: Any, valid: Iterable[str]) -> FieldError:
    """A value is not among the `valid` ones, which are listed in the given order."""
    names = ", ".join(go_quote(name) for name in valid)
    return FieldError(NOT_SUPPORTED, str(path), value, f"supported values: {names}" if names else "")


def duplicate(path: FieldPath | str, value: Any, detail: str = "") -> FieldError:
    """A value occurs twice where it must be unique."""
    return FieldError(DUPLICATE, str(path), value, detail)


def forbidden(path: FieldPath | str, detail: str) -> FieldError:
    """A field that must not be set."""
    return FieldError(FORBIDDEN, str(path), "", detail)


def too_long(path: FieldPath | str, max_bytes: int) -> FieldError:
    """A string is longer than `max_bytes` bytes (negative: the limit is not named)."""
    detail = f"may not be more than {max_bytes} bytes" if max_bytes >= 0 else "value is too long"
    return FieldError(TOO_LONG, str(path), "", detail)


def too_many(path: FieldPath | str, actual: int | None, maximum: int) -> FieldError:
    """A list or map has `actual` entries, more than `maximum` (negative: the limit is not named)."""
    noun = "item" if maximum == 1 else "items"
    detail = f"must have at most {maximum} {noun}" if maximum >= 0 else "has too many items"
    shown: Any = actual if actual is not None else Verbatim("actual value omitted")
    return FieldError(TOO_MANY, str(path), shown, detail)


def type_invalid(path: FieldPath | str, value: Any, detail: str) -> FieldError:
    """A value is of the wrong type; `value` is the name of the type it has."""
    return FieldError(TYPE_INVALID, str(path), value, detail)


def not_found(path: FieldPath | str, value: Any) -> FieldError:
    """A value names something that does not exist."""
    return FieldError(NOT_FOUND, str(path), value, "")


def not_found_because(path: FieldPath | str, value: Any, detail: str) -> FieldError:
    """A value names something that does not exist; `detail` says what does."""
    return FieldError(NOT_FOUND, str(path), value, detail)


def internal(path: FieldPath | str, detail: str) -> FieldError:
    """The check itself failed."""
    return FieldError(INTERNAL, str(path), "", detail)
