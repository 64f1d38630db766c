"""In which order modules of tests are run, and which go to one worker together."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
_LONG = {"e2e", "security", "simulation", "clients"}
"""Folders whose modules may take minutes."""
_PROGRAMS = "tests/e2e/programs"


def sort(items: list[pytest.Item]) -> None:
    """Long modules first; the many short ones then fill what is left, and no worker ends long before another.

    Those that share a worker's cluster are the last of the long ones: it is not there, and does not take
    processor time at rest, while others have clusters of their own.
    """
    sharing = {item.path for item in items if _shares_cluster(item)}
    items.sort(key=lambda item: (is_short(item), item.path in sharing))


def _shares_cluster(item: pytest.Item) -> bool:
    """Whether a test uses the cluster of `tests.support.clusters`, not another fixture of that name."""
    found = item._fixtureinfo.name2fixturedefs.get("cluster") if isinstance(item, pytest.Function) else None
    return found is not None and found[-1].func.__module__ == "tests.support.clusters"


def is_short(item: pytest.Item) -> bool:
    """Whether a test is of a folder whose modules take seconds, and which no cluster is brought up for."""
    return item.path.relative_to(_TESTS).parts[0] not in _LONG


def piece_of_work(nodeid: str) -> str:
    """What one worker runs: a module, or all those of real programs, which share a cluster and addresses."""
    module = nodeid.partition("::")[0]
    return _PROGRAMS if module.startswith(_PROGRAMS) else module
