"""A power cut at every moment: whatever the disk had not confirmed is lost, or torn, and nothing else is."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.recorded_disk import Disk, Operation, Recorder

from kindling.apiserver.storage import backup
from kindling.apiserver.storage.backup import Attachment
from kindling.apiserver.storage.journal import Committed, StorageError
from kindling.apiserver.storage.sqlite import SqliteJournal
from kindling.apiserver.storage.store import Item, Store, Window

BUCKET = "b"
State = dict[str, bytes]


@pytest.fixture
def found() -> Iterator[Path]:
    """A directory for what power cuts leave; in memory where that is possible, since it is made often."""
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as directory:
        yield Path(directory) / "found"


class Writers:
    """Writes at random through a store, and knows the state after each revision."""

    def __init__(self, store: Store, recorder: Recorder, chance: random.Random) -> None:
        self._store, self._recorder, self._chance = store, recorder, chance
        self.issued: dict[int, tuple[str, bytes | None]] = {}

    async def run(self, rounds: int) -> None:
        """Several writers, each with objects of its own."""
        await asyncio.gather(*(self._write(f"w{number}", rounds) for number in range(4)))

    async def empty(self) -> None:
        """Delete everything, and write a little, so that compaction leaves much space unused."""
        for current in list(self._store.list(BUCKET).items):
            encode = self._encode(current.path, deleted=True, size=10)
            self._recorder.note((await self._store.delete(BUCKET, current.path, encode, current)).revision)
        written: Item | None = None
        for _ in range(15):
            written = await self._store.put(BUCKET, "x", self._encode("x", size=10), written)
            self._recorder.note(written.revision)

    async def _write(self, writer: str, rounds: int) -> None:
        for _ in range(rounds):
            path = f"{writer}/{self._chance.randrange(3)}"
            current = self._store.get(BUCKET, path)
            if current is not None and self._chance.random() < 0.2:
                done = await self._store.delete(BUCKET, path, self._encode(path, deleted=True), current)
            else:
                done = await self._store.put(BUCKET, path, self._encode(path), current)
            self._recorder.note(done.revision)

    def _encode(self, path: str, *, deleted: bool = False, size: int = 0) -> Callable[[int], bytes]:
        size = size or self._chance.choice((10, 300, 6000))

        def encode(revision: int) -> bytes:
            value = b"%s at %d " % (path.encode(), revision) + b"x" * size
            self.issued[revision] = (path, None if deleted else value)
            return value

        return encode

    def states(self) -> dict[int, State]:
        """What must be stored when everything up to a revision is, by revision."""
        found: State = {}
        states = {0: found}
        for number in sorted(self.issued):
            path, value = self.issued[number]
            found = {name: kept for name, kept in found.items() if name != path}
            if value is not None:
                found[path] = value
            states[number] = found
        return states


def opened(path: Path) -> tuple[int, State]:
    """What a server that starts with these files finds: the revision and the current objects."""
    journal = SqliteJournal(path)
    loaded = journal.open()
    journal._release()  # it has no writer yet that could be asked to
    found: State = {}
    revision = loaded.compacted_revision
    for row in loaded.rows:
        assert row.revision > 0
        revision = max(revision, row.revision)
        if row.deleted:
            found.pop(row.path, None)
        else:
            found[row.path] = row.value
    return revision, found


def power_cuts(
    operations: Sequence[Operation], directory: Path, chance: random.Random, begin: int = 0
) -> Iterator[int]:
    """Leave in `directory` what a power cut after each operation from `begin` on might, in several ways."""
    fates: list[Callable[[], str]] = [lambda: "kept", lambda: "lost"]
    fates += [lambda: chance.choice(("kept", "lost", "torn"))] * 2
    disk = Disk()
    for number, operation in enumerate(operations):
        disk.replay(operation)
        if operation.kind == "ack" or number < begin:
            continue
        for fate in fates:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            disk.leave(directory, fate, chance)
            yield number


class Unsynced(SqliteJournal):
    """A journal that answers before the disk has confirmed anything."""

    def start(self, on_committed: Committed) -> None:
        self._opened().execute("PRAGMA synchronous=OFF")
        super().start(on_committed)


def record_writes(
    journal: Callable[..., SqliteJournal], directory: Path, recorder: Recorder, chance: random.Random
) -> Writers:
    """A server's life from an empty directory to its end. Checkpoints, compaction and vacuum come often."""

    async def work() -> Writers:
        store = Store(journal(directory / "db", checkpoint_pages=12, vacuum_pages=2), Window(events=12))
        store.open()
        writers = Writers(store, recorder, chance)
        await writers.run(rounds=9)
        await writers.empty()
        await store.close()
        return writers

    return asyncio.run(work())


@dataclass
class Findings:
    """What power cuts left."""

    cuts: int = 0
    lost: int = 0
    """Cuts after which something acknowledged was missing, or nothing could be read."""
    half: int = 0
    """Cuts after which there was a state that never had been."""
    ahead: int = 0
    """Cuts between the disk's word and the answer."""


