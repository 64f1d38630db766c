"""Options of the simulation: one seed to replay, or how many to try."""

from __future__ import annotations

import os

import pytest

DEFAULT_SEEDS = 180
"""As many as it took for the last of the faults that decision 017 lists to be found, and some."""
CHUNK = 15
"""Seeds of one test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--seed N`` replays one seed (``pytest tests/simulation --seed N``)."""
    parser.addoption("--seed", type=int, default=None, help="run this seed of the simulation alone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The seeds of each test: VIRTPLANE_SIMULATION_SEEDS of them (default 180), or that of --seed."""
    if "seeds" not in metafunc.fixturenames:
        return
    # Known only where this folder was named on the command line.
    chosen: int | None = metafunc.config.getoption("--seed", None)
    count = int(os.environ.get("VIRTPLANE_SIMULATION_SEEDS", DEFAULT_SEEDS))
    starts = range(0, count, CHUNK)
    chunks = [range(start, min(start + CHUNK, count)) for start in starts]
    if chosen is not None:
        chunks = [range(chosen, chosen + 1)]
    metafunc.parametrize("seeds", chunks, ids=lambda each: f"{each.start}-{each.stop - 1}")
