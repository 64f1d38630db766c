"""Where a piece of a disk has data: what is left out reads as zeros."""

from __future__ import annotations

import pytest

from virtplane.storage.cdi.importer.target import data_runs

KIB = 1 << 10


@pytest.mark.parametrize(
    ("piece", "runs"),
    [
        (b"", []),
        (bytes(100 * KIB), []),
        (b"x", [(0, 1)]),
        (bytes(64 * KIB) + b"\0x", [(64 * KIB, 64 * KIB + 2)]),
        (b"x" + bytes(64 * KIB), [(0, 32 * KIB)]),
        (bytes(32 * KIB - 1) + b"xy" + bytes(200 * KIB), [(0, 64 * KIB)]),
        (b"x" * (32 * KIB) + bytes(32 * KIB) + b"y", [(0, 32 * KIB), (64 * KIB, 64 * KIB + 1)]),
        (bytes(40 * KIB - 1) + b"x", [(32 * KIB, 40 * KIB)]),
    ],
)
def test_runs_of_data_are_found_and_zeros_left_out(piece: bytes, runs: list[tuple[int, int]]) -> None:
    assert list(data_runs(piece)) == runs
