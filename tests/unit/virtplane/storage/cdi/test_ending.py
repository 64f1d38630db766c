"""Workers end when they are told to."""

from __future__ import annotations

import asyncio
import os
import signal
from types import ModuleType
from typing import Any

import pytest

from virtplane.storage.cdi import ending
from virtplane.storage.cdi.cloner import main as cloner
from virtplane.storage.cdi.uploadserver import main as uploadserver


async def _told_to_end(undone: list[str]) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.Event().wait()
    finally:
        undone.append("undone")
    return "complete"


def test_work_is_undone_before_the_end() -> None:
    undone: list[str] = []
    with pytest.raises(ending.Ended):
        ending.run(_told_to_end(undone))
    assert undone == ["undone"]


@pytest.mark.parametrize(
    ("program", "reads", "works"),
    [
        (uploadserver, "read_upload_settings", "serve"),
        (cloner, "read_clone_settings", "_run"),
    ],
)
def test_a_worker_that_is_told_to_end_has_not_succeeded(
    program: ModuleType, reads: str, works: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[str] = []

    def work(_settings: Any) -> Any:
        return _told_to_end(undone)

    monkeypatch.setenv("CLIENT_KEY", "")
    monkeypatch.setattr(program, reads, lambda _environment: None)
    monkeypatch.setattr(program, works, work)
    assert program.main() == 143
    assert undone == ["undone"]


@pytest.mark.parametrize(("program", "missing"), [(uploadserver, "TLS_CERT_FILE"), (cloner, "MOUNT_POINT")])
def test_a_worker_says_what_its_environment_lacks(
    program: ModuleType, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert program.main() == 1
    assert f"the environment variable '{missing}' is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "reads", "works"),
    [
        (uploadserver, "read_upload_settings", "serve"),
        (cloner, "read_clone_settings", "_run"),
    ],
)
def test_an_error_of_a_workers_own_is_not_taken_for_its_environments(
    program: ModuleType, reads: str, works: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_settings: Any) -> str:
        raise KeyError("a name that the code misspells")

    monkeypatch.setenv("CLIENT_KEY", "")
    monkeypatch.setattr(program, reads, lambda _environment: None)
    monkeypatch.setattr(program, works, fail)
    with pytest.raises(KeyError):
        program.main()
