"""Lengths of time as Go writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from virtplane.api.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400), ("-1.5h", -5400), ("300ms", 0.3), ("0", 0), ("+2m", 120)]
)
def test_lengths_are_sums_of_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'invalid duration ""'),
        ("h", 'invalid duration "h"'),
        ("5", 'missing unit in duration "5"'),
        ("1H", 'unknown unit "H" in duration "1H"'),
        ("9999999h", 'invalid duration "9999999h"'),
    ],
)
def test_what_is_no_length_is_told_in_go_s_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^time: {problem}$"):
        parse_duration(text)
