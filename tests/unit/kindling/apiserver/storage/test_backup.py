"""Backups of the store: taken while it is written to, checked before use, and restored without going back."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.starvation import starvation_measured

from kindling.apiserver.storage import backup, files
from kindling.apiserver.storage.backup import Attachment
from kindling.apiserver.storage.journal import StorageError
from kindling.apiserver.storage.sqlite import SqliteJournal
from kindling.apiserver.storage.store import Compacted, Store

KEYS = {"pki/ca.key": Attachment(b"secret", 0o600), "token": Attachment(b"\x00\xff", 0o600)}


def value(text: str) -> Callable[[int], bytes]:
    """An encoder of a small object."""
    return lambda revision: b'{"revision":"%d","data":"%b"}' % (revision, text.encode())


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    """An open store with a few objects and some history."""
    store = Store(SqliteJournal(tmp_path / "state" / "db"))
    store.open()
    for number in range(10):
        item = await store.put("b", f"ns/{number}", value("old"), None)
        if number % 2:
            await store.put("b", f"ns/{number}", value("new"), item)
    gone = store.get("b", "ns/0")
    assert gone is not None
    await store.delete("b", "ns/0", value("gone"), gone)
    return store


def placed(_: str) -> None:
    """For restores without other files."""


async def test_a_backup_taken_during_writes_is_one_consistent_state(store: Store, tmp_path: Path) -> None:
    begun, done = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        # Both objects change in turn, so that a state which mixes two moments shows.
        first = await store.put("b", "x", value("0"), None)
        second = await store.put("b", "y", value("0"), None)
        number = 0
        while not done.is_set():
            number += 1
            first = await store.put("b", "x", value(str(number)), first)
            second = await store.put("b", "y", value(str(number)), second)
            begun.set()

    writer = asyncio.create_task(write())
    await begun.wait()
    database, taken = tmp_path / "state" / "db", []
    for number in range(5):
        least = store.revision
        target = tmp_path / f"backup{number}"
        taken.append(await asyncio.to_thread(backup.take, database, target, {}))
        assert least <= taken[-1].revision <= store.revision
    done.set()
    await writer
    await store.close()
    for number in range(5):
        backup.restore(tmp_path / f"backup{number}", tmp_path / "again" / f"db{number}", placed)
        again = Store(SqliteJournal(tmp_path / "again" / f"db{number}"))
        again.open()
        x, y = again.get("b", "x"), again.get("b", "y")
        assert x is not None
        assert y is not None
        assert int(x.document()["data"]) - int(y.document()["data"]) in (0, 1)
        await again.close()


async def test_a_backup_is_one_private_file_and_never_replaces_one(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "out" / "backup"
    target.parent.mkdir()
    taken = await asyncio.to_thread(backup.take, tmp_path / "state" / "db", target, KEYS)
    assert (taken.objects, taken.revision, dict(taken.attachments)) == (9, store.revision, KEYS)
    assert [path.name for path in target.parent.iterdir()] == ["backup"]
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    with pytest.raises(StorageError, match="exists already"):
        backup.take(tmp_path / "state" / "db", target, KEYS)
    assert target.read_bytes() == before
    with pytest.raises(StorageError, match="No such file or directory"):
        backup.take(tmp_path / "state" / "db", tmp_path / "nowhere" / "backup", KEYS)
    with pytest.raises(StorageError, match="there is no database"):
        backup.take(tmp_path / "nothing", tmp_path / "other", KEYS)
    await store.close()


async def test_damaged_storage_yields_no_backup(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "copy" / "db"
    path.parent.mkdir()
    for suffix in ("", "-wal", "-guard"):
        shutil.copy(tmp_path / "state" / f"db{suffix}", files.beside(path, suffix))
    await store.close()
    content = files.beside(path, "-wal").read_bytes()
    files.beside(path, "-wal").write_bytes(content[:-5000])
    with pytest.raises(StorageError, match="is incomplete"):
        backup.take(path, tmp_path / "backup", KEYS)
    assert list(tmp_path.glob("*backup*")) == []


async def test_after_a_restore_revisions_go_on_and_all_history_is_gone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "state" / "db"
    await asyncio.to_thread(backup.take, path, tmp_path / "backup", KEYS)
    watched = store.revision
    for number in range(20):  # what clients have seen, and will not find again
        await store.put("b", f"later/{number}", value("later"), None)
    last = store.revision
    await store.close()
    restored = backup.restore(tmp_path / "backup", path, placed)
    assert restored.revision > last
    again = Store(SqliteJournal(path))
    again.open()
    assert again.revision == restored.revision
    assert [item.path for item in again.list("b").items] == [f"ns/{number}" for number in range(1, 10)]
    for seen in (1, watched, last, restored.revision - 1):
        with pytest.raises(Compacted):
            again.history("b", seen)
        with pytest.raises(Compacted):
            again.list("b", revision=seen)
    assert list(again.history("b", restored.revision)) == []
    assert (await again.put("b", "new", value("1"), None)).revision == restored.revision + 1
    await again.close()


async def test_restoring_the_same_backup_again_does_not_go_back_either(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "state" / "db"
    await asyncio.to_thread(backup.take, path, tmp_path / "backup", KEYS)
    await store.close()
    last = 0
    for _ in range(3):
        assert backup.restore(tmp_path / "backup", path, placed).revision > last
        again = Store(SqliteJournal(path))
        again.open()
        for number in range(30):
            await again.put("b", f"more/{number}", value("x"), None)
        last = again.revision
        await again.close()


def test_revisions_go_on_after_all_that_is_known_and_after_the_clock() -> None:
    assert backup.next_revision(500, 700, 0.5) == 701
    assert backup.next_revision(900, 700, 0.5) == 901
    assert backup.next_revision(5, 7, 1_000.0) == 1_000_001


async def test_the_replaced_database_stays_with_its_log(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "killed" / "db"
    path.parent.mkdir()
    await asyncio.to_thread(backup.take, tmp_path / "state" / "db", tmp_path / "backup", KEYS)
    for suffix in ("", "-wal", "-guard"):  # as kill -9 leaves it
        shutil.copy(tmp_path / "state" / f"db{suffix}", files.beside(path, suffix))
    revision = store.revision
    await store.close()
    stamps: list[str] = []
    restored = backup.restore(tmp_path / "backup", path, stamps.append)
    assert restored.aside == path.with_name(f"db.replaced-{stamps[0]}")
    aside = Store(SqliteJournal(restored.aside))
    aside.open()
    assert aside.revision == revision
    assert aside.count("b") == 9
    await aside.close()
    assert restored.aside is not None
    kept = restored.aside.read_bytes()
    again = backup.restore(tmp_path / "backup", path, stamps.append)
    assert again.aside != restored.aside
    assert restored.aside.read_bytes() == kept


async def test_a_restore_is_refused_while_the_server_runs(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "state" / "db"
    await asyncio.to_thread(backup.take, path, tmp_path / "backup", KEYS)
    with pytest.raises(StorageError, match="in use"):
        backup.restore(tmp_path / "backup", path, placed)
    assert (await store.put("b", "still", value("1"), None)).path == "still"
    await store.close()


@pytest.mark.parametrize("damage", ["text", "shortened", "flipped", "attachment", "database"])
async def test_a_restore_checks_the_backup_before_it_changes_anything(
    store: Store, tmp_path: Path, damage: str
) -> None:
    path, source = tmp_path / "state" / "db", tmp_path / "backup"
    await asyncio.to_thread(backup.take, path, source, KEYS)
    await store.close()
    content = source.read_bytes()
    if damage == "text":
        source.write_text("no backup at all" * 100)
    elif damage == "shortened":
        source.write_bytes(content[:-1])
    elif damage == "flipped":
        source.write_bytes(content.replace(b'"data":"new"', b'"data":"mew"', 1))
    elif damage == "attachment":
        source.write_bytes(content.replace(b"secret", b"Secret"))
    else:
        source.write_bytes(path.read_bytes())
    before = {entry: entry.read_bytes() for entry in path.parent.iterdir()}
    with pytest.raises(StorageError, match=r"backup"):
        backup.restore(source, path, placed)
    assert {entry: entry.read_bytes() for entry in path.parent.iterdir()} == before
    with pytest.raises(StorageError, match="there is no backup"):
        backup.restore(tmp_path / "nothing", path, placed)


async def test_an_interrupted_restore_keeps_the_server_from_starting_until_it_is_repeated(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "db"
    await asyncio.to_thread(backup.take, path, tmp_path / "backup", KEYS)
    await store.close()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.restore(tmp_path / "backup", path, interrupted)
    with pytest.raises(StorageError, match=r"was interrupted\. Repeat it: kindling restore FILE"):
        SqliteJournal(path).open()
    with pytest.raises(StorageError, match="was interrupted"):
        backup.take(path, tmp_path / "second", KEYS)
    backup.restore(tmp_path / "backup", path, placed)
    again = Store(SqliteJournal(path))
    again.open()
    assert again.count("b") == 9
    await again.close()


async def test_a_backup_of_many_objects_does_not_hold_up_writes(tmp_path: Path) -> None:
    store = Store(SqliteJournal(tmp_path / "db"))
    store.open()
    big = value("x" * 20_000)
    await asyncio.gather(*(store.put("b", str(number), big, None) for number in range(1500)))
    copying = asyncio.create_task(asyncio.to_thread(backup.take, tmp_path / "db", tmp_path / "backup", {}))
    slowest, writes = 0.0, 0
    with starvation_measured() as starvation:
        while not copying.done():
            begun = time.monotonic()
            await store.put("b", f"meanwhile/{writes}", value("1"), None)
            slowest, writes = max(slowest, time.monotonic() - begun), writes + 1
    assert (await copying).objects >= 1500
    assert writes > 5
    assert slowest < 1.0 * starvation.factor
    await store.close()
