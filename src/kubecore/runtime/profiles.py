"""Profiles as ``pprof`` reads them: gzipped messages of its ``profile.proto``. Pure."""

from __future__ import annotations

import gzip
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kubecore.protobuf import BYTES, VARINT, varint

_Item = TypeVar("_Item", bound=Hashable)


class Frame(NamedTuple):
    """A line of a function that was being executed."""

    file: str
    function: str
    first_line: int
    line: int


Stack: TypeAlias = tuple[Frame, ...]
"""The innermost frame first."""


def cpu_profile(spent: Mapping[Stack, tuple[int, int]], *, begun: int, duration: int, period: int) -> bytes:
    """The profile of `spent`: by stack, how often it was seen and its nanoseconds of processor time.

    `begun` is the Unix time in nanoseconds, `period` the nanoseconds between samples.
    """
    texts = _Numbers[str]({"": 0})
    functions, frames = _Numbers[tuple[str, str, int]]({}, first=1), _Numbers[Frame]({}, first=1)
    samples = [
        _message(
            *((1, frames.of(frame)) for frame in stack),
            *((2, value) for value in (count, nanoseconds)),
        )
        for stack, (count, nanoseconds) in spent.items()
    ]
    locations = []
    for frame, number in frames.items():
        line = _message((1, functions.of((frame.file, frame.function, frame.first_line))), (2, frame.line))
        locations.append(_message((1, number), (4, line)))
    described = [
        _message((1, number), (2, texts.of(name)), (3, texts.of(name)), (4, texts.of(file)), (5, line))
        for (file, name, line), number in functions.items()
    ]
    kinds = [
        _message((1, texts.of(kind)), (2, texts.of(unit)))
        for kind, unit in (("samples", "count"), ("cpu", "nanoseconds"))
    ]
    return gzip.compress(
        _message(
            *((1, each) for each in kinds),
            *((2, each) for each in samples),
            *((4, each) for each in locations),
            *((5, each) for each in described),
            *((6, text.encode(errors="replace")) for text, _ in texts.items()),
            (9, begun),
            (10, duration),
            (11, kinds[1]),
            (12, period),
        )
    )


class _Numbers(Generic[_Item]):
    """Numbers for items in the order in which they were seen."""

    def __init__(self, known: dict[_Item, int], first: int = 0) -> None:
        self._known = known
        self._first = first

    def of(self, item: _Item) -> int:
        return self._known.setdefault(item, len(self._known) + self._first)

    def items(self) -> Iterable[tuple[_Item, int]]:
        return list(self._known.items())


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3 | VARINT) + varint(value)
        else:
            out += varint(number << 3 | BYTES) + varint(len(value)) + value
    return bytes(out)
