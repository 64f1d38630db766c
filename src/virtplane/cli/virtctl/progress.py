"""How far a transfer is: a bar on a terminal, a line for each tenth elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_BAR_WIDTH = 30
_REDRAW_SECONDS = 0.2
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Progress:
    """Shows on `output` how many of `total` bytes were sent; `clock` gives seconds."""

    def __init__(self, total: int, output: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._output, self._clock = total, output, clock
        self._terminal = output.isatty()
        self.restart()

    def restart(self) -> None:
        """Nothing is sent yet, or all of it is sent again."""
        self._sent, self._told = 0, 0
        self._begin = self._clock()
        self._drawn = self._begin - _REDRAW_SECONDS

    @property
    def is_complete(self) -> bool:
        """Whether everything was sent."""
        return self._sent >= self._total

    def add(self, count: int) -> None:
        """`count` more bytes were sent."""
        self._sent += count
        now = self._clock()
        if self._terminal:
            if now - self._drawn >= _REDRAW_SECONDS:
                self._drawn = now
                self._draw(now)
            return
        tenth = self._sent * 10 // self._total if self._total else 10
        if tenth > self._told:
            self._told = tenth
            self._output.write(f"{self._figures(now)}\n")
            self._output.flush()

    def finish(self) -> None:
        """End the bar's line, with the last state."""
        if self._terminal:
            self._draw(self._clock())
            self._output.write("\n")
        self._output.flush()

    def _draw(self, now: float) -> None:
        share = self._sent / self._total if self._total else 1.0
        full = min(int(share * _BAR_WIDTH), _BAR_WIDTH)
        bar = "=" * full + " " * (_BAR_WIDTH - full)
        # The end of a longer line before it is erased.
        self._output.write(f"\r[{bar}] {self._figures(now)}\033[K")
        self._output.flush()

    def _figures(self, now: float) -> str:
        percent = 100 * self._sent // self._total if self._total else 100
        seconds = now - self._begin
        speed = self._sent / seconds if seconds > 0 else 0.0
        text = f"{percent:3}% {amount(self._sent)} / {amount(self._total)}"
        if speed <= 0:
            return text
        left = int((self._total - self._sent) / speed)
        return f"{text}, {amount(speed)}/s, {_duration(left)} left"


def amount(size: float) -> str:
    """Bytes in the largest unit in which they are one or more."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"
