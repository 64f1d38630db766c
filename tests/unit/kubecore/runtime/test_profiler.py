"""What is profiled, read as pprof reads it."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kubecore.protobuf import Value, fields_of, read_varint
from kubecore.runtime.profiler import Profiler
from kubecore.runtime.profiles import Frame, cpu_profile


@dataclass
class _Read:
    """A profile: nanoseconds and counts by the functions of each stack, innermost first."""

    stacks: list[tuple[list[str], int, int]] = field(default_factory=list)
    kinds: list[tuple[str, str]] = field(default_factory=list)
    duration: int = 0


def _fields(message: Value, number: int) -> list[Value]:
    assert isinstance(message, bytes)
    return [value for key, value in fields_of(message) if key == number]


def _number(message: Value, number: int) -> int:
    found = _fields(message, number)
    assert all(isinstance(value, int) for value in found)
    return int(found[0]) if found else 0


def _read(data: bytes) -> _Read:
    profile = gzip.decompress(data)
    texts = [bytes(each).decode() for each in _fields(profile, 6)]
    functions = {_number(each, 1): texts[_number(each, 2)] for each in _fields(profile, 5)}
    places = {_number(each, 1): functions[_number(_fields(each, 4)[0], 1)] for each in _fields(profile, 4)}
    found = _Read(duration=_number(profile, 10))
    found.kinds = [(texts[_number(each, 1)], texts[_number(each, 2)]) for each in _fields(profile, 1)]
    for sample in _fields(profile, 2):
        count, nanoseconds = (int(each) for each in _fields(sample, 2))
        names = [places[int(each)] for each in _fields(sample, 1)]
        found.stacks.append((names, count, nanoseconds))
    assert texts[0] == ""
    return found


def test_stacks_share_their_frames_and_functions_in_a_profile() -> None:
    inner, outer = Frame("a.py", "inner", 1, 3), Frame("a.py", "outer", 10, 12)
    spent = {(inner, outer): (2, 300), (outer,): (1, 1 << 40)}
    data = cpu_profile(spent, begun=1, duration=7, period=10_000_000)
    found = _read(data)
    assert found.stacks == [(["inner", "outer"], 2, 300), (["outer"], 1, 1 << 40)]
    assert found.kinds == [("samples", "count"), ("cpu", "nanoseconds")]
    assert found.duration == 7
    assert len(_fields(gzip.decompress(data), 5)) == len(_fields(gzip.decompress(data), 4)) == 2


@pytest.fixture
def profiler() -> Iterator[Profiler]:
    made = Profiler()
    yield made
    made.stop()


def _busy(seconds: float) -> None:
    """Spend processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


async def test_a_thread_that_works_is_charged_and_one_that_waits_is_not(profiler: Profiler) -> None:
    end = threading.Event()
    waits = threading.Thread(target=end.wait, name="waits")
    waits.start()
    try:
        profiler.start()
        assert profiler.is_running and not profiler.has_ended
        await asyncio.to_thread(_busy, 0.3)
        profiler.stop()
    finally:
        end.set()
        waits.join()
    found = _read(profiler.profile())
    charged = sum(nanoseconds for names, _, nanoseconds in found.stacks if "_busy" in names)
    assert 100_000_000 < charged < 400_000_000
    assert charged > 0.7 * sum(nanoseconds for _, _, nanoseconds in found.stacks)
    assert found.duration >= 100_000_000


async def test_a_new_start_forgets_what_was_sampled(profiler: Profiler) -> None:
    profiler.start()
    await asyncio.to_thread(_busy, 0.1)
    profiler.stop()
    assert _read(profiler.profile()).stacks
    profiler.start()
    profiler.stop()
    assert not _read(profiler.profile()).stacks


async def test_tasks_and_threads_are_told_where_they_stand(profiler: Profiler) -> None:
    async def stands_here() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(stands_here(), name="patient")
    await asyncio.sleep(0)
    text = profiler.standing().decode()
    task.cancel()
    assert "task patient:\n" in text and "in stands_here" in text
    assert "thread MainThread:\n" in text


def test_varints_of_a_profile_are_read_back() -> None:
    data = gzip.decompress(cpu_profile({}, begun=1 << 60, duration=0, period=1))
    assert _number(data, 9) == 1 << 60
    assert read_varint(data, 0)[0] == 1 << 3 | 2
