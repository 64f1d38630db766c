"""From a source's bytes to a finished disk, storing as little as possible twice.

A raw disk, compressed or not, goes into the volume as it comes. A disk in another format on a server with
ranges is read in place by `qemu-img`. Everything else waits in the scratch volume until it is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from virtplane.storage.cdi.importer import headers, qemu
from virtplane.storage.cdi.importer.formats import HEAD_BYTES, Container, DiskFormat, Kind, recognise
from virtplane.storage.cdi.importer.http import Facts, Web, WebObject
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome, ScratchNeeded, TooLarge
from virtplane.storage.cdi.importer.progress import Progress
from virtplane.storage.cdi.importer.qemu import Conversion, FileImage, Image, NbdImage, Part
from virtplane.storage.cdi.importer.settings import Content, Settings
from virtplane.storage.cdi.importer.streams import Checked, Counted, Peeked, Reader, drain, peel
from virtplane.storage.cdi.importer.target import Target
from virtplane.storage.cdi.importer.write_behind import WriteBehind

_log = logging.getLogger(__name__)

SCRATCH_FILE = "tmpimage"
_DISK_SUFFIXES = (".vmdk", ".qcow2", ".img", ".raw", ".vhd", ".vhdx", ".vdi")


@dataclass(frozen=True, slots=True)
class Job:
    """One import: what is wanted, where it goes, who hears of progress."""

    settings: Settings
    target: Target
    progress: Progress

    @property
    def conversion(self) -> Conversion:
        """How disks are written."""
        return Conversion(self.settings.preallocate, self.settings.direct_io)

    def disk_kind(self, kind: Kind) -> Kind:
        """What the source's file is as a disk: an archive in a container image is a disk's own bytes."""
        is_in_image = self.settings.source == "registry" or bool(self.settings.ready_file)
        return DiskFormat.RAW if is_in_image and kind is Container.TAR else kind

    def scratch_file(self) -> Path:
        """Where a whole file can wait. Raises ScratchNeeded."""
        if not self.settings.has_scratch:
            raise ScratchNeeded
        return self.settings.paths.scratch / SCRATCH_FILE


async def from_web(job: Job, web: Web, wanted: WebObject) -> Outcome:
    """Import the object `wanted`. Raises ImportFailed, ScratchNeeded, ChecksumMismatch, OSError."""
    download = await web.open(wanted)
    facts, checksum = download.facts, job.settings.checksum
    if job.settings.content is not Content.ARCHIVE and facts.content_type.startswith("text/"):
        kind_said = facts.content_type.partition(";")[0].strip()
        _log.warning("Unexpected content type '%s'. Content might not be a KubeVirt image.", kind_said)
    tell = _Tell(job.progress, facts.size)
    reader: Reader = Counted(Checked(download, checksum) if checksum else download, tell)
    try:
        if job.settings.content is Content.ARCHIVE:
            return await _archive(job, reader)
        peeked, found, depth = await peel(reader)
        reader, kind = peeked, job.disk_kind(found)
        in_place = depth == 0 and not checksum and facts.ranges and facts.size is not None
        if kind is DiskFormat.RAW or not in_place:
            return await from_stream(job, peeked, kind)
    finally:
        await reader.close()
    return await _in_place(job, web, wanted, facts, kind)


async def from_stream(job: Job, source: Peeked, kind: Kind) -> Outcome:
    """Import the disk or archive of disks that `source` gives. Raises as `from_web`."""
    rest = await received(job, source, kind)
    return await rest()


async def received(job: Job, source: Peeked, kind: Kind) -> Callable[[], Awaitable[Outcome]]:
    """Take all of `source` and check that it can be a disk; the work that is left then.

    Raises as `from_web`.
    """
    if kind is DiskFormat.RAW:
        if len(await source.peek(HEAD_BYTES)) < HEAD_BYTES:
            raise ImportFailed(f"Unable to process data: a file of fewer than {HEAD_BYTES} bytes is no disk")
        await _write_raw(job, source)
        return lambda: finish(job, allocated=job.settings.preallocate)
    path = job.scratch_file()
    try:
        await _store(source, path, job.target.largest_file())
        checked = await _checked_file(job, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise

    async def rest() -> Outcome:
        try:
            return await _converted(job, checked)
        finally:
            path.unlink()

    return rest


async def raw(job: Job, source: Reader) -> Outcome:
    """Write `source` to the volume as it comes. Raises as `from_web`."""
    await _write_raw(job, source)
    return await finish(job, allocated=job.settings.preallocate)


async def finish(job: Job, *, allocated: bool) -> Outcome:
    """Give the disk its size and put it on the disk. Raises ImportFailed, OSError."""
    target = job.target
    if not target.is_device:
        await qemu.grow(target, target.available(), preallocate=job.settings.preallocate)
    await settle(job)
    return Outcome(preallocation_applied=allocated)


async def unpacked(target: Target, source: Reader) -> None:
    """Make the files of an archive the volume's only ones, or leave none. Raises ImportFailed, OSError."""
    from virtplane.storage.cdi.importer import archives

    await asyncio.to_thread(target.empty)
    try:
        await archives.unpack(source, target.path.parent)
        # What tar does not read (the padding behind the archive) belongs to the checksum, too.
        await drain(source)
    except BaseException:
        await asyncio.to_thread(target.empty)
        raise