def examine(
    recorder: Recorder, writers: Writers, found: Path, chance: random.Random, *, until_loss: bool = False
) -> Findings:
    """Cut everywhere, or until a cut loses something."""
    acknowledged, position, findings, states = 0, 0, Findings(), writers.states()
    for number in power_cuts(recorder.operations, found, chance):
        for operation in recorder.operations[position:number]:
            if operation.kind == "ack":
                acknowledged = max(acknowledged, operation.data)
        position = number
        findings.cuts += 1
        try:
            revision, state = opened(found / "db")
        except StorageError:
            findings.lost += 1
            continue
        findings.half += state != states[revision]
        findings.lost += revision < acknowledged
        if until_loss and findings.lost:
            break
        findings.ahead += revision > acknowledged
    return findings


@pytest.mark.timeout(200)
def test_after_a_power_cut_at_any_moment_a_state_is_there_that_holds_all_that_was_acknowledged(
    tmp_path: Path,
    found: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    chance, recorder = random.Random(7), Recorder(tmp_path / "state")
    with recorder.recording(monkeypatch):
        writers = record_writes(SqliteJournal, tmp_path / "state", recorder, chance)
    checkpoints = [each for each in recorder.operations if (each.kind, each.name) == ("sync", "db")]
    assert len(writers.issued) > 50
    assert len(checkpoints) >= 3
    cuts = [each.at for each in recorder.operations if (each.kind, each.name) == ("truncate", "db")]
    assert any(later < earlier for earlier, later in itertools.pairwise(cuts))  # by giving pages back
    findings = examine(recorder, writers, found, chance)
    record_property("power_cuts", f"{findings.cuts} in {len(recorder.operations)} operations")
    assert (findings.lost, findings.half) == (0, 0)
    assert findings.ahead > 20


@pytest.mark.timeout(200)
def test_a_journal_that_does_not_wait_for_the_disk_is_found_out(
    tmp_path: Path, found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof that the test above can fail."""
    chance, recorder = random.Random(7), Recorder(tmp_path / "state")
    with recorder.recording(monkeypatch):
        writers = record_writes(Unsynced, tmp_path / "state", recorder, chance)
    assert examine(recorder, writers, found, chance, until_loss=True).lost > 0


@pytest.mark.timeout(200)
def test_a_power_cut_during_a_restore_leaves_the_old_state_the_new_one_or_the_request_to_repeat_it(
    tmp_path: Path, found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, file, chance = tmp_path / "state", tmp_path / "backup", random.Random(7)
    recorder = Recorder(directory)
    with recorder.recording(monkeypatch):
        writers = record_writes(SqliteJournal, directory, recorder, chance)
        backup.take(directory / "db", file, {"key": Attachment(b"secret", 0o600)})
        last = max(writers.issued)
        old = writers.states()[last]

        async def more() -> None:
            store = Store(SqliteJournal(directory / "db"))
            store.open()
            await store.put(BUCKET, "later", lambda _: b"later", None)
            await store.close()

        asyncio.run(more())
        begun = len(recorder.operations)
        backup.restore(file, directory / "db", lambda _: None)
    new = old | {"later": b"later"}
    seen: dict[str, int] = {"before": 0, "after": 0, "repeat": 0}
    for number in power_cuts(recorder.operations, found, chance, begun):
        try:
            revision, state = opened(found / "db")
        except StorageError as error:
            assert "was interrupted" in str(error), number
            backup.restore(file, found / "db", lambda _: None)
            assert opened(found / "db")[1] == old
            seen["repeat"] += 1
            continue
        assert (revision, state) == (last + 1, new) or (revision > 10**12 and state == old), number
        seen["before" if state == new else "after"] += 1
    assert min(seen.values()) > 0, seen


@pytest.mark.parametrize("works_again", [True, False])
async def test_a_failed_sync_ends_all_writing_instead_of_trusting_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works_again: bool
) -> None:
    recorder, broken = Recorder(tmp_path), False
    recorder.fail = lambda kind, _: sqlite3.SQLITE_IOERR_FSYNC if broken and kind == "sync" else 0
    with recorder.recording(monkeypatch):
        store = Store(SqliteJournal(tmp_path / "db"))
        store.open()
        first = await store.put(BUCKET, "a", lambda _: b"1", None)
        broken = True
        with pytest.raises(StorageError, match="did not reach the disk"):
            await store.put(BUCKET, "a", lambda _: b"2", first)
        assert store.lost.is_set()
        broken = not works_again
        # That sync works again means nothing: what it should have written may be gone.
        with pytest.raises(StorageError, match="did not reach the disk"):
            await store.put(BUCKET, "a", lambda _: b"2", first)
        assert store.get(BUCKET, "a") is first
        await store.close()
    again = await asyncio.to_thread(opened, tmp_path / "db")
    assert again[1] in ({"a": b"1"}, {"a": b"2"})
