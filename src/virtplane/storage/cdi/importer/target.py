"""The volume that an import fills: a file system with ``disk.img``, or a block device."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virtplane.storage.cdi.importer.outcome import TooLarge
from virtplane.storage.cdi.importer.streams import Reader
from virtplane.storage.cdi.importer.write_behind import WriteBehind
from virtplane.storage.cdi.sizes import usable_space

_log = logging.getLogger(__name__)

MIB = 1 << 20
DISK_FILE = "disk.img"

_MODE = 0o660
_BLOCK = 32 << 10
"""The granularity of holes."""
_ZERO_BLOCK = bytes(_BLOCK)
_ZEROS = bytes(MIB)
_LOST_FOUND = "lost+found"
_SHARE_OF_TABLES = 16
_TABLES = 33 * MIB
"""Tables take some space of their own, and VHDX is written in pieces of up to 32 MiB."""
_SYNC_EVERY = 64 * MIB
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


@dataclass(frozen=True, slots=True)
class Target:
    """Where the disk goes.

    `size_bytes` is what the claim asks for, `overhead` the file system's share (0 to 1).
    """

    path: Path
    is_device: bool
    size_bytes: int
    overhead: float

    def available(self) -> int:
        """How large a disk in it can be, in bytes."""
        if self.is_device:
            with self.path.open("rb") as device:
                return device.seek(0, os.SEEK_END)
        free = os.statvfs(self.path.parent)
        room = free.f_bavail * free.f_frsize + _allocated(self.path)
        return min(usable(self.size_bytes, self.overhead) if self.size_bytes else room, room)

    def check_fits(self, virtual_size: int) -> None:
        """Raise TooLarge for a disk of `virtual_size` bytes that is too large."""
        available = self.available()
        if virtual_size > available:
            raise TooLarge(
                f"Unable to process data: virtual image size {virtual_size} is larger than the "
                "reported available "
                f"storage {available}. A larger PVC is required"
            )

    def clear(self) -> None:
        """Remove what an earlier attempt has left, so that what is skipped later reads as zeros.

        Raises OSError.
        """
        if self.is_device:
            with self.path.open("r+b", buffering=0) as device:
                size = device.seek(0, os.SEEK_END)
                if not _punch(device.fileno(), size):
                    for offset in range(0, size, MIB):
                        os.pwrite(device.fileno(), _ZEROS[: size - offset], offset)
            return
        for entry in self.path.parent.iterdir():
            if entry.name == DISK_FILE and not entry.is_dir():
                entry.unlink()

    def empty(self) -> None:
        """Remove all files of the volume, for those of an archive. Raises OSError."""
        for entry in self.path.parent.iterdir():
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
            elif entry.name != _LOST_FOUND:
                shutil.rmtree(entry, onerror=_remove_anyway)

    def largest_file(self) -> int:
        """How large a file that a disk is made of may be: tables of formats take some space of their own."""
        most = max(self.size_bytes, self.available())
        return most + most // _SHARE_OF_TABLES + _TABLES

    def extend(self, size: int) -> None:
        """Have the disk file end in a hole, at `size` bytes. Raises OSError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Put the disk into the state that others rely on: readable by QEMU's group, and on the disk."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not self.is_device:
                os.fchmod(descriptor, _MODE)
            os.fsync(descriptor)
            _log.info("Successfully completed fsync(%s) syscall", self.path)
        finally:
            os.close(descriptor)
        if not self.is_device:
            _sync_folder(self.path.parent)

    async def write(self, source: Reader, *, sparse: bool, drop_cache: bool) -> int:
        """Write all of `source`, leaving holes for zeros if `sparse`; the number of bytes.

        `drop_cache` keeps what is written from filling the page cache. Raises TooLarge where there is
        too much of it, OSError.
        """
        limit = self.available()
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if self.is_device else os.O_CREAT)
        descriptor = os.open(self.path, flags, _MODE)
        offset = dropped = 0

        def write(position: int, pieces: list[bytes]) -> None:
            nonlocal dropped
            for piece in pieces:
                runs = data_runs(piece) if sparse else [(0, len(piece))]
                _write_runs(descriptor, piece, runs, position)
                position += len(piece)
            if drop_cache and position - dropped >= _SYNC_EVERY:
                dropped = position
                _drop(descriptor)

        try:
            if sparse and not self.is_device:
                # XFS allocates blocks ahead of a file's end, and later writes leave them inside of it.
                os.ftruncate(descriptor, limit)
            try:
                async with WriteBehind(write) as behind:
                    while piece := await source.read():
                        if offset + len(piece) > limit:
                            raise TooLarge(
                                "Unable to process data: virtual image size is larger than the reported "
                                f"available storage {limit}. A larger PVC is required"
                            )
                        offset += len(piece)
                        await behind.add(piece)
            finally:
                # What broke off must not look like a whole disk either.
                if not self.is_device:
                    os.ftruncate(descriptor, offset)
            return offset
        finally:
            os.close(descriptor)

    async def patch(self, pieces: AsyncIterator[tuple[int, bytes]]) -> None:
        """Write pieces at their offsets into the disk that is there; zeros become holes.

        Raises TooLarge behind the end of the disk, OSError.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            async for offset, piece in pieces:
                if offset + len(piece) > size:
                    raise TooLarge(
                        f"Unable to process data: virtual image size {offset + len(piece)} is larger than "
                        f"the reported available storage {size}. A larger PVC is required"
                    )
                await asyncio.to_thread(_patch_piece, descriptor, piece, offset)
        finally:
            os.close(descriptor)


def usable(size: int, overhead: float) -> int:
    """What a file system of `size` bytes leaves for a disk: whole MiB below ``size / (1 + overhead)``."""
    return usable_space(overhead, size)


def find_target(data: Path, device: Path, size_bytes: int, overhead: float) -> Target:
    """The volume of this pod: `device` where it is a block device, else the folder `data`."""
    try:
        if stat.S_ISBLK(device.stat().st_mode):
            return Target(device, True, size_bytes, overhead)
    except FileNotFoundError:
        pass
    return Target(data / DISK_FILE, False, size_bytes, overhead)


def data_runs(piece: bytes) -> Iterator[tuple[int, int]]:
    """Where `piece` has data, as (begin, end), in blocks of 32 KiB that are not all zeros."""
    begin, whole = -1, len(piece) - len(piece) % _BLOCK
    for offset in range(0, len(piece), _BLOCK):
        # Nothing is copied, and no byte becomes an object, as where views are compared.
        zeros = _ZERO_BLOCK if offset < whole else bytes(len(piece) - whole)
        if piece.startswith(zeros, offset):
            if begin >= 0:
                yield begin, offset
                begin = -1
        elif begin < 0:
            begin = offset
    if begin >= 0:
        yield begin, len(piece)


def _remove_anyway(remove: Callable[..., object], path: str, _: object) -> None:
    """Archives have folders that their owner may not read or change."""
    if remove in (os.open, os.scandir, os.lstat):
        Path(path).chmod(0o700)
        shutil.rmtree(path)
    else:
        Path(path).parent.chmod(0o700)
        remove(path)


def _write_runs(descriptor: int, piece: bytes, runs: Iterable[tuple[int, int]], offset: int) -> None:
    view = memoryview(piece)
    for begin, end in runs:
        position = begin
        while position < end:
            written = os.pwrite(descriptor, view[position:end], offset + position)
            position += written


def _patch_piece(descriptor: int, piece: bytes, offset: int) -> None:
    end, runs = 0, list(data_runs(piece))
    for begin, end_of_data in (*runs, (len(piece), len(piece))):
        if begin > end and not _punch(descriptor, begin - end, offset + end):
            _write_runs(descriptor, piece, [(end, begin)], offset)
        end = end_of_data
    _write_runs(descriptor, piece, runs, offset)


def _drop(descriptor: int) -> None:
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _punch(descriptor: int, size: int, offset: int = 0) -> bool:
    """Make `size` bytes read as zeros without writing them; whether that can be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = libc.fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    return bool(fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset, size) == 0)


def _allocated(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
