"""Lengths of time as Go writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubecore.objects.durations import seconds_of, text_of


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


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(microseconds=7), "7\u00b5s"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(seconds=1.25), "1.25s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=1), "1h0m0s"),
        (timedelta(days=2, seconds=0.5), "48h0m0.5s"),
        (timedelta(minutes=-2), "-2m0s"),
    ],
)
def test_a_length_is_written_as_go_writes_it(length: timedelta, text: str) -> None:
    assert text_of(length) == text
    assert seconds_of(text) == pytest.approx(length.total_seconds())