def counted(job: Job, source: Reader, size: int | None) -> Reader:
    """`source`, whose bytes are told as progress of `size`."""
    return Counted(source, _Tell(job.progress, size))


async def write_raw(job: Job, source: Reader) -> None:
    """Write `source` to the volume as it comes, and close it. Raises ImportFailed, OSError."""
    try:
        await _write_raw(job, source)
    finally:
        await source.close()


CheckBacking = Callable[[str], None]
"""Raises ImportFailed for the name of a backing file on which a delta does not rest."""


def check_base(job: Job) -> None:
    """Raise ImportFailed where no earlier stage has left a disk."""
    if not job.target.is_device and not job.target.path.is_file():
        raise ImportFailed(
            "Unable to process data: Disk image does not exist, cannot apply deltas for warm migration"
        )


async def received_delta(
    job: Job, web: Web, wanted: WebObject, check: CheckBacking
) -> Callable[[], Awaitable[Outcome]]:
    """Take all of a qcow2 delta into scratch space, and see that it is one; the work that is left then.

    Raises as `from_web`.
    """
    path = job.scratch_file()
    download = await web.open(wanted)
    reader = counted(job, download, download.facts.size)
    try:
        await _store(reader, path, job.target.largest_file())
        header = _read_at(path, 0, headers.HEADER_BYTES)
        if recognise(header[:HEAD_BYTES]) is not DiskFormat.QCOW2:
            raise ImportFailed("Unable to process data: the delta of a snapshot is no qcow2 image")
        try:
            check(headers.check_delta(header))
        except headers.UnsafeImage as error:
            raise ImportFailed(f"Unable to process data: Image is invalid because {error}") from error
        size = await qemu.virtual_size(FileImage(path), DiskFormat.QCOW2, may_have_backing=True)
        job.target.check_fits(size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        await reader.close()

    async def rest() -> Outcome:
        try:
            await qemu.merge(path, job.target, job.conversion, job.progress.tell)
        finally:
            path.unlink()
        await settle(job)
        return Outcome()

    return rest


async def settle(job: Job) -> None:
    """Put a disk that has its size already on the disk. Raises OSError."""
    await asyncio.to_thread(job.target.finish)
    job.progress.tell(100.0)


async def copied(job: Job, image: Image, disk_format: DiskFormat) -> bool:
    """Write a disk that a program serves to the volume; whether all of it was allocated.

    Raises ImportFailed.
    """
    job.target.check_fits(await qemu.virtual_size(image, disk_format))
    await asyncio.to_thread(job.target.clear)
    return await qemu.convert(image, disk_format, job.target, job.conversion, job.progress.tell)


class FileReader:
    """A reader of a local file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._file.read, 1 << 20)

    async def close(self) -> None:
        self._file.close()


async def _archive(job: Job, reader: Reader) -> Outcome:
    if job.target.is_device:
        raise ImportFailed("Unable to process data: an archive needs a file system")
    peeked, _, _ = await peel(reader)
    await unpacked(job.target, peeked)
    job.progress.tell(100.0)
    return Outcome()


async def _in_place(job: Job, web: Web, wanted: WebObject, facts: Facts, kind: Kind) -> Outcome:
    """Convert a disk that stays on its server."""
    from virtplane.storage.cdi.importer.remote_disk import RemoteDisk, RemoteReader, exported

    disk = RemoteDisk(web, wanted, facts, lambda _: None)
    async with exported(disk) as nbd:
        image: Image = nbd
        header = await disk.beginning()
        if kind is Container.TAR:
            kind = DiskFormat.RAW
            if part := await _part(RemoteReader(disk), nbd):
                last = min(part.size, headers.HEADER_BYTES) + part.offset - 1
                image, header = part, await disk.range(part.offset, last)
                disk.pin(part.offset, header)
                kind = _disk_in_archive(header[:HEAD_BYTES])
        return await _converted(job, await _checked(job, image, kind, header))


@dataclass(frozen=True, slots=True)
class _Checked:
    """An image that names no other file and fits."""

    image: Image
    disk_format: DiskFormat


async def _checked_file(job: Job, path: Path) -> _Checked:
    """The disk in the file `path`, or in the archive that it is. Raises ImportFailed."""
    whole, header = FileImage(path), _read_at(path, 0, headers.HEADER_BYTES)
    kind = recognise(header[:HEAD_BYTES])
    if kind is not Container.TAR:
        return await _checked(job, whole, kind, header)
    part = await _part(FileReader(path), whole)
    if part is None:
        return await _checked(job, whole, DiskFormat.RAW, header)
    header = _read_at(path, part.offset, min(part.size, headers.HEADER_BYTES))
    return await _checked(job, part, _disk_in_archive(header[:HEAD_BYTES]), header)


async def _checked(job: Job, image: Image, kind: Kind, header: bytes) -> _Checked:
    if not isinstance(kind, DiskFormat):
        raise ImportFailed("Unable to process data: a disk inside an archive must not be compressed")
    try:
        headers.check(kind, header)
    except headers.UnsafeImage as error:
        raise ImportFailed(f"Unable to process data: Image is invalid because {error}") from error
    job.target.check_fits(await qemu.virtual_size(image, kind))
    return _Checked(image, kind)


async def _converted(job: Job, checked: _Checked) -> Outcome:
    await asyncio.to_thread(job.target.clear)
    allocated = await qemu.convert(
        checked.image, checked.disk_format, job.target, job.conversion, job.progress.tell
    )
    return await finish(job, allocated=allocated)


async def _write_raw(job: Job, source: Reader) -> None:
    settings, target = job.settings, job.target
    await asyncio.to_thread(target.clear)
    await target.write(source, sparse=not settings.preallocate, drop_cache=settings.direct_io)


async def _part(reader: Reader, image: FileImage | NbdImage) -> Part | None:
    """Where the first disk in an archive (an OVA) lies. One without disks is a raw disk: None."""
    from virtplane.storage.cdi.importer import archives

    entries = archives.TarEntries(reader)
    try:
        entry = await archives.find(entries, lambda name: name.lower().endswith(_DISK_SUFFIXES))
    finally:
        await entries.close()
    return None if entry is None else Part(image, entry.offset, entry.size)


def _disk_in_archive(head: bytes) -> Kind:
    kind = recognise(head)
    if kind is Container.TAR:
        raise ImportFailed("Unable to process data: the archive's disk is an archive itself")
    return kind


async def _store(source: Reader, path: Path, most: int) -> None:
    """Write all of `source` to the scratch volume, from its beginning: at most `most` bytes.

    A scratch volume in a folder of a node may have no other end. Raises TooLarge.
    """
    left = most
    with path.open("wb", buffering=0) as file:

        def write(_offset: int, pieces: list[bytes]) -> None:
            for piece in pieces:
                _write_all(file.fileno(), piece)

        async with WriteBehind(write) as behind:
            while piece := await source.read():
                left -= len(piece)
                if left < 0:
                    raise TooLarge(
                        "Unable to process data: the file is larger than the reported available storage "
                        f"{most}. A larger PVC is required"
                    )
                await behind.add(piece)


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_at(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


@dataclass(frozen=True, slots=True)
class _Tell:
    """Turns bytes into the percentage of a known size."""

    progress: Progress
    size: int | None

    def __call__(self, done: int) -> None:
        if self.size:
            self.progress.tell(100.0 * done / self.size)
