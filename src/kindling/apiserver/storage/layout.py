"""What lies in the database file: tables, checksums, and how a file is checked before it is trusted.

One append-only table whose ``id`` is the resourceVersion. Every row carries a checksum of its own because
SQLite does not notice changed bytes inside values.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kindling import program

from .journal import CorruptStorage, Row, StorageError

FORMAT = 2
_OLDEST_FORMAT = 1
"""Its checksums cover values alone; such files are brought to the current format when they are opened."""

SCHEMA = """
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
_COLUMNS = "id, name, deleted, create_revision, prev_revision, checksum, value"
_SEPARATOR = "\x1f"
"""Between bucket and path in ``name``; neither may contain it."""
_AROUND_THE_FILE = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)
"""Failures that say nothing against what is in the file."""
_PRIMARY_CODE = 0xFF


@dataclass(frozen=True, slots=True)
class Content:
    """A checked file: its rows in order of revision."""

    rows: list[Row]
    compacted_revision: int
    format: int

    @property
    def revision(self) -> int:
        """The newest revision in the file."""
        return max(self.compacted_revision, self.rows[-1].revision if self.rows else 0)


def checksum(number: int, name: str, deleted: int, created: int, previous: int, value: bytes) -> int:
    """The checksum of a row."""
    return zlib.crc32(value, zlib.crc32(f"{number} {deleted} {created} {previous} {name}".encode()))


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty journal."""
    # Pages that compaction frees can be given back to the file system.
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(SCHEMA)
    write_meta(connection, 0)


def write_meta(connection: sqlite3.Connection, compacted: int) -> None:
    """Note up to which revision history is incomplete."""
    values = {"format": FORMAT, "compacted": compacted, "checksum": _meta_checksum(FORMAT, compacted)}
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


def _meta_checksum(number: int, compacted: int) -> int:
    return zlib.crc32(f"{number} {compacted}".encode())


def insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Append revisions."""
    records = []
    for row in rows:
        name, deleted = f"{row.bucket}{_SEPARATOR}{row.path}", int(row.deleted)
        check = checksum(row.revision, name, deleted, row.created_revision, row.previous_revision, row.value)
        records.append(
            (row.revision, name, deleted, row.created_revision, row.previous_revision, check, row.value)
        )
    connection.executemany(_INSERT, records)


def check(path: Path, connection: sqlite3.Connection) -> Content:
    """Read everything and believe nothing. Raises StorageError with the way back."""
    try:
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
        if problems != ["ok"]:
            raise corrupt(path, "; ".join(problems))
        tables = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema")}
        if not {"meta", "log"} <= tables:
            raise corrupt(path, "it is a database, but not of an API server")
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        number, compacted = meta.get("format", 0), meta.get("compacted", 0)
        if not isinstance(number, int) or not isinstance(compacted, int):
            raise corrupt(path, "its description is no number")
        if number > FORMAT:
            raise StorageError(
                f"{path} has format {number}, which a newer program wrote; this one reads formats up to "
                f"{FORMAT}. Use the newer program, or restore a backup made before: {way_back(path)}"
            )
        if number < _OLDEST_FORMAT:
            raise corrupt(path, "it does not say which format it has")
        if number >= FORMAT and meta.get("checksum") != _meta_checksum(number, compacted):
            raise corrupt(path, "the checksum of its description is wrong")
        return Content(list(_read(path, connection, number)), compacted, number)
    except sqlite3.Error as error:
        raise explain(path, error) from error


def _read(path: Path, connection: sqlite3.Connection, number: int) -> Iterator[Row]:
    for revision, name, deleted, created, previous, check_value, value in connection.execute(
        f"SELECT {_COLUMNS} FROM log ORDER BY id"
    ):
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise corrupt(path, f"revision {revision} has values of wrong types")
        wanted = (
            checksum(revision, name, deleted, created, previous, value)
            if number >= FORMAT
            else zlib.crc32(value)
        )
        if wanted != check_value:
            raise corrupt(path, f"the checksum of revision {revision} ({name!r}) is wrong")
        bucket, _, item_path = name.partition(_SEPARATOR)
        yield Row(revision, bucket, item_path, bool(deleted), created, previous, value)


def upgrade(connection: sqlite3.Connection, compacted: int) -> None:
    """Bring a checked file of an older format to the current one, wholly or not at all."""
    connection.create_function("row_checksum", 6, checksum, deterministic=True)
    with transaction(connection):
        connection.execute(
            "UPDATE log SET checksum = row_checksum(id, name, deleted, create_revision, prev_revision, value)"
        )
        write_meta(connection, compacted)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction; commit at the end of the block, or roll back on an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def unpublished(path: Path) -> sqlite3.Connection:
    """Open a new file without syncing its writes: it is synced as a whole when it is published."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def read_only(path: Path) -> sqlite3.Connection:
    """Open a database without ever changing it, even where its write-ahead log holds more."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def way_back(path: Path) -> str:
    """What to type to get a backup in the place of `path`."""
    return program.command("restore FILE", path.parent)


def corrupt(path: Path, detail: str) -> CorruptStorage:
    """The error of a damaged file."""
    return CorruptStorage(
        f"{path} is corrupt ({detail}). It was left untouched. Restore a backup in its place "
        f"({way_back(path)}), or, to start empty, move it and the files beside it ({path.name}-*) away.",
        detail,
    )


def incomplete(path: Path, revision: int, noted: int) -> StorageError:
    """The error of an undamaged file that lacks acknowledged writes."""
    return StorageError(
        f"{path} is incomplete: it ends at revision {revision}, but revision {noted} was acknowledged (its "
        f"write-ahead log was damaged or removed, or an older copy was put here). It was left untouched. "
        f"Restore a backup ({way_back(path)}), or, to go on without what is missing, remove {path}-guard."
    )


def explain(path: Path, error: sqlite3.Error) -> StorageError:
    """Distinguish damage from problems around the file (permissions, space, owner)."""
    if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE not in _AROUND_THE_FILE:
        return corrupt(path, str(error))
    name = getattr(error, "sqlite_errorname", "")
    return StorageError(
        f"{path} cannot be used ({error}; {name}), which says nothing against its content: check the "
        f"permissions, owner and free space of {path.parent} and the disk below it, then start again. If the "
        f"file itself is the cause, restore a backup in its place ({way_back(path)})."
    )
