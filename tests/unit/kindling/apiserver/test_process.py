"""The API server's process: how it ends."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from kindling.apiserver import main
from kindling.apiserver.app import ApiServer
from kindling.apiserver.settings import Settings
from kindling.apiserver.storage.journal import StorageError


async def test_the_process_ends_when_the_disk_failed_so_that_a_new_one_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[ApiServer] = []
    started = asyncio.Event()

    class Observed(ApiServer):
        async def start(self) -> None:
            await super().start()
            servers.append(self)
            started.set()

    monkeypatch.setattr(main, "ApiServer", Observed)
    running = asyncio.create_task(main.run(Settings(storage=tmp_path / "state" / "db", port=0)))
    await asyncio.wait_for(started.wait(), 20)
    store = servers[0].store
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    def failing(_: object) -> None:
        raise error

    monkeypatch.setattr(store._journal, "_append", failing)
    with pytest.raises(StorageError, match="did not reach the disk: disk I/O error"):
        await store.put("b", "a", lambda _: b"{}", None)
    with pytest.raises(StorageError, match="the disk failed: disk I/O error"):
        await asyncio.wait_for(running, 20)


def test_a_refusal_of_storage_is_the_last_word_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "db").write_bytes(b"")
    assert main.main([f"--storage={tmp_path / 'db'}", "--port=0"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert '"msg":"Storage cannot be used"' in last
    assert "is corrupt (it is empty)" in last
