"""Times as the API writes them: RFC 3339 in UTC, to the second or (``MicroTime``) the microsecond."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def now_rfc3339() -> str:
    """The present to the second: ``2026-01-02T03:04:05Z``."""
    return format_time(now())


def now_micro() -> str:
    """The present to the microsecond: ``2026-01-02T03:04:05.000006Z``."""
    return format_micro_time(now())


def format_time(moment: datetime) -> str:
    """A moment as a ``Time``; fractions of the second are cut off."""
    return _in_utc(moment, "seconds")


def format_micro_time(moment: datetime) -> str:
    """A moment as a ``MicroTime``, always with six digits."""
    return _in_utc(moment, "microseconds")


def _in_utc(moment: datetime, precision: str) -> str:
    # Not strftime, which writes years before 1000 with fewer than four digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def parse_time(text: str) -> datetime:
    """The moment of a ``Time`` or ``MicroTime`` with any offset. Raises ValueError for anything else.

    Digits beyond the microsecond are cut off.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or len(text) < 20 or text[10] not in "Tt":
        raise ValueError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f'time "{text}" lies outside of the years 1 to 9999') from error


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one time to another, both as the API writes them."""
    return (parse_time(later) - parse_time(earlier)).total_seconds()
