"""In which order modules of tests are run, and which go to one worker together."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
_LONG = {"e2e", "security", "simulation", "clients"}
"""Folders whose modules may take minutes."""
_PROGRAMS = "tests/e2e/programs"


def is_short(item: pytest.Item) -> bool:
    """Whether a test is of a folder whose modules take seconds, and which no cluster is brought up for."""
    return item.path.relative_to(_TESTS).parts[0] not in _LONG


def piece_of_work(nodeid: str) -> str:
    """What one worker runs: a module, or all those of real programs, which share a cluster and addresses."""
    module = nodeid.partition("::")[0]
    return _PROGRAMS if module.startswith(_PROGRAMS) else module
