"""Regular expressions of schemas and CEL rules, matched by RE2 in linear time. Python's ``re`` must never
run a pattern from a user: its backtracking would let a short pattern stall the server.
"""

from __future__ import annotations

from typing import Final

import re2

_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "pattern too large - compile failed": "expression too large",
}
"""RE2's complaints as Go's package, which has the same author, words them; the others are equal."""

_ANY_BYTE: Final = "\\C"


class PatternError(ValueError):
    """The text is not a regular expression; the message is that of Go's regexp package."""


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        """Compile `text`. Raises PatternError."""
        if _ANY_BYTE in text.replace("\\\\", ""):
            raise PatternError(f"error parsing regexp: invalid escape sequence: `{_ANY_BYTE}`")
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options=options)
        except re2.error as error:
            raise PatternError(f"error parsing regexp: {_go_words(error, text)}") from None

    def matches(self, text: str) -> bool:
        """Whether it matches anywhere in `text`."""
        return self._compiled.search(text) is not None

    def find(self, text: str) -> str:
        """The first match, or an empty text."""
        found = self._compiled.search(text)
        return found[0] if found is not None else ""

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """The matches one after another, at most `limit` of them unless that is negative."""
        found: list[str] = []
        for each in self._compiled.finditer(text):
            if 0 <= limit <= len(found):
                break
            found.append(each[0])
        return found


def _go_words(error: re2.error, pattern: str) -> str:
    raw = error.args[0]
    message = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    kind, _, where = message.partition(": ")
    if kind == "trailing \\":
        where = ""
    elif kind in ("missing )", "unexpected )"):
        where = pattern
    return f"{_WORDS.get(kind, kind)}: `{where}`"
