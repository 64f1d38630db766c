"""Regular expressions from outside: RE2's dialect, Go's complaints, linear time."""

from __future__ import annotations

import time

import pytest

from kubecore.schema.regexes import Pattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(abc", "missing closing ): `(abc`"),
        ("abc)", "unexpected ): `abc)`"),
        ("[abc", "missing closing ]: `[abc`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        (r"\y", r"invalid escape sequence: `\y`"),
        (r"a\C", r"invalid escape sequence: `\C`"),
        ("(?=x)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
    ],
)
def test_what_is_no_pattern_is_refused_in_known_words(pattern: str, complaint: str) -> None:
    with pytest.raises(PatternError) as caught:
        Pattern(pattern)
    assert str(caught.value) == f"error parsing regexp: {complaint}"


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*)*b", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_patterns_that_explode_elsewhere_take_linear_time(pattern: str) -> None:
    begun = time.process_time()
    Pattern(pattern).matches("a" * 200_000 + "!")
    assert time.process_time() - begun < 2


def test_matches_are_found_one_after_another() -> None:
    digits = Pattern("[0-9]+")
    assert digits.find("a 12 b 345") == "12"
    assert digits.find("none") == ""
    assert digits.find_all("1 22 333") == ["1", "22", "333"]
    assert digits.find_all("1 22 333", 2) == ["1", "22"]
    assert digits.find_all("1 22 333", 0) == []


def test_a_text_may_hold_anything() -> None:
    assert Pattern("^[^é]+$").matches("a\x00b")
    assert Pattern("é.ö").find("xéüöx") == "éüö"
