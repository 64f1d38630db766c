"""Errors of malformed JSON, in the words of Go's decoder."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

from kubecore.json import MAX_DEPTH, TOO_DEEP, TooDeep, decode

_ESCAPES = frozenset(b'"\\/bfnrt')
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGITS = frozenset(b"0123456789")
_SPACE = re.compile(rb"[ \t\r\n]*")
_CHARACTERS = re.compile(rb'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,256}')
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_DIGITS = 20
"""Of an integer that 64 bits hold, with its sign."""
_DIGIT_RUN = re.compile(rb"[0-9]*")
_LITERALS = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
_OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b"{}[]"
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS = b'"\\,:-'
_END = "unexpected end of JSON input"


def syntax_error(data: bytes) -> str:
    """The complaint about `data`, or an empty string when it is well-formed."""
    try:
        decode(data)
    except (orjson.JSONDecodeError, TooDeep):
        return _Scanner(data).complaint()
    return ""


def read_leniently(data: bytes) -> Any:
    """The value of text that is well-formed for Go but not for orjson: halves of surrogate pairs become
    U+FFFD, and so do bytes that are no UTF-8. Raises ValueError for numbers that are too big.
    """
    found = json.loads(data.decode(errors="replace"), parse_int=_integer, parse_float=_finite)
    return json.loads(_SURROGATE.sub("\ufffd", json.dumps(found, ensure_ascii=False)))


def _integer(text: str) -> int | float:
    """Like orjson: what 64 bits do not hold is a float."""
    value = int(text) if len(text) <= _MOST_DIGITS else _finite(text)
    return value if -(1 << 63) <= value < 1 << 64 else float(value)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("number is infinity")
    return value


class _Complaint(Exception):
    """Carries the text out of the scanner."""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def complaint(self) -> str:
        try:
            self._document()
        except _Complaint as complaint:
            return str(complaint)
        return ""

    def _refuse(self, context: str) -> NoReturn:
        if self.at >= len(self.data):
            raise _Complaint(_END)
        raise _Complaint(f"invalid character {_quote(self.data[self.at])} {context}")

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise _Complaint(_END)
        return self.data[self.at]

    def _skip(self, what: re.Pattern[bytes]) -> None:
        found = what.match(self.data, self.at)
        self.at = found.end() if found else self.at

    def _document(self) -> None:
        """The whole text. What is open lies in a list and not on the stack: anything may be nested here."""
        open_ends: list[int] = []
        while True:
            self._skip(_SPACE)
            if self._begins(open_ends):
                continue
            while open_ends:
                if self._goes_on(open_ends[-1]):
                    break
                open_ends.pop()
            if not open_ends:
                self._skip(_SPACE)
                if self.at < len(self.data):
                    self._refuse("after top-level value")
                return

    def _begins(self, open_ends: list[int]) -> bool:
        """Read a scalar or an empty collection, or (True) open a collection up to its first value."""
        char = self._peek()
        if char not in (_OBJECT, _ARRAY):
            self._scalar(char)
            return False
        if len(open_ends) >= MAX_DEPTH:
            self._refuse(TOO_DEEP)
        self.at += 1
        self._skip(_SPACE)
        end = _OBJECT_END if char == _OBJECT else _ARRAY_END
        if self._peek() == end:
            self.at += 1
            return False
        open_ends.append(end)
        if char == _OBJECT:
            self._key()
        return True

    def _goes_on(self, end: int) -> bool:
        """After a value: up to the next one of the collection, or (False) past the collection's end."""
        self._skip(_SPACE)
        char = self._peek()
        if char == end:
            self.at += 1
            return False
        if char != _COMMA:
            self._refuse("after object key:value pair" if end == _OBJECT_END else "after array element")
        self.at += 1
        if end == _OBJECT_END:
            self._skip(_SPACE)
            self._key()
        return True

    def _key(self) -> None:
        if self._peek() != _QUOTE:
            self._refuse("looking for beginning of object key string")
        self._string()
        self._skip(_SPACE)
        if self._peek() != _COLON:
            self._refuse("after object key")
        self.at += 1

    def _scalar(self, char: int) -> None:
        if char == _QUOTE:
            self._string()
        elif char == _MINUS or char in _DIGITS:
            self._number()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        else:
            self._refuse("looking for beginning of value")

    def _string(self) -> None:
        self.at += 1
        while True:
            self._skip(_CHARACTERS)
            char = self._peek()
            if char == _QUOTE:
                self.at += 1
                return
            if char < 0x20:
                self._refuse("in string literal")
            if char == _BACKSLASH:
                self.at += 1
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
            self._skip(_DIGIT_RUN)
        if self.at < len(self.data) and self.data[self.at] == 0x2E:
            self.at += 1
            if self._peek() not in _DIGITS:
                self._refuse("after decimal point in numeric literal")
            self._skip(_DIGIT_RUN)
        if self.at < len(self.data) and self.data[self.at] in b"eE":
            self.at += 1
            if self._peek() in b"+-":
                self.at += 1
            if self._peek() not in _DIGITS:
                self._refuse("in exponent of numeric literal")
            self._skip(_DIGIT_RUN)

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
