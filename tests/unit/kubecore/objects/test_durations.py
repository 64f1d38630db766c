"""Lengths of time as Go writes them."""

from __future__ import annotations

import pytest

from kubecore.objects.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("32s", 32), ("1m30s", 90), ("1.5h", 5400), ("-2s", -2), ("+.5s", 0.5), ("250ms", 0.25)],
)
def test_durations_are_sums_of_parts_with_units(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", 'invalid duration "soon"'),
        ("", 'invalid duration ""'),
        ("9999999h", 'invalid duration "9999999h"'),
        ("-", 'invalid duration "-"'),
        (".s", 'invalid duration ".s"'),
        ("5", 'missing unit in duration "5"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("1m5", 'missing unit in duration "1m5"'),
    ],
)
def test_what_is_no_duration_is_explained(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^time: {problem}$"):
        seconds_of(text)
