"""The store: revisions, conflicts, history, compaction, durability and corruption."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kindling.apiserver.storage.journal import Row, StorageError
from kindling.apiserver.storage.memory import MemoryJournal
from kindling.apiserver.storage.sqlite import SqliteJournal
from kindling.apiserver.storage.store import Compacted, Conflict, Store, Window


def value(text: str) -> Callable[[int], bytes]:
    """An encoder of a small object."""
    return lambda revision: b'{"metadata":{"resourceVersion":"%d"},"data":"%b"}' % (revision, text.encode())


@pytest.fixture
def memory() -> Store:
    return Store(MemoryJournal())


async def test_every_write_gets_the_next_revision_and_is_visible_when_it_returns(memory: Store) -> None:
    memory.open()
    first = await memory.put("b", "ns/a", value("1"), None)
    second = await memory.put("b", "ns/b", value("1"), None)
    assert second.revision == first.revision + 1
    assert memory.get("b", "ns/a") is first
    assert [item.path for item in memory.list("b", "ns/").items] == ["ns/a", "ns/b"]


async def test_a_write_on_an_old_state_conflicts_and_shows_the_newest(memory: Store) -> None:
    memory.open()
    first = await memory.put("b", "a", value("1"), None)
    second = await memory.put("b", "a", value("2"), first)
    with pytest.raises(Conflict) as caught:
        await memory.put("b", "a", value("3"), first)
    assert caught.value.current is second


async def test_writers_build_on_writes_that_are_not_durable_yet(memory: Store) -> None:
    memory.open()
    pending = asyncio.ensure_future(memory.put("b", "a", value("1"), None))
    await asyncio.sleep(0)
    newest = memory.newest("b", "a")
    assert newest is not None
    assert memory.get("b", "a") is None  # readers see durable state only
    await memory.put("b", "a", value("2"), newest)
    assert (await pending).revision < memory.revision


async def test_lists_at_an_older_revision_undo_what_came_later(memory: Store) -> None:
    memory.open()
    first = await memory.put("b", "a", value("1"), None)
    then = (await memory.put("b", "b", value("1"), None)).revision
    changed = await memory.put("b", "a", value("2"), first)
    await memory.put("b", "c", value("1"), None)
    await memory.delete("b", "a", value("gone"), changed)
    page = memory.list("b", revision=then)
    assert [item.path for item in page.items] == ["a", "b"]
    assert page.items[0] is first


async def test_history_is_bounded_and_says_so(memory: Store) -> None:
    store = Store(MemoryJournal(), Window(events=10))
    store.open()
    item = None
    for number in range(30):
        item = await store.put("b", "a", value(str(number)), item)
    with pytest.raises(Compacted):
        store.history("b", 2)
    assert [event.item.revision for event in store.history("b", store.revision - 3)] == [
        store.revision - 2,
        store.revision - 1,
        store.revision,
    ]


async def test_everything_acknowledged_is_there_after_a_restart_with_its_history(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(SqliteJournal(path))
    store.open()
    await asyncio.gather(*(store.put("b", f"ns/{number}", value("1"), None) for number in range(50)))
    first = store.get("b", "ns/7")
    assert first is not None
    await store.put("b", "ns/7", value("2"), first)
    gone = store.get("b", "ns/8")
    assert gone is not None
    await store.delete("b", "ns/8", value("last"), gone)
    revision = store.revision
    await store.close()

    again = Store(SqliteJournal(path))
    again.open()
    assert again.revision == revision
    assert again.count("b") == 49
    kept = again.get("b", "ns/7")
    assert kept is not None
    assert b'"2"' in kept.value
    assert [event.type for event in again.history("b", revision - 2)] == ["MODIFIED", "DELETED"]
    later = await again.put("b", "ns/new", value("1"), None)
    assert later.revision == revision + 1
    await again.close()


async def test_superseded_revisions_leave_the_file_when_they_leave_the_window(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(SqliteJournal(path), Window(events=20))
    store.open()
    item = None
    for number in range(200):
        item = await store.put("b", "a", value(str(number)), item)
    await store.close()
    with sqlite3.connect(path) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM log").fetchone()
    connection.close()
    assert rows <= 25
    again = Store(SqliteJournal(path))
    again.open()
    with pytest.raises(Compacted):
        again.history("b", 5)
    await again.close()


async def test_a_failed_batch_fails_its_writers_and_leaves_the_store_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(tmp_path / "db")
    store = Store(journal)
    store.open()
    append = journal._append
    broken = True

    def failing(rows: list[Row]) -> None:
        if broken:
            raise sqlite3.OperationalError("disk full")
        append(rows)

    monkeypatch.setattr(journal, "_append", failing)
    with pytest.raises(StorageError, match="disk full"):
        await store.put("b", "a", value("1"), None)
    assert store.newest("b", "a") is None
    assert store.problem
    broken = False
    assert (await store.put("b", "a", value("1"), None)).path == "a"
    assert not store.problem
    await store.close()


async def test_subscribers_hear_of_changes_in_order_until_they_leave(memory: Store) -> None:
    memory.open()
    heard: list[tuple[str, str]] = []
    leave = memory.subscribe("b", lambda event: heard.append((event.type, event.item.path)))
    item = await memory.put("b", "a", value("1"), None)
    item = await memory.put("b", "a", value("2"), item)
    await memory.delete("b", "a", value("3"), item)
    leave()
    await memory.put("b", "a", value("1"), None)
    assert heard == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
