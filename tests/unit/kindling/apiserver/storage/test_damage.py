"""Files that are not what was written: each is refused with the way back, and none is changed by it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kindling.apiserver.storage import files, layout
from kindling.apiserver.storage.journal import StorageError
from kindling.apiserver.storage.sqlite import SqliteJournal
from kindling.apiserver.storage.store import Store

OBJECTS = 40


def value(text: str) -> Callable[[int], bytes]:
    """An encoder of an object of 1 KB."""
    return lambda revision: b'{"revision":"%d","data":"%b"}' % (revision, text.encode() * 100)


async def fill(store: Store) -> None:
    """Objects, some of them changed, one deleted."""
    for number in range(OBJECTS):
        item = await store.put("group/kinds", f"ns/{number:03}", value(f"{number:010}"), None)
        if number % 3 == 0:
            await store.put("group/kinds", f"ns/{number:03}", value(f"{number:05}again"), item)
    last = store.get("group/kinds", "ns/001")
    assert last is not None
    await store.delete("group/kinds", "ns/001", value("gone"), last)


def state(store: Store) -> dict[str, bytes]:
    """Everything current."""
    return {item.path: item.value for item in store.list("group/kinds").items}


@pytest.fixture
async def stopped(tmp_path: Path) -> Path:
    """A database whose server ended in order."""
    path = tmp_path / "stopped" / "db"
    store = Store(SqliteJournal(path))
    store.open()
    await fill(store)
    await store.close()
    return path


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """A database as ``kill -9`` leaves it: everything lies in the write-ahead log."""
    store = Store(SqliteJournal(tmp_path / "running" / "db"))
    store.open()
    await fill(store)
    (tmp_path / "killed").mkdir()
    for suffix in ("", "-wal", "-guard"):
        shutil.copy(tmp_path / "running" / f"db{suffix}", tmp_path / "killed" / f"db{suffix}")
    await store.close()
    return tmp_path / "killed" / "db"


def refuses(path: Path, match: str) -> None:
    """The server does not start with these files, and leaves what they hold as it is."""
    names = [files.beside(path, suffix) for suffix in ("", "-wal")]
    before = [name.read_bytes() if name.exists() else b"" for name in names]
    with pytest.raises(StorageError, match=match) as caught:
        SqliteJournal(path).open()
    assert f"kindling restore FILE --state {path.parent}" in str(caught.value)
    assert [name.read_bytes() if name.exists() else b"" for name in names] == before


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    """Change one byte."""
    with path.open("r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ bits]))


async def test_a_killed_servers_database_holds_everything(killed: Path) -> None:
    assert killed.stat().st_size < 40_000 < files.beside(killed, "-wal").stat().st_size
    store = Store(SqliteJournal(killed))
    store.open()
    assert len(state(store)) == OBJECTS - 1
    await store.close()


@pytest.mark.parametrize("size", [1, 512, 4096, 16384, 40_000])
async def test_a_truncated_file_is_refused(stopped: Path, size: int) -> None:
    assert stopped.stat().st_size > size
    os.truncate(stopped, size)
    refuses(stopped, "is corrupt")


async def test_an_empty_file_is_not_taken_for_a_new_one(stopped: Path) -> None:
    os.truncate(stopped, 0)
    refuses(stopped, "is corrupt .it is empty")
    files.beside(stopped, "-guard").unlink()
    refuses(stopped, "is corrupt .it is empty")


async def test_a_missing_file_is_not_taken_for_a_first_start(stopped: Path, killed: Path) -> None:
    stopped.unlink()
    refuses(stopped, "it is missing")
    killed.unlink()
    files.beside(killed, "-guard").unlink()
    refuses(killed, "it is missing")


async def test_moving_everything_away_as_the_message_says_starts_empty(stopped: Path) -> None:
    for path in stopped.parent.glob("db*"):
        path.rename(stopped.parent / f"away-{path.name}")
    store = Store(SqliteJournal(stopped))
    store.open()
    assert store.list("group/kinds").items == ()
    await store.close()


async def test_no_flipped_bit_of_the_database_changes_what_is_read(stopped: Path) -> None:
    store = Store(SqliteJournal(stopped))
    store.open()
    good = state(store), store.revision
    await store.close()
    intact = stopped.read_bytes()
    chance = random.Random(5)
    # Every byte of the headers of the file and of two tables, and some of everything else.
    offsets = [*range(100), *range(100, 140), *range(8192, 8220)]
    offsets += [chance.randrange(len(intact)) for _ in range(250)]
    refused = 0
    for offset in offsets:
        stopped.write_bytes(intact)
        flip(stopped, offset, 1 << chance.randrange(8))
        damaged = stopped.read_bytes()
        journal = SqliteJournal(stopped)
        try:
            loaded = journal.open()
        except StorageError as error:
            assert "kindling restore" in str(error), offset
            assert stopped.read_bytes() == damaged, offset
            refused += 1
            continue
        current = {row.path: row.value for row in loaded.rows if not row.deleted}
        for row in loaded.rows:
            if row.deleted:
                current.pop(row.path, None)
        assert (current, max(row.revision for row in loaded.rows)) == good, offset
        await journal.close()
    assert refused > 200  # the others change unused space, or hints that are not believed


@pytest.mark.parametrize(
    ("column", "damage"),
    [
        ("value", "X'00'"),
        ("value", "'text'"),
        ("deleted", "1 - deleted"),
        ("create_revision", "create_revision + 1"),
        ("prev_revision", "prev_revision + 1"),
        ("name", "name || 'x'"),
        ("name", "CAST(X'FF' AS TEXT)"),
        ("id", "id + 100000"),
    ],
)
async def test_no_column_can_change_unnoticed(stopped: Path, column: str, damage: str) -> None:
    with sqlite3.connect(stopped) as connection:
        connection.execute(f"UPDATE log SET {column} = {damage} WHERE id = 20")
    connection.close()
    refuses(stopped, "is corrupt")


@pytest.mark.parametrize("name", ["compacted", "format"])
async def test_the_description_cannot_change_unnoticed(stopped: Path, name: str) -> None:
    with sqlite3.connect(stopped) as connection:
        connection.execute("UPDATE meta SET value = value - 1 WHERE name = ?", (name,))
    connection.close()
    refuses(stopped, "is corrupt")


@pytest.mark.parametrize("where", ["header", "first", "middle", "last"])
async def test_a_damaged_write_ahead_log_is_refused(killed: Path, where: str) -> None:
    wal = files.beside(killed, "-wal")
    size = wal.stat().st_size
    flip(wal, {"header": 9, "first": 500, "middle": size // 2, "last": size - 100}[where])
    refuses(killed, "is (corrupt|incomplete)")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.98])
async def test_a_shortened_write_ahead_log_is_refused(killed: Path, share: float) -> None:
    wal = files.beside(killed, "-wal")
    os.truncate(wal, int(wal.stat().st_size * share))
    refuses(killed, "is incomplete: it ends at revision")


async def test_a_removed_write_ahead_log_is_refused_until_the_loss_is_accepted(killed: Path) -> None:
    files.beside(killed, "-wal").unlink()
    refuses(killed, "is incomplete: it ends at revision 0")
    files.beside(killed, "-guard").unlink()  # what the message offers
    store = Store(SqliteJournal(killed))
    store.open()
    await store.close()


async def test_an_older_copy_in_the_place_of_the_database_is_refused(stopped: Path, tmp_path: Path) -> None:
    shutil.copy(stopped, tmp_path / "older")
    store = Store(SqliteJournal(stopped))
    store.open()
    await store.put("group/kinds", "ns/new", value("new"), None)
    await store.close()
    shutil.copy(tmp_path / "older", stopped)
    refuses(stopped, "is incomplete")


@pytest.mark.parametrize("kind", ["text", "foreign database"])
async def test_a_foreign_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "db"
    if kind == "text":
        path.write_bytes(b"this is not a database at all" * 200)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE things (id INTEGER)")
        connection.close()
    refuses(path, "is corrupt .*(not a database|not of an API server)")


async def test_a_newer_format_is_refused_with_what_to_do(stopped: Path) -> None:
    with sqlite3.connect(stopped) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (layout.FORMAT + 1,))
    connection.close()
    refuses(stopped, f"has format {layout.FORMAT + 1}, which a newer program wrote")


async def test_the_first_format_is_brought_to_the_current_one(stopped: Path) -> None:
    def value_checksum(value: bytes) -> int:
        return zlib.crc32(value)

    with sqlite3.connect(stopped) as connection:
        connection.create_function("value_checksum", 1, value_checksum)
        connection.execute("UPDATE log SET checksum = value_checksum(value)")
        connection.execute("DELETE FROM meta WHERE name = 'checksum'")
        connection.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    connection.close()
    for _ in range(2):
        store = Store(SqliteJournal(stopped))
        store.open()
        assert len(state(store)) == OBJECTS - 1
        await store.close()
    with layout.read_only(stopped) as connection:
        assert layout.check(stopped, connection).format == layout.FORMAT
    connection.close()


async def test_a_second_server_does_not_get_the_database(tmp_path: Path) -> None:
    first = Store(SqliteJournal(tmp_path / "db"))
    first.open()
    with pytest.raises(StorageError, match="in use by another API server"):
        SqliteJournal(tmp_path / "db").open()
    assert (await first.put("b", "a", value("1"), None)).path == "a"
    await first.close()


async def test_nobody_else_may_read_what_is_stored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(SqliteJournal(tmp_path / "state" / "db"))
        store.open()
        await store.put("b", "a", value("1"), None)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
        assert modes == dict.fromkeys(("db", "db-wal", "db-shm", "db-guard"), 0o600)
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        await store.close()
        (tmp_path / "state" / "db").chmod(0o644)
        store = Store(SqliteJournal(tmp_path / "state" / "db"))
        store.open()
        assert (tmp_path / "state" / "db").stat().st_mode & 0o777 == 0o600
        await store.close()
    finally:
        os.umask(before)


def _open_as_nobody(path: Path, answers: multiprocessing.Queue[str]) -> None:
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        SqliteJournal(path).open()
    except StorageError as error:
        answers.put(str(error))
    else:
        answers.put("it was opened")


@pytest.mark.parametrize("exists", [True, False])
async def test_a_directory_that_cannot_be_written_is_no_corruption(tmp_path: Path, exists: bool) -> None:
    directory = Path("/tmp") / f"kindling-test-{os.getpid()}"  # tmp_path is closed to other users
    directory.mkdir()
    try:
        if exists:
            store = Store(SqliteJournal(directory / "db"))
            store.open()
            await fill(store)
            await store.close()
            for path in directory.iterdir():
                path.chmod(0o444)
        directory.chmod(0o555)
        context = multiprocessing.get_context("fork")
        answers: multiprocessing.Queue[str] = context.Queue()
        process = context.Process(target=_open_as_nobody, args=(directory / "db", answers))
        process.start()
        answer = await asyncio.to_thread(answers.get, timeout=10)
        process.join()
        assert "cannot be used" in answer
        assert "Permission denied" in answer
        assert "corrupt" not in answer
    finally:
        directory.chmod(0o700)
        shutil.rmtree(directory)
