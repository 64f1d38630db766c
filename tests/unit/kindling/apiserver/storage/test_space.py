"""Space: what a full disk does to writes, and how small compaction keeps the files."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.apiserver import running_server, sample_definitions
from tests.support.waiting import until

from kindling.apiserver.storage import files
from kindling.apiserver.storage.compaction import Compactor
from kindling.apiserver.storage.journal import Row, StorageError
from kindling.apiserver.storage.memory import MemoryJournal
from kindling.apiserver.storage.sqlite import SqliteJournal
from kindling.apiserver.storage.store import Compacted, Event, Item, Store, Window
from kubecore import errors
from kubecore.resources import CONFIG_MAPS

BUCKET = "b"


def value(size: int = 1000) -> Callable[[int], bytes]:
    """An encoder of an object of `size` bytes that do not repeat from one to the next."""
    return lambda revision: b"%d " % revision + os.urandom(size // 2).hex().encode()


class SmallDisk(SqliteJournal):
    """A journal on a disk of `pages` pages."""

    pages = 10_000

    def resize(self, pages: int) -> None:
        """Change the room there is."""
        self.pages = pages
        self._opened().execute(f"PRAGMA max_page_count={pages}")


@pytest.fixture
async def full(tmp_path: Path) -> Store:
    """A store whose disk has just run full, and what it had acknowledged until then."""
    journal = SmallDisk(tmp_path / "db")
    store = Store(journal)
    store.open()
    journal.resize(60)
    with pytest.raises(StorageError, match=r"did not reach the disk: database or disk is full"):
        for number in range(1000):
            await store.put(BUCKET, f"{number:04}", value(), None)
    assert store.count(BUCKET) > 20
    return store


async def test_a_full_disk_refuses_writes_and_loses_nothing(full: Store, tmp_path: Path) -> None:
    before = {item.path: item.value for item in full.list(BUCKET).items}
    assert "disk is full" in full.problem
    assert not full.lost.is_set()
    for number in range(3):
        with pytest.raises(StorageError, match="disk is full"):
            await full.put(BUCKET, f"new-{number}", value(), None)
    assert {item.path: item.value for item in full.list(BUCKET).items} == before
    await full.close()
    again = Store(SqliteJournal(tmp_path / "db"))
    again.open()
    assert {item.path: item.value for item in again.list(BUCKET).items} == before
    await again.close()


async def test_writes_succeed_again_when_there_is_room(full: Store, tmp_path: Path) -> None:
    last = full.revision
    journal = full._journal
    assert isinstance(journal, SmallDisk)
    await asyncio.to_thread(journal.resize, 1000)
    done = await asyncio.gather(*(full.put(BUCKET, f"new-{number}", value(), None) for number in range(50)))
    assert min(item.revision for item in done) > last
    assert full.problem == ""
    await full.close()
    again = Store(SqliteJournal(tmp_path / "db"))
    again.open()
    assert {item.path for item in done} <= {item.path for item in again.list(BUCKET).items}
    await again.close()


async def test_over_https_a_full_disk_is_a_500_with_the_reason_and_reads_go_on(tmp_path: Path) -> None:
    path = tmp_path / "state" / "db"
    async with (
        running_server(tmp_path, sample_definitions(), storage=path) as running,
        running.client() as client,
    ):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
        journal = running.server.store._journal
        assert isinstance(journal, SqliteJournal)
        limit = "PRAGMA max_page_count"
        connection = journal._opened()
        (pages,) = await asyncio.to_thread(lambda: connection.execute("PRAGMA page_count").fetchone())
        await asyncio.to_thread(connection.execute, f"{limit}={pages}")
        big = {"metadata": {"name": "b"}, "data": {"k": "x" * 100_000}}
        with pytest.raises(errors.StatusError, match="database or disk is full") as caught:
            await client.create(CONFIG_MAPS, big, "default")
        assert (caught.value.code, caught.value.reason) == (500, "InternalError")
        assert (await client.get(CONFIG_MAPS, "a", "default"))["data"] == {"k": "v"}
        await asyncio.to_thread(connection.execute, f"{limit}={pages + 1000}")
        await client.create(CONFIG_MAPS, big, "default")


async def fills_up(path: Path, make_room: Callable[[], object]) -> None:
    """Write until the system refuses, make room, and compare with what was acknowledged."""
    store = Store(SqliteJournal(path))
    store.open()
    acknowledged: dict[str, bytes] = {}

    async def write(writer: int) -> None:
        for number in range(1000):
            item = await store.put(BUCKET, f"{writer}/{number}", value(3000), None)
            acknowledged[item.path] = item.value

    refused = await asyncio.gather(*(write(writer) for writer in range(4)), return_exceptions=True)
    assert all(isinstance(error, StorageError) for error in refused), refused
    assert len(acknowledged) > 20
    assert not store.lost.is_set()
    assert {item.path: item.value for item in store.list(BUCKET).items} == acknowledged
    make_room()
    for number in range(20):
        item = await store.put(BUCKET, f"again/{number}", value(3000), None)
        acknowledged[item.path] = item.value
    await store.close()
    again = Store(SqliteJournal(path))
    again.open()
    assert {item.path: item.value for item in again.list(BUCKET).items} == acknowledged
    await again.close()


async def test_a_limit_of_the_systems_on_files_is_survived(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        await fills_up(tmp_path / "db", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "kindling-test", str(tmp_path)]
    subprocess.run(mount, check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.host
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_full_file_system_is_survived(small_file_system: Path) -> None:
    larger = ["mount", "-o", "remount,size=10m", str(small_file_system)]
    await fills_up(small_file_system / "db", lambda: subprocess.run(larger, check=True))


async def test_removals_that_failed_for_want_of_space_are_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(tmp_path / "db")
    store = Store(journal)
    store.open()
    item = await store.put(BUCKET, "a", value(), None)
    for _ in range(30):
        item = await store.put(BUCKET, "a", value(), item)
    append, failures = journal._append, [sqlite3.OperationalError("database or disk is full")]

    def failing(rows: list[Row]) -> None:
        if failures:
            raise failures.pop()
        append(rows)

    monkeypatch.setattr(journal, "_append", failing)
    store.compact(item.revision, 1000)
    await until(lambda: not failures)
    assert rows(tmp_path / "db") == 31
    await store.put(BUCKET, "a", value(), item)
    await store.close()
    assert rows(tmp_path / "db") == 2


def rows(path: Path) -> int:
    """Rows in the file."""
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT count(*) FROM log").fetchone()
    connection.close()
    return int(found)


async def churn(store: Store, objects: int, rounds: int) -> None:
    """Change `objects` objects again and again, with a deletion now and then."""

    async def one(path: str) -> None:
        item: Item | None = store.get(BUCKET, path)
        for number in range(rounds):
            if item is not None and number % 10 == 9:
                await store.delete(BUCKET, path, value(), item)
                item = None
            else:
                item = await store.put(BUCKET, path, value(), item)

    await asyncio.gather(*(one(f"{number}") for number in range(objects)))


async def test_updates_without_end_need_no_more_space_than_a_few(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(SqliteJournal(path, checkpoint_pages=200), Window(events=200))
    store.open()
    sizes: list[tuple[int, int]] = []
    for _ in range(6):
        await churn(store, objects=50, rounds=20)
        sizes.append((path.stat().st_size, files.beside(path, "-wal").stat().st_size))
    await store.close()
    databases, logs = zip(*sizes, strict=True)
    assert rows(path) <= 50 + 200
    assert max(databases) < 2_000_000  # 6,000 values of 1 KB were written
    assert max(databases[2:]) <= databases[1] * 1.2
    assert max(logs) < 3_000_000


async def test_what_many_deleted_objects_took_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(SqliteJournal(path, checkpoint_pages=200), Window(events=100))
    store.open()
    made = await asyncio.gather(*(store.put(BUCKET, f"{number}", value(), None) for number in range(4000)))
    await asyncio.gather(*(store.delete(BUCKET, item.path, value(10), item) for item in made[100:]))
    item = made[0]
    for _ in range(400):
        item = await store.put(BUCKET, "0", value(10), item)
    await store.close()
    assert path.stat().st_size < 2_500_000  # 4 MB of values once
    again = Store(SqliteJournal(path))
    again.open()
    assert again.count(BUCKET) == 100
    await again.close()


async def test_history_is_forgotten_by_age_and_everything_current_stays(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(SqliteJournal(path))
    store.open()
    compactor = asyncio.create_task(Compactor(store, 0.2).run())
    for _ in range(2):
        await churn(store, objects=10, rounds=15)
    assert rows(path) > 100
    old = store.revision
    await until(lambda: store.compacted_revision >= old)
    with pytest.raises(Compacted):
        store.history(BUCKET, old - 1)
    assert list(store.history(BUCKET, old)) == []
    before = {item.path: item.value for item in store.list(BUCKET).items}
    compactor.cancel()
    await asyncio.gather(compactor, return_exceptions=True)
    await store.close()
    assert rows(path) == len(before)
    again = Store(SqliteJournal(path))
    again.open()
    # The newest revisions were deletions, of which no row is left: numbers are not given out again.
    assert again.revision == old
    assert {item.path: item.value for item in again.list(BUCKET).items} == before
    await again.close()


@pytest.mark.looptime
async def test_history_younger_than_the_interval_stays() -> None:
    store = Store(MemoryJournal())
    store.open()
    compactor = asyncio.create_task(Compactor(store, 300).run())
    await asyncio.sleep(310)
    first = await store.put(BUCKET, "a", value(), None)
    await store.put(BUCKET, "a", value(), first)
    await asyncio.sleep(580)  # it is 590 seconds old, and the third turn comes in ten
    assert len(list(store.history(BUCKET, first.revision))) == 1
    await asyncio.sleep(20)
    with pytest.raises(Compacted):
        store.history(BUCKET, first.revision)
    compactor.cancel()
    await asyncio.gather(compactor, return_exceptions=True)


async def test_compaction_of_much_history_goes_in_steps() -> None:
    store = Store(MemoryJournal())
    store.open()
    await churn(store, objects=10, rounds=15)
    start = store.compacted_revision
    assert store.compact(store.revision, 40) is True
    assert store.compacted_revision == start + 41  # the first revision is not an event
    assert store.compact(store.revision, 1000) is False
    assert store.compacted_revision == store.revision


async def test_old_and_future_revisions_are_refused_in_kubernetes_words(tmp_path: Path) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        first = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
        seen = first["metadata"]["resourceVersion"]
        await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, "default")
        store = running.server.store
        store.compact(store.revision, 10_000)
        current, oldest = store.revision, store.compacted_revision
        with pytest.raises(errors.StatusError) as caught:
            async for _ in client.watch(CONFIG_MAPS, "default", resource_version=seen):
                break
        assert (caught.value.code, caught.value.reason) == (410, "Expired")
        assert caught.value.message == f"too old resource version: {seen} ({oldest})"
        path = "/api/v1/namespaces/default/configmaps"
        for query, code, message in (
            (
                f"resourceVersion={seen}&resourceVersionMatch=Exact",
                410,
                "The resourceVersion for the provided list is too old.",
            ),
            (
                f"resourceVersion={current + 1000}&resourceVersionMatch=NotOlderThan",
                504,
                f"Timeout: Too large resource version: {current + 1000}, current: {current}",
            ),
        ):
            with pytest.raises(errors.StatusError) as caught:
                await client.request("GET", f"{path}?{query}")
            assert (caught.value.code, caught.value.message) == (code, message)


async def test_watches_from_a_future_revision_see_nothing_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        store, watched = running.server.store, asyncio.Event()
        future, subscribe = store.revision + 3, store.subscribe

        def subscribe_and_tell(bucket: str, callback: Callable[[Event], None]) -> Callable[[], None]:
            watched.set()
            return subscribe(bucket, callback)

        monkeypatch.setattr(store, "subscribe", subscribe_and_tell)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:

            async def first_seen() -> str:
                async for event in client.watch(CONFIG_MAPS, "default", resource_version=str(future)):
                    return str(event.object["metadata"]["resourceVersion"])
                return "nothing"

            watching = group.create_task(first_seen())
            await watched.wait()
            made = [
                await client.create(CONFIG_MAPS, {"metadata": {"name": f"m{number}"}}, "default")
                for number in range(5)
            ]
        revisions = [int(each["metadata"]["resourceVersion"]) for each in made]
        assert watching.result() == str(min(each for each in revisions if each > future))
        current = running.server.store.revision
        query = (
            f"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={current + 9}"
        )
        with pytest.raises(errors.StatusError, match=f"Too large resource version: {current + 9}") as caught:
            await client.request("GET", f"/api/v1/namespaces/default/configmaps?{query}")
        assert caught.value.code == 504
