"""The journal in one SQLite file: one writer thread, group commit, fsync before anything is acknowledged.

One append-only table whose ``id`` is the resourceVersion. Rows that a later revision superseded stay
until they fall out of the server's event window, so that after a restart watchers resume where they were.
Every row carries a checksum of its own because SQLite does not notice changed bytes inside a value.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from .journal import Committed, Loaded, Row, StorageError

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    create_revision INTEGER NOT NULL,
    prev_revision INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS log_name ON log (name, id);
"""
_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)"
_MAX_BATCH = 500
_SEPARATOR = "\x1f"
"""Between bucket and path in ``name``; neither may contain it."""

_RESET = "reset"

_Job = Row | tuple[list[int], int] | str | None


class SqliteJournal:
    """See the module; `path` is the database file (its ``-wal`` lies beside it)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_committed: Committed | None = None
        self._failed: BaseException | None = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> Loaded:
        """Check the file's integrity and read it. Raises StorageError with the way back."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._connection = connection
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA wal_autocheckpoint=2000")
            connection.execute("PRAGMA journal_size_limit=16777216")
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
            if problems != ["ok"]:
                raise self._corrupt("; ".join(problems))
            connection.executescript(_SCHEMA)
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (_FORMAT,))
            meta = dict(connection.execute("SELECT name, value FROM meta"))
            if meta["format"] != _FORMAT:
                raise StorageError(
                    f"{self.path} has format {meta['format']}, this program reads format {_FORMAT}"
                )
            rows = list(self._read(connection))
        except sqlite3.DatabaseError as error:
            raise self._corrupt(str(error)) from error
        return Loaded(rows, meta.get("compacted", 0))

    def _read(self, connection: sqlite3.Connection) -> Iterator[Row]:
        columns = "id, name, deleted, create_revision, prev_revision, checksum, value"
        for revision, name, deleted, created, previous, checksum, value in connection.execute(
            f"SELECT {columns} FROM log ORDER BY id"
        ):
            if zlib.crc32(value) != checksum:
                raise self._corrupt(f"the checksum of revision {revision} ({name!r}) is wrong")
            bucket, _, path = name.partition(_SEPARATOR)
            yield Row(revision, bucket, path, bool(deleted), created, previous, value)

    def _corrupt(self, detail: str) -> StorageError:
        return StorageError(
            f"{self.path} is corrupt ({detail}). It was left untouched. "
            f"Restore a backup in its place (kindling restore), or move it away to start empty."
        )

    def start(self, on_committed: Committed) -> None:
        """See Journal.start."""
        if self._connection is None:
            raise StorageError("the journal is not open")
        self._on_committed = on_committed
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def append(self, row: Row) -> None:
        """See Journal.append."""
        self._jobs.put(row)

    def forget(self, revisions: Sequence[int], compacted_revision: int) -> None:
        """See Journal.forget."""
        self._jobs.put((list(revisions), compacted_revision))

    def reset(self) -> None:
        """See Journal.reset."""
        self._jobs.put(_RESET)  # whatever was queued before still belongs to the failed sequence

    def backup(self, target: Path) -> None:
        """Copy the database with SQLite's online backup; other writes go on meanwhile."""
        with sqlite3.connect(self.path) as source, sqlite3.connect(target) as copy:
            source.backup(copy)
        source.close()
        copy.close()

    async def close(self) -> None:
        """See Journal.close."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self) -> None:
        """The writer thread: everything queued goes into one transaction, then the loop is told."""
        while True:
            jobs = [self._jobs.get()]
            while jobs[-1] not in (None, _RESET) and len(jobs) < _MAX_BATCH:
                try:
                    jobs.append(self._jobs.get_nowait())
                except queue.Empty:
                    break
            rows = [job for job in jobs if isinstance(job, Row)]
            removals = [job for job in jobs if isinstance(job, tuple) and not isinstance(job, Row)]
            if self._failed is None:
                try:
                    self._commit(rows, removals)
                except sqlite3.Error as error:
                    self._failed = error
            self._report(rows, self._failed)
            if jobs[-1] == _RESET:
                self._failed = None
            if jobs[-1] is None:
                return

    def _commit(self, rows: list[Row], removals: list[tuple[list[int], int]]) -> None:
        connection = self._connection
        if connection is None:
            raise sqlite3.ProgrammingError("the journal is closed")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(
                _INSERT,
                [
                    (
                        row.revision,
                        f"{row.bucket}{_SEPARATOR}{row.path}",
                        int(row.deleted),
                        row.created_revision,
                        row.previous_revision,
                        zlib.crc32(row.value),
                        row.value,
                    )
                    for row in rows
                ],
            )
            for revisions, compacted in removals:
                connection.executemany("DELETE FROM log WHERE id = ?", [(number,) for number in revisions])
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('compacted', ?)", (compacted,))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _report(self, rows: list[Row], error: BaseException | None) -> None:
        if rows and self._loop is not None and self._on_committed is not None:
            try:
                self._loop.call_soon_threadsafe(self._on_committed, rows, error)
            except RuntimeError:  # the loop was closed under us: nobody is left to be told
                return
