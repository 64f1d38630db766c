"""Backups: one file with everything stored and what its owner attaches, taken while the server runs.

A backup is itself a database of the same layout, without a write-ahead log, and with one more table for
attached files (keys and certificates of a cluster). It is checked as a whole before it gets its name, and
again before anything is replaced by it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import files, layout
from .journal import CorruptStorage, StorageError

_ATTACHMENTS = """
CREATE TABLE attachments (
    name TEXT PRIMARY KEY, mode INTEGER NOT NULL, checksum INTEGER NOT NULL, content BLOB NOT NULL
) WITHOUT ROWID
"""
_MARKER = "-restoring"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file stored in the backup; `mode` are its permission bits."""

    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Backup:
    """The content of a verified backup: `objects` counts current ones, `revision` is the newest."""

    objects: int
    revision: int
    attachments: Mapping[str, Attachment]


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome of a restore."""

    revision: int
    """Where revisions go on: after any that a client may have seen."""
    aside: Path | None
    """Where the replaced database lies now; None when there was none."""


def take(source: Path, target: Path, attachments: Mapping[str, Attachment]) -> Backup:
    """Write a backup of the database `source`, in use or not, to the new file `target`.

    Raises StorageError; then there is no `target`.
    """
    if target.exists():
        raise StorageError(f"{target} exists already; a backup does not overwrite anything")
    if not source.exists():
        raise StorageError(f"there is no database at {source}")
    refuse_half_restored(source)
    noted = files.noted_revision(source)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        with files.removed_on_failure(temporary):
            with (
                contextlib.closing(layout.read_only(source)) as origin,
                contextlib.closing(layout.unpublished(temporary)) as copy,
            ):
                origin.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")
                _attach(copy, attachments)
            taken = _read(temporary, source)
            if taken.revision < noted:
                raise layout.incomplete(source, taken.revision, noted)
            files.publish(temporary, target)
    except sqlite3.Error as error:
        raise layout.explain(source, error) from error
    except OSError as error:
        raise StorageError(f"the backup {target} cannot be written: {error}") from error
    return taken


def read(path: Path) -> Backup:
    """Check a backup wholly. Raises StorageError."""
    if not path.is_file():
        raise StorageError(f"there is no backup at {path}")
    try:
        return _read(path, path)
    except CorruptStorage as error:
        raise StorageError(f"the backup {path} cannot be used: {error.detail}") from error
    except sqlite3.Error as error:
        raise StorageError(f"{path} is no backup of an API server's database ({error})") from error


def _read(path: Path, called: Path) -> Backup:
    with contextlib.closing(layout.read_only(path)) as connection:
        content = layout.check(called, connection)
        attachments: dict[str, Attachment] = {}
        for name, mode, check, data in connection.execute(
            "SELECT name, mode, checksum, content FROM attachments"
        ):
            if check != _checksum(name, mode, data):
                raise layout.corrupt(called, f"the checksum of the attached {name} is wrong")
            attachments[name] = Attachment(data, mode)
    current = {(row.bucket, row.path): row.deleted for row in content.rows}
    return Backup(sum(not deleted for deleted in current.values()), content.revision, attachments)


def restore(source: Path, path: Path, place: Callable[[str], None]) -> Restored:
    """Replace the database `path`, which is renamed, by the backup `source`.

    `place` then puts other files where they belong; it gets a stamp for the names of what it replaces. A
    restore that is interrupted leaves a mark that keeps the server from starting until it is repeated.
    Revisions continue after the highest that clients may have seen, and the history is dropped, so that
    watches must list again. Raises StorageError, also when the database is in use.
    """
    backup = read(source)
    guard = files.Guard(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        revision = next_revision(backup.revision, guard.acquire(), time.time())
        with files.removed_on_failure(files.beside(path, "-new")) as temporary:
            _build(source, temporary, revision)
            marker = files.beside(path, _MARKER)
            files.write_durably(marker, b"")
            stamp = _free_stamp(path)
            place(stamp)
            aside = _move_aside(path, stamp)
            files.publish(temporary, path)
        guard.note(revision)
        guard.sync()
        marker.unlink()
        files.sync_directory(path.parent)
    except sqlite3.Error as error:
        raise layout.explain(path, error) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be replaced: {error}") from error
    finally:
        guard.release()
    return Restored(revision, aside)


def next_revision(backup: int, noted: int, now_seconds: float) -> int:
    """Where revisions go on after a restore: beyond all that the replaced database gave out.

    Its last note tells, but may be lost together with it. Milliseconds since 1970 are beyond it, too: writes
    come slower than one each millisecond.
    """
    return max(backup, noted, int(now_seconds * 1000)) + 1


def refuse_half_restored(path: Path) -> None:
    """Raises StorageError when a restore of `path` began and did not end."""
    if files.beside(path, _MARKER).exists():
        raise StorageError(
            f"a restore of {path} was interrupted. Repeat it: {layout.way_back(path)}. What it replaces lies "
            f"in {path.parent} under names with 'replaced'."
        )


def _attach(connection: sqlite3.Connection, attachments: Mapping[str, Attachment]) -> None:
    with layout.transaction(connection):
        connection.execute(_ATTACHMENTS)
        connection.executemany(
            "INSERT INTO attachments VALUES (?, ?, ?, ?)",
            [
                (name, item.mode, _checksum(name, item.mode, item.content), item.content)
                for name, item in attachments.items()
            ],
        )


def _checksum(name: str, mode: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(f"{mode} {name}".encode()))


def _build(source: Path, temporary: Path, revision: int) -> None:
    """A database of the backup's current objects, whose history ends at `revision`."""
    with (
        contextlib.closing(layout.read_only(source)) as origin,
        contextlib.closing(layout.unpublished(temporary)) as connection,
    ):
        origin.backup(connection)
        content = layout.check(temporary, connection)
        if content.format < layout.FORMAT:
            layout.upgrade(connection, content.compacted_revision)
        with layout.transaction(connection):
            connection.execute("DROP TABLE attachments")
            connection.execute("DELETE FROM log WHERE id NOT IN (SELECT max(id) FROM log GROUP BY name)")
            connection.execute("DELETE FROM log WHERE deleted")
            layout.write_meta(connection, revision)
        connection.execute("PRAGMA journal_mode=WAL")
        layout.check(temporary, connection)


def _free_stamp(path: Path) -> str:
    """A word for the names of replaced files, unlike that of any restore before."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    stamp, number = moment, 1
    while any(path.parent.glob(f"*.replaced-{stamp}*")):
        number += 1
        stamp = f"{moment}-{number}"
    return stamp


def _move_aside(path: Path, stamp: str) -> Path | None:
    """Rename the database, with what its write-ahead log holds."""
    aside = path.with_name(f"{path.name}.replaced-{stamp}")
    moved = False
    for suffix in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            files.beside(path, suffix).rename(files.beside(aside, suffix))
            moved = True
    files.beside(path, "-shm").unlink(missing_ok=True)
    files.sync_directory(path.parent)
    return aside if moved else None
