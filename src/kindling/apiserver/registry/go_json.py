"""Why JSON text is not well-formed, in the words clients of Kubernetes know (Go's decoder's)."""

from __future__ import annotations

from typing import Any

import orjson

_ESCAPES = frozenset(b'"\\/bfnrt')
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGITS = frozenset(b"0123456789")
_SPACE = frozenset(b" \t\r\n")
_END = "unexpected end of JSON input"
_MAX_DEPTH = 10_000


def syntax_error(data: bytes) -> str:
    """The complaint about `data`, or an empty string when it is well-formed."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return _Scanner(data).complaint()
    return ""


class _Complaint(Exception):
    """Carries the text out of the scanner."""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def complaint(self) -> str:
        try:
            self._space()
            self._value(0)
            self._space()
            if self.at < len(self.data):
                self._refuse("after top-level value")
        except _Complaint as complaint:
            return str(complaint)
        return ""

    def _refuse(self, context: str) -> None:
        if self.at >= len(self.data):
            raise _Complaint(_END)
        raise _Complaint(f"invalid character {_quote(self.data[self.at])} {context}")

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise _Complaint(_END)
        return self.data[self.at]

    def _space(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1

    def _value(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Complaint("exceeded max depth")
        char = self._peek()
        if char == 0x7B:
            self._object(depth)
        elif char == 0x5B:
            self._array(depth)
        elif char == 0x22:
            self._string()
        elif char == 0x2D or char in _DIGITS:
            self._number()
        elif char in b"tfn":
            self._literal({0x74: b"true", 0x66: b"false", 0x6E: b"null"}[char])
        else:
            self._refuse("looking for beginning of value")

    def _object(self, depth: int) -> None:
        self.at += 1
        self._space()
        if self._peek() == 0x7D:
            self.at += 1
            return
        while True:
            if self._peek() != 0x22:
                self._refuse("looking for beginning of object key string")
            self._string()
            self._space()
            if self._peek() != 0x3A:
                self._refuse("after object key")
            self.at += 1
            self._space()
            self._value(depth + 1)
            self._space()
            char = self._peek()
            if char == 0x7D:
                self.at += 1
                return
            if char != 0x2C:
                self._refuse("after object key:value pair")
            self.at += 1
            self._space()

    def _array(self, depth: int) -> None:
        self.at += 1
        self._space()
        if self._peek() == 0x5D:
            self.at += 1
            return
        while True:
            self._value(depth + 1)
            self._space()
            char = self._peek()
            if char == 0x5D:
                self.at += 1
                return
            if char != 0x2C:
                self._refuse("after array element")
            self.at += 1
            self._space()

    def _string(self) -> None:
        self.at += 1
        while True:
            char = self._peek()
            if char == 0x22:
                self.at += 1
                return
            if char < 0x20:
                self._refuse("in string literal")
            self.at += 1
            if char == 0x5C:
                self._escape()

    def _escape(self) -> None:
        char = self._peek()
        if char == 0x75:
            self.at += 1
            for _ in range(4):
                if self._peek() not in _HEX:
                    self._refuse("in \\u hexadecimal character escape")
                self.at += 1
        elif char in _ESCAPES:
            self.at += 1
        else:
            self._refuse("in string escape code")

    def _number(self) -> None:
        if self.data[self.at] == 0x2D:
            self.at += 1
            if self._peek() not in _DIGITS:
                self._refuse("in numeric literal")
        if self.data[self.at] == 0x30:
            self.at += 1
        else:
            self._digits()
        if self.at < len(self.data) and self.data[self.at] == 0x2E:
            self.at += 1
            if self._peek() not in _DIGITS:
                self._refuse("after decimal point in numeric literal")
            self._digits()
        if self.at < len(self.data) and self.data[self.at] in b"eE":
            self.at += 1
            if self._peek() in b"+-":
                self.at += 1
            if self._peek() not in _DIGITS:
                self._refuse("in exponent of numeric literal")
            self._digits()

    def _digits(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _DIGITS:
            self.at += 1

    def _literal(self, word: bytes) -> None:
        self.at += 1
        for expected in word[1:]:
            if self._peek() != expected:
                self._refuse(f"in literal {word.decode()} (expecting {_quote(expected)})")
            self.at += 1


def _quote(char: int) -> str:
    """A byte as Go shows it in these messages."""
    if char == 0x27:
        return r"'\''"
    if char == 0x22:
        return "'\"'"
    if 0x20 <= char < 0x7F:
        return f"'{chr(char)}'" if char != 0x5C else r"'\\'"
    named = {0x07: r"\a", 0x08: r"\b", 0x09: r"\t", 0x0A: r"\n", 0x0B: r"\v", 0x0C: r"\f", 0x0D: r"\r"}
    if char in named:
        return f"'{named[char]}'"
    return f"'\\x{char:02x}'"


def json_type(value: Any) -> str:
    """A value's type as Go's decoder names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
