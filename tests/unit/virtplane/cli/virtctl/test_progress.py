"""How far a transfer is, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from virtplane.cli.virtctl.progress import Progress, amount

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_tenth_is_a_line_where_no_terminal_is() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(100 * MIB, output, clock)
    for _ in range(100):
        clock.now += 1
        progress.add(MIB)
    progress.finish()
    lines = output.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == " 10% 10.0 MiB / 100.0 MiB, 1.0 MiB/s, 1m30s left"
    assert lines[-1] == "100% 100.0 MiB / 100.0 MiB, 1.0 MiB/s, 0s left"


def test_a_terminal_shows_a_bar_that_is_drawn_now_and_then() -> None:
    output, clock = Terminal(), Clock()
    progress = Progress(4 * MIB, output, clock)
    for _ in range(2000):
        clock.now += 0.001
        progress.add(1024)
    progress.finish()
    drawn = output.getvalue().split("\r")[1:]
    assert 8 <= len(drawn) <= 12
    bar = "[" + "=" * 14 + " " * 16 + "]"
    assert drawn[-1] == f"{bar}  48% 2.0 MiB / 4.0 MiB, 1000.0 KiB/s, 2s left\033[K\n"


def test_a_transfer_that_begins_again_begins_at_nothing() -> None:
    output = io.StringIO()
    progress = Progress(10, output, lambda: 0.0)
    progress.add(10)
    progress.restart()
    assert not progress.is_complete
    progress.add(10)
    assert progress.is_complete
    assert output.getvalue() == "100% 10 B / 10 B\n" * 2


def test_nothing_to_send_is_complete() -> None:
    output = Terminal()
    progress = Progress(0, output, lambda: 0.0)
    progress.finish()
    assert progress.is_complete
    assert "100% 0 B / 0 B" in output.getvalue()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_amounts_are_in_the_largest_fitting_unit(size: int, text: str) -> None:
    assert amount(size) == text
