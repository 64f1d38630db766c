"""The journal in one SQLite file: one writer thread, group commit, fsync before anything is acknowledged.

Rows that a later revision superseded stay until they fall out of the server's event window, so that after
a restart watchers resume where they were. ``layout`` says what lies in the file and when it is believed,
``files`` what lies beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from . import backup, files, layout
from .journal import Committed, Loaded, Row, StorageError, StorageLost

_LOG = logging.getLogger(__name__)

_MAX_BATCH = 500
_CHECKPOINT_PAGES = 2000
"""The write-ahead log is copied into the database when it is this long (8 MiB)."""
_WAL_BYTES = 16 * 1024 * 1024
"""It is cut to this length when something (a backup) had let it grow longer."""
_VACUUM_PAGES = 500
"""How many unused pages a compaction gives back to the file system at most."""
_RETRIABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY)
"""Failures after which the disk holds what it held before. Of others, nobody knows: a failed fsync may
have dropped what was written, so that only a new start, which reads the disk, tells what is there."""

_RESET = "reset"

_Job = Row | tuple[list[int], int] | str | None


class SqliteJournal:
    """The journal in SQLite; `path` is the database file (its ``-wal`` is next to it)."""

    def __init__(
        self, path: Path, *, checkpoint_pages: int = _CHECKPOINT_PAGES, vacuum_pages: int = _VACUUM_PAGES
    ) -> None:
        self.path = path
        self._checkpoint_pages = checkpoint_pages
        self._vacuum_pages = vacuum_pages
        self._guard = files.Guard(path)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_committed: Committed | None = None
        self._failed: Exception | None = None
        self._owed: list[tuple[list[int], int]] = []
        """Removals that are not done yet: of this batch, or of one that failed."""
        self._connection: sqlite3.Connection | None = None

    def open(self) -> Loaded:
        """Check the file's integrity and read it. Raises StorageError with the way back."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            noted = self._guard.acquire()
            return self._open(noted)
        except sqlite3.Error as error:
            self._release()
            raise layout.explain(self.path, error) from error
        except OSError as error:
            self._release()
            raise StorageError(f"{self.path} cannot be used: {error}") from error
        except BaseException:
            self._release()
            raise

    def _open(self, noted: int) -> Loaded:
        backup.refuse_half_restored(self.path)
        if not self.path.exists():
            self._create(noted)
        if self.path.stat().st_size == 0:
            raise layout.corrupt(self.path, "it is empty")
        for name in (self.path, files.beside(self.path, "-wal"), files.beside(self.path, "-shm")):
            with contextlib.suppress(FileNotFoundError):
                name.chmod(files.PRIVATE)
        # Damage must be found before a connection that may write recovers, and so changes, anything.
        with contextlib.closing(layout.read_only(self.path)) as reader:
            content = layout.check(self.path, reader)
        if content.revision < noted:
            raise layout.incomplete(self.path, content.revision, noted)
        self._connection = connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={self._checkpoint_pages}")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        if content.format < layout.FORMAT:
            layout.upgrade(connection, content.compacted_revision)
        else:
            with layout.transaction(connection):  # shows now whether it can be written
                layout.write_meta(connection, content.compacted_revision)
        self._guard.note(content.revision)
        self._guard.sync()
        return Loaded(content.rows, content.compacted_revision)

    def _create(self, noted: int) -> None:
        """A new file is renamed to `path` when it is complete, so an empty file there is always damage."""
        if noted or _size(files.beside(self.path, "-wal")):
            raise layout.corrupt(self.path, "it is missing, but files beside it show that it was there")
        with files.removed_on_failure(files.beside(self.path, "-new")) as temporary:
            with contextlib.closing(layout.unpublished(temporary)) as connection:
                layout.create(connection)
            files.publish(temporary, self.path)

    def start(self, on_committed: Committed) -> None:
        """See Journal.start."""
        self._opened()
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

    async def close(self) -> None:
        """See Journal.close."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        self._release()

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._guard.release()

    def _write(self) -> None:
        """The writer thread: writes all queued rows in one transaction, then notifies the event loop."""
        while True:
            jobs = [self._jobs.get()]
            while jobs[-1] not in (None, _RESET) and len(jobs) < _MAX_BATCH:
                try:
                    jobs.append(self._jobs.get_nowait())
                except queue.Empty:
                    break
            rows = [job for job in jobs if isinstance(job, Row)]
            self._owed += [job for job in jobs if isinstance(job, tuple) and not isinstance(job, Row)]
            if self._failed is None and (rows or self._owed):
                self._commit(rows)
            self._report(rows, self._failed)
            if jobs[-1] == _RESET and not isinstance(self._failed, StorageLost):
                self._failed = None
            if jobs[-1] is None:
                return

    def _commit(self, rows: list[Row]) -> None:
        """Make `rows` durable, and carry out pending removals; an error is kept in ``_failed``."""
        try:
            self._append(rows)
        except Exception as error:  # the end of a thread: waiting callers must get every exception
            _LOG.error("A batch of writes failed", extra={"err": str(error), "rows": len(rows)})
            if not is_retriable(error):
                self._failed = StorageLost(str(error))
            elif rows:
                self._failed = error
            return
        compacted, self._owed = bool(self._owed), []
        try:
            if rows:
                self._guard.note(rows[-1].revision)
            if compacted:
                self._give_back()
        except (sqlite3.Error, OSError) as error:
            # The rows are durable. The next batch repeats the rest.
            _LOG.warning(
                "Removing superseded rows from the database failed; trying again with the next write",
                extra={"err": str(error)},
            )

    def _append(self, rows: list[Row]) -> None:
        connection = self._opened()
        with layout.transaction(connection):
            layout.insert(connection, rows)
            for revisions, compacted in self._owed:
                connection.executemany("DELETE FROM log WHERE id = ?", [(number,) for number in revisions])
                layout.write_meta(connection, compacted)

    def _give_back(self) -> None:
        """Shorten the file where most of it is unused."""
        connection = self._opened()
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        if unused > max(self._vacuum_pages, pages // 2):
            # A step frees one page, and only scripts make more than one step of a statement without columns.
            connection.executescript(f"PRAGMA incremental_vacuum({self._vacuum_pages})")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StorageError("the journal is not open")
        return self._connection

    def _report(self, rows: list[Row], error: BaseException | None) -> None:
        if rows and self._loop is not None and self._on_committed is not None:
            try:
                self._loop.call_soon_threadsafe(self._on_committed, rows, error)
            except RuntimeError:  # the event loop was closed meanwhile: there are no waiting callers
                return


def is_retriable(error: Exception) -> bool:
    """Whether the next write may be tried after `error`."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in _RETRIABLE or (isinstance(error, sqlite3.Error) and not code)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
