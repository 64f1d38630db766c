"""Times are read and written as the API has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kubecore.objects import times

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def test_times_are_written_in_utc() -> None:
    elsewhere = _MOMENT.astimezone(timezone(timedelta(hours=2)))
    assert times.format_time(elsewhere) == "2026-01-02T03:04:05Z"
    assert times.format_micro_time(elsewhere) == "2026-01-02T03:04:05.000678Z"


def test_times_are_read_with_any_offset_and_precision() -> None:
    assert times.parse_time("2026-01-02T03:04:05.000678Z") == _MOMENT
    assert times.parse_time("2026-01-02T05:04:05.000678999+02:00") == _MOMENT


@pytest.mark.parametrize("text", ["", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        times.parse_time(text)


def test_seconds_between_two_times() -> None:
    assert times.seconds_between("2026-01-02T03:04:05Z", "2026-01-02T03:05:05.5Z") == 60.5


def test_the_present_is_a_time() -> None:
    assert abs(times.parse_time(times.now_rfc3339()) - times.now()) < timedelta(seconds=5)
    assert times.now_micro().endswith("Z")


def test_years_have_four_digits() -> None:
    moment = datetime(83, 4, 4, 4, 40, 10, 7, tzinfo=UTC)
    assert times.format_time(moment) == "0083-04-04T04:40:10Z"
    assert times.format_micro_time(moment) == "0083-04-04T04:40:10.000007Z"


def test_moments_before_the_first_year_are_no_times() -> None:
    with pytest.raises(ValueError, match="outside of the years"):
        times.parse_time("0001-01-01T00:00:00+01:00")
