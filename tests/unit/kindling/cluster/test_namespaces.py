"""Making namespaces where the kernel numbers them from a stock of each processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kindling.cluster import machine, namespaces
from kindling.cluster.errors import SetupError


def _fails_except_on(allowed: str, calls: list[list[str]]) -> Callable[..., str]:
    def run(command: Sequence[str], *, what: str, **_options: Any) -> str:
        calls.append(list(command))
        if list(command[:3]) != ["taskset", "--cpu-list", allowed]:
            raise SetupError(what, "mount failed: Invalid argument")
        return ""

    return run


def test_a_command_that_one_processor_refuses_runs_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(machine, "run", _fails_except_on("1", calls))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    namespaces._run_on_some_processor(["unshare", "true"], "namespaces of a")
    assert [call[2] for call in calls[1:]] == ["0", "1"]


def test_the_last_refusal_is_told_when_no_processor_takes_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "run", _fails_except_on("9", []))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    with pytest.raises(SetupError, match="Invalid argument"):
        namespaces._run_on_some_processor(["unshare", "true"], "namespaces of a")
