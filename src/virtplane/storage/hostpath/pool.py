"""A storage pool on disk: the records of volumes and snapshots, and where their content is.

    POOL/ID/                             a directory volume's files, as the upstream driver has them
    POOL/.virtplane/volumes/ID/          record.json; disk, where the volume is an image; users/NODE
    POOL/.virtplane/pending/RANDOM/      what is being made or removed; locked by whoever makes it
    POOL/.virtplane/reserve              space for the calls that must work in a full pool
    SNAPSHOTS/ID/                        record.json, and disk or data/

A record's folder is made in pending/ and renamed to its place when all of it is on the disk: what is in place
is whole. To remove it, it is renamed back to pending/ first. Names are checked (`is_identifier`) before they
get here.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from kubecore.mountinfo import is_mount_point
from virtplane.storage.hostpath import locks, trees
from virtplane.storage.hostpath.configuration import FULL_PERCENT, STATE_DIRECTORY, PoolInfo
from virtplane.storage.hostpath.failures import Code, CsiFailure

_log = logging.getLogger(__name__)

Format = Literal["directory", "image"]
DIRECTORY: Format = "directory"
IMAGE: Format = "image"
Mode = Literal["Filesystem", "Block"]
BLOCK: Mode = "Block"
FILE_SYSTEM: Mode = "Filesystem"

_RECORD = "record.json"
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What volumes and snapshots hold. `size` is what was asked for, in bytes."""

    format: Format
    mode: Mode
    fs_type: str
    size: int


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a volume. `origin` is ``snapshot/ID`` or ``volume/ID`` of what it was copied from."""

    id: str
    content: Content
    created: int
    origin: str = ""
    is_fresh: bool = True
    """Nobody has mounted its file system yet."""
    is_ephemeral: bool = False
    is_whole: bool = True
    """False while the files of a directory volume are still being put in place."""
    is_recorded: bool = True
    """False for a directory that the upstream driver made: what is known of it is that it exists."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a snapshot. `created` is in nanoseconds."""

    id: str
    source: str
    content: Content
    created: int


_Record = TypeVar("_Record", Volume, Snapshot)


def is_identifier(name: str) -> bool:
    """Whether `name` can be the id of a volume or a snapshot: one component of a path, no hidden one."""
    return _IDENTIFIER.fullmatch(name) is not None


