"""Cron schedules, checked with the messages of Kubernetes, and the times that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count

from cronsim import CronSim, CronSimError

from kubecore.objects import durations

_MONTHS = {
    name: at
    for at, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: at for at, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[int, int, Mapping[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EVERY = "@every "


class ScheduleError(ValueError):
    """The schedule is invalid; the text says why."""


def check_schedule(schedule: str) -> None:
    """Raise ScheduleError unless `schedule` is a five-field cron expression or a descriptor."""
    if schedule.startswith("@"):
        _check_descriptor(schedule)
        return
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(
            f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]"
        )
    for text, (lowest, highest, words) in zip(fields, _FIELDS, strict=True):
        for part in text.split(","):
            _check_range(part, lowest, highest, words)


def times_after(schedule: str, since: datetime) -> Iterator[datetime]:
    """The times of `schedule` after `since`, in its time zone. Raises ScheduleError.

    A question mark means the same as an asterisk.
    """
    text = schedule.replace("?", "*")
    if text.startswith(_EVERY):
        return _repeated(text.removeprefix(_EVERY), since)
    try:
        return CronSim(_DESCRIPTORS.get(text, text), since)
    except CronSimError as error:
        raise ScheduleError(str(error)) from error


def _repeated(duration: str, since: datetime) -> Iterator[datetime]:
    """Every `duration` (like ``1h30m``, at least a second) from the second of `since` on."""
    try:
        seconds = max(1, int(durations.seconds_of(duration)))
    except ValueError as error:
        raise ScheduleError(f"failed to parse duration {_EVERY}{duration}") from error
    first = since.replace(microsecond=0)
    return (first + timedelta(seconds=seconds * times) for times in count(1))


def _check_descriptor(schedule: str) -> None:
    if schedule in _DESCRIPTORS:
        return
    if schedule.startswith(_EVERY):
        duration = schedule.removeprefix(_EVERY)
        if not _is_duration(duration):
            raise ScheduleError(f'failed to parse duration {schedule}: time: invalid duration "{duration}"')
        return
    raise ScheduleError(f"unrecognized descriptor: {schedule}")


def _is_duration(text: str) -> bool:
    rest, found = text, False
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        unit = next(
            (unit for unit in ("ns", "us", "ms", "h", "m", "s") if rest[digits:].startswith(unit)), ""
        )
        if not digits or not unit:
            return False
        rest, found = rest[digits + len(unit) :], True
    return found


def _check_range(text: str, lowest: int, highest: int, words: Mapping[str, int]) -> None:
    span, slash, step_text = text.partition("/")
    if "/" in step_text:
        raise ScheduleError(f"too many slashes: {text}")
    bounds = span.split("-")
    if len(bounds) > 2:
        raise ScheduleError(f"too many hyphens: {text}")
    if bounds[0] in ("*", "?"):
        start, end = lowest, highest
    else:
        start = _number(bounds[0], words)
        end = _number(bounds[1], words) if len(bounds) == 2 else start
    step = 1
    if slash:
        step = _number(step_text, {})
        if len(bounds) == 1 and bounds[0] not in ("*", "?"):
            end = highest
    if start < lowest:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({lowest}): {text}")
    if end > highest:
        raise ScheduleError(f"end of range ({end}) above maximum ({highest}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _number(text: str, words: Mapping[str, int]) -> int:
    known = words.get(text.lower())
    if known is not None:
        return known
    try:
        value = int(text)
    except ValueError:
        problem = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ScheduleError(f"failed to parse int from {text}: {problem}") from None
    if value < 0:
        raise ScheduleError(f"negative number ({value}) not allowed: {text}")
    return value
