"""Regular expressions in the dialect of schemas (RE2), matched in linear time by the Rust engine.

Python's own ``re`` would let an author of a schema stall the server with one value.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import jsonschema_rs

_POSIX_CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "0-9A-Za-z",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t\n\v\f\r ",
    "blank": r"\t ",
    "punct": r"!-/:-@\[-`{-~",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
    "cntrl": r"\x00-\x1f\x7f",
    "print": " -~",
    "graph": "!-~",
    "ascii": r"\x00-\x7f",
}
_POSIX = re.compile(r"\[:(\w+):\]")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)


class PatternError(ValueError):
    """The text is no regular expression; the message is worded as Go's regexp package words it."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A predicate: whether `pattern` matches anywhere in a text. Raises PatternError."""
    translated = _QUOTED.sub(lambda found: re.escape(found[1]), pattern)
    translated = _POSIX.sub(lambda found: _POSIX_CLASSES.get(found[1], found[0]), translated)
    try:
        validator = jsonschema_rs.validator_for(
            {"pattern": translated}, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (jsonschema_rs.ValidationError, ValueError):
        raise PatternError(_complaint(pattern)) from None
    matches: Callable[[str], bool] = validator.is_valid
    return matches


def _complaint(pattern: str) -> str:
    """What is wrong with a pattern that does not compile."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"error parsing regexp: {_go_words(error, pattern)}"
    if found := re.search(r"\(\?(?:[=!]|<[=!])", pattern):
        return f"error parsing regexp: invalid or unsupported Perl syntax: `{found[0]}`"
    if found := re.search(r"\{(\d+),(\d+)\}", pattern):
        return f"error parsing regexp: invalid repeat count: `{found[0]}`"
    return f"error parsing regexp: invalid escape sequence: `{pattern}`"


def _go_words(error: re.error, pattern: str) -> str:
    at = error.pos or 0
    end = pattern.find("}", at) + 1
    words = {
        "missing ), unterminated subpattern": f"missing closing ): `{pattern}`",
        "unbalanced parenthesis": f"unexpected ): `{pattern}`",
        "unterminated character set": f"missing closing ]: `{pattern[at:]}`",
        "nothing to repeat": f"missing argument to repetition operator: `{pattern[at : at + 1]}`",
        "multiple repeat": f"invalid nested repetition operator: `{pattern[at - 1 : at + 1]}`",
        "min repeat greater": f"invalid repeat count: `{pattern[pattern.rfind('{', 0, end) : end]}`",
        "bad character range": f"invalid character class range: `{error.msg.rsplit(' ', 1)[-1]}`",
        "bad escape (end": "trailing backslash at end of expression: ``",
        "bad escape": f"invalid escape sequence: `{pattern[at : at + 2]}`",
        "unknown extension": f"invalid or unsupported Perl syntax: `{pattern[at - 1 : at + 2]}`",
    }
    for fragment, text in words.items():
        if fragment in error.msg:
            return text
    return f"invalid regular expression: `{pattern}`"