class Pool:
    """One pool's folders."""

    def __init__(self, info: PoolInfo) -> None:
        self.info = info
        self.name = info.name
        self.folder = info.folder
        self.snapshots = info.snapshots
        self._state = self.folder / STATE_DIRECTORY
        self.volumes = self._state / "volumes"
        self.pending = self._state / "pending"
        self.reserve = self._state / "reserve"
        self._making: set[str] = set()
        self._made = threading.Condition()

    def is_there(self) -> bool:
        """Whether the pool can be used: its claim is mounted, if it has one, and its folders are made."""
        return self.pending.is_dir() and self._is_mounted()

    def _is_mounted(self) -> bool:
        return not self.info.claimed or is_mount_point(self.folder)

    def prepare(self) -> None:
        """Make the pool's folders, if its claim is mounted. Raises OSError."""
        if not self._is_mounted() or self.pending.is_dir():
            return
        self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        snapshots = [self.snapshots] if self.snapshots else []
        for folder in (self._state, self.volumes, self.pending, *snapshots):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def space(self) -> os.statvfs_result:
        """The state of the pool's file system. Raises OSError."""
        return os.statvfs(self.folder)

    def is_full(self) -> bool:
        """Whether so little is left that writes to new blocks fail, or soon will. Raises OSError."""
        space = self.space()
        return space.f_bavail * 100 < space.f_blocks * FULL_PERCENT

    # Places.

    def record_folder(self, identifier: str) -> Path:
        """Where a volume's record, image and users are; its lock is the volume's."""
        return self.volumes / identifier

    def image(self, identifier: str) -> Path:
        """A volume's image."""
        return self.record_folder(identifier) / "disk"

    def directory(self, identifier: str) -> Path:
        """A directory volume's files."""
        return self.folder / identifier

    # Records.

    def volume(self, identifier: str) -> Volume | None:
        """A volume's record; None if there is no such volume. Raises OSError, msgspec.DecodeError."""
        record = _read(self.record_folder(identifier), Volume)
        if record is not None:
            return record
        return self._unrecorded(identifier)

    def list_volumes(self) -> Iterator[Volume]:
        """All volumes, in no order; those with damaged records are left out and logged."""
        if not self.is_there():
            return
        names = {entry.name for entry in self.volumes.iterdir()}
        names |= {entry.name for entry in self.folder.iterdir() if is_identifier(entry.name)}
        yield from self._readable("volume", names, self.volume)

    def write_volume(self, volume: Volume) -> None:
        """Replace a volume's record. Raises OSError."""
        write_record(self.record_folder(volume.id), volume)

    def snapshot(self, identifier: str) -> Snapshot | None:
        """A snapshot's record; None if there is no such snapshot. Raises OSError, msgspec.DecodeError."""
        return _read(self.snapshots / identifier, Snapshot) if self.snapshots is not None else None

    def list_snapshots(self) -> Iterator[Snapshot]:
        """All snapshots, in no order; those with damaged records are left out and logged."""
        if self.snapshots is not None and self.is_there():
            names = {entry.name for entry in self.snapshots.iterdir() if is_identifier(entry.name)}
            yield from self._readable("snapshot", names, self.snapshot)

    def _readable(
        self, what: str, names: Iterable[str], read: Callable[[str], _Record | None]
    ) -> Iterator[_Record]:
        for name in names:
            try:
                record = read(name)
            except msgspec.DecodeError as error:
                _log.error("the record of %s %s in pool %s cannot be read: %s", what, name, self.name, error)
                continue
            if record is not None:
                yield record

    def _unrecorded(self, identifier: str) -> Volume | None:
        folder = self.directory(identifier)
        if folder == self.snapshots or not folder.is_dir() or folder.is_symlink():
            return None
        content = Content(format=DIRECTORY, mode=FILE_SYSTEM, fs_type="", size=0)
        return Volume(id=identifier, content=content, created=folder.lstat().st_ino, is_recorded=False)

    # Work.

    def sync(self, identifier: str = "") -> None:
        """Have on the disk which volumes and snapshots there are, and one volume's record.

        For calls that find done what they are to do: an earlier call may have been killed before that was on
        the disk, and what is answered must outlive a power cut. Costs nothing otherwise. Raises OSError.
        """
        folders = [self.record_folder(identifier)] if identifier else []
        folders += [self.folder, self.volumes, *([self.snapshots] if self.snapshots else [])]
        for folder in folders:
            with suppress(FileNotFoundError, NotADirectoryError):
                sync_folder(folder)

    @contextmanager
    def making(self, what: str) -> Iterator[None]:
        """Make `what`, such as ``snapshot ID``, in one call at a time. Raises CsiFailure: ABORTED.

        Copying much takes longer than callers wait, and each asks again: without this, every call would
        begin another copy, until all threads are busy.
        """
        with self._made:
            if not self._made.wait_for(lambda: what not in self._making, locks.WAIT_SECONDS):
                raise CsiFailure(Code.ABORTED, f"an operation for {what} is already in progress")
            self._making.add(what)
        try:
            yield
        finally:
            with self._made:
                self._making.discard(what)
                self._made.notify_all()

    @contextmanager
    def workplace(self, beside: Path | None = None) -> Iterator[Path]:
        """A folder to make or remove things in, which is removed afterwards; later where that fails.

        It is in the file system of `beside`, by default of the pool.
        """
        folder, descriptor = _locked_folder(self.pending if beside is None else beside)
        try:
            yield folder
        finally:
            try:
                remove_folder(folder)
            finally:
                os.close(descriptor)

    def discard(self, folder: Path) -> None:
        """Remove a folder with all that is in it: at once for all who look for it. Raises OSError.

        Its place is a folder that tenants cannot lock.
        """
        with self.workplace(folder.parent if folder.parent == self.snapshots else None) as place:
            try:
                folder.rename(place / "gone")
            except FileNotFoundError:
                return
            sync_folder(folder.parent)

    def set_aside(self, folder: Path) -> None:
        """As `discard`, but what is in it is left to whoever tidies up: it may be any number of files.

        Raises OSError.
        """
        place, descriptor = _locked_folder(self.pending)
        try:
            folder.rename(place / "gone")
        except FileNotFoundError:
            remove_folder(place)
            return
        finally:
            os.close(descriptor)
        sync_folder(folder.parent)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder in `parent`, and a descriptor that holds its lock. Raises OSError."""
    while True:
        folder = parent / f".{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # somebody who tidies up has taken it for abandoned
        if locks.try_lock(descriptor) and locks.is_same(descriptor, folder):
            return folder, descriptor
        os.close(descriptor)


def sync_all(pools: Mapping[str, Pool]) -> None:
    """Have on the disk that what is gone from the pools is gone. Raises OSError."""
    for pool in pools.values():
        if pool.is_there():
            pool.sync()


def put(folder: Path, place: Path) -> bool:
    """Rename a finished folder to its place; gives False if the place is taken. Raises OSError."""
    sync_folder(folder)
    try:
        folder.rename(place)
    except OSError:
        if place.is_dir():
            return False
        raise
    sync_folder(place.parent)
    return True


def write_record(folder: Path, record: Volume | Snapshot) -> None:
    """Write the record in `folder`: whole or not at all, and on the disk. Raises OSError."""
    temporary = folder / f".{_RECORD}"
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, msgspec.json.encode(record))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(folder / _RECORD)
    sync_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours; empty ones, which are the most, without a program. Raises OSError."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        trees.remove(folder)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def now() -> int:
    """The moment, in nanoseconds."""
    return time.time_ns()


def _read(folder: Path, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.json.decode((folder / _RECORD).read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
