"""Making, growing and removing volumes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from kubecore import loop_devices
from virtplane.storage.hostpath import images, mounts, trees, usage
from virtplane.storage.hostpath.failures import Code, CsiFailure, invalid, not_found
from virtplane.storage.hostpath.locks import locked
from virtplane.storage.hostpath.pool import (
    BLOCK,
    DIRECTORY,
    FILE_SYSTEM,
    IMAGE,
    Content,
    Pool,
    Volume,
    is_identifier,
    now,
    put,
    sync_folder,
    write_record,
)
from virtplane.storage.hostpath.requests import NewVolume, Range, aligned

_RELEASE_SECONDS = 2.0
_STEP_SECONDS = 0.02


def find(pools: Mapping[str, Pool], identifier: str) -> tuple[Pool, Volume] | None:
    """A volume and its pool. Raises OSError."""
    if not is_identifier(identifier):
        return None
    for pool in pools.values():
        volume = pool.volume(identifier)
        if volume is not None:
            return pool, volume
    return None


def existing(pools: Mapping[str, Pool], identifier: str) -> tuple[Pool, Volume]:
    """As `find`. Raises CsiFailure where there is none."""
    found = find(pools, identifier)
    if found is None or not found[1].is_whole:
        raise not_found(f"volume {identifier[:128]} not found")
    return found


def create(pools: Mapping[str, Pool], pool: Pool, wanted: NewVolume) -> Volume:
    """Make a volume, or find the one that an earlier call made. Raises CsiFailure, OSError."""
    if pool.directory(wanted.id) == pool.snapshots:
        raise invalid(f"name {wanted.id} is that of the pool's snapshots")
    if wanted.content.format == IMAGE and wanted.is_multi_node and not pool.info.shared:
        raise invalid(f"storage pool {pool.name} is not shared: its volumes can be used on one node only")
    found = find(pools, wanted.id)
    if found is None:
        with pool.making(f"volume {wanted.id}"):
            found = find(pools, wanted.id)
            if found is None:
                make = _make_image if wanted.content.format == IMAGE else _begin_directory
                make(pool, wanted, _source(pools, wanted))
                found = find(pools, wanted.id)
        if found is None:
            raise CsiFailure(Code.ABORTED, f"volume {wanted.id} was deleted while it was created")
    there, volume = found
    there.sync(volume.id)
    difference = "storage pool" if there is not pool else _difference(volume, wanted)
    if difference:
        raise CsiFailure(
            Code.ALREADY_EXISTS, f"volume {wanted.id} already exists with a different {difference}"
        )
    return volume if volume.is_whole else _finish_directory(pool, volume, _source(pools, wanted))


def expand(pool: Pool, volume: Volume, sizes: Range) -> Volume:
    """Make a volume larger; the record first, so that an interrupted call goes on.

    Raises CsiFailure, OSError.
    """
    if not volume.is_recorded:
        return volume
    with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
        volume = pool.volume(volume.id) or volume
        content = volume.content
        size = aligned(sizes.required) if content.format == IMAGE else sizes.required
        if 0 < sizes.limit < max(size, content.size):
            problem = f"would have {max(size, content.size)} bytes, but the limit is {sizes.limit}"
            raise CsiFailure(Code.OUT_OF_RANGE, f"volume {volume.id} {problem}")
        if size > content.size:
            _check_size(pool, size)
            volume = msgspec.structs.replace(volume, content=msgspec.structs.replace(content, size=size))
            pool.write_volume(volume)
        else:
            pool.sync(volume.id)
        if content.format == IMAGE:
            images.resize(pool.image(volume.id), _length(volume.content))
    return volume


def delete(pool: Pool, volume: Volume) -> None:
    """Remove a volume that nobody uses. Raises CsiFailure: FAILED_PRECONDITION while it is used; OSError."""
    if not volume.is_recorded:
        pool.discard(pool.directory(volume.id))
        return
    folder = pool.record_folder(volume.id)
    with locked(folder, f"volume {volume.id}"):
        if volume.content.format == DIRECTORY:
            pool.discard(pool.directory(volume.id))
        else:
            _release(pool, volume)
        pool.discard(folder)


def end_ephemeral(pool: Pool, volume: Volume) -> None:
    """End an inline volume with its pod, whose node does not wait until its files are removed. Raises
    CsiFailure, OSError.
    """
    folder = pool.record_folder(volume.id)
    with locked(folder, f"volume {volume.id}"):
        pool.set_aside(pool.directory(volume.id))
        pool.set_aside(folder)


def create_ephemeral(pool: Pool, identifier: str) -> Volume:
    """An inline volume, made unless it is there. Raises CsiFailure, OSError."""
    volume = pool.volume(identifier)
    if volume is None:
        content = Content(format=DIRECTORY, mode=FILE_SYSTEM, fs_type="", size=0)
        volume = Volume(id=identifier, content=content, created=now(), is_ephemeral=True, is_whole=False)
        _put_record(pool, volume)
    if not volume.is_ephemeral:
        raise CsiFailure(Code.ALREADY_EXISTS, f"volume {identifier} already exists and is not an inline one")
    return volume if volume.is_whole else _finish_directory(pool, volume, None)


def _make_image(pool: Pool, wanted: NewVolume, source: _Source | None) -> None:
    content = wanted.content if source is None else _checked_copy(source, wanted)
    _check_size(pool, content.size)
    volume = Volume(
        id=wanted.id, content=content, created=now(), origin=wanted.origin, is_fresh=source is None
    )
    with pool.workplace() as place:
        folder = place / "new"
        folder.mkdir(mode=0o700)
        if source is None:
            images.make(folder / "disk", _length(content), content.fs_type or None)
        else:
            source.copy_image(folder / "disk")
            images.resize(folder / "disk", _length(content))
        write_record(folder, volume)
        put(folder, pool.record_folder(wanted.id))


def _begin_directory(pool: Pool, wanted: NewVolume, source: _Source | None) -> None:
    content = wanted.content if source is None else _checked_copy(source, wanted)
    _check_size(pool, content.size)
    volume = Volume(id=wanted.id, content=content, created=now(), origin=wanted.origin, is_whole=False)
    _put_record(pool, volume)


def _finish_directory(pool: Pool, volume: Volume, source: _Source | None) -> Volume:
    """Put a directory volume's files in its place, whatever an interrupted call left there."""
    with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
        volume = pool.volume(volume.id) or volume
        if volume.is_whole:
            return volume
        with pool.workplace() as place:
            if source is None:
                (place / "data").mkdir()
            else:
                trees.copy(source.path, place / "data")
                mounts.sync_file_system(place / "data")
            # Whatever the umask, and whatever the source was: tenants of all users write here.
            (place / "data").chmod(0o777)
            with suppress(FileNotFoundError):
                pool.directory(volume.id).rename(place / "left")
            (place / "data").rename(pool.directory(volume.id))
            sync_folder(pool.folder)
        volume = msgspec.structs.replace(volume, is_whole=True)
        pool.write_volume(volume)
    return volume


def _put_record(pool: Pool, volume: Volume) -> None:
    with pool.workplace() as place:
        folder = place / "new"
        folder.mkdir(mode=0o700)
        write_record(folder, volume)
        put(folder, pool.record_folder(volume.id))


class _Source:
    """What a volume is copied from."""

    def __init__(self, path: Path, content: Content, live: tuple[Pool, Volume] | None) -> None:
        self.path = path
        self.content = content
        self._live = live

    def copy_image(self, target: Path) -> None:
        """Copy it. Raises CsiFailure, OSError, images.CannotShare."""
        if self._live is not None:
            usage.copy_image(*self._live, target)
            return
        try:
            images.clone(self.path, target)
        except images.CannotShare:
            images.copy(self.path, target)


def _source(pools: Mapping[str, Pool], wanted: NewVolume) -> _Source | None:
    if wanted.snapshot:
        for there in pools.values():
            snapshot = there.snapshot(wanted.snapshot) if is_identifier(wanted.snapshot) else None
            if snapshot is not None and there.snapshots is not None:
                part = "disk" if snapshot.content.format == IMAGE else "data"
                return _Source(there.snapshots / snapshot.id / part, snapshot.content, None)
        raise not_found(f"snapshot {wanted.snapshot[:128]} not found, unable to restore into volume")
    if not wanted.volume:
        return None
    there, volume = existing(pools, wanted.volume)
    if volume.content.format == DIRECTORY:
        return _Source(there.directory(volume.id), volume.content, None)
    return _Source(there.image(volume.id), volume.content, (there, volume))


def _checked_copy(copied: _Source, wanted: NewVolume) -> Content:
    """The content of a volume that is a copy: that of its source, in the size that is wanted."""
    source = copied.content
    for name, has, wants in (
        ("volume format", source.format, wanted.content.format),
        ("volume mode", source.mode, wanted.content.mode),
    ):
        if has != wants:
            raise invalid(f"the {name} of the source is {has}, that of the volume is to be {wants}")
    size = max(source.size, wanted.content.size)
    if source.format == IMAGE and not wanted.range.allows(size):
        raise CsiFailure(
            Code.OUT_OF_RANGE, f"the source has {source.size} bytes, but the limit is {wanted.range.limit}"
        )
    return msgspec.structs.replace(source, size=size)


def _difference(volume: Volume, wanted: NewVolume) -> str:
    if not volume.is_recorded:
        return "origin" if wanted.origin else ""
    content = volume.content
    if content.format != wanted.content.format:
        return "format"
    if content.mode != wanted.content.mode:
        return "mode"
    if volume.origin != wanted.origin:
        return "source"
    if content.format == IMAGE:
        # A copy keeps its source's file system.
        if not volume.origin and content.fs_type != wanted.content.fs_type:
            return "file system"
        return "" if wanted.range.allows(content.size) else "capacity"
    return "" if content.size >= wanted.range.required and wanted.range.allows(content.size) else "capacity"


def _length(content: Content) -> int:
    return images.file_size(content.size, has_file_system=bool(content.fs_type))


def _check_size(pool: Pool, size: int) -> None:
    space = pool.space()
    total = space.f_blocks * space.f_frsize
    if size > total:
        raise CsiFailure(
            Code.OUT_OF_RANGE,
            f"a volume of {size} bytes is larger than storage pool {pool.name}, which has {total}",
        )


def _release(pool: Pool, volume: Volume) -> None:
    """Detach an image's loop device, unless somebody has it open.

    Programs that look at all devices (udev, losetup) have each open for a moment: they are waited for.
    """
    deadline = time.monotonic() + _RELEASE_SECONDS
    with pool.image(volume.id).open("rb") as file:
        while _detach(file.fileno(), volume):
            if time.monotonic() >= deadline:
                users = ", ".join(usage.users(pool, volume.id)) or "this node"
                raise CsiFailure(Code.FAILED_PRECONDITION, f"volume {volume.id} is still in use on {users}")
            time.sleep(_STEP_SECONDS)


def _detach(image: int, volume: Volume) -> bool:
    """Try to detach an image; gives whether it is still attached, as before."""
    loop = loop_devices.find(image, usage.tail(volume.id))
    if loop is None:
        return False
    with loop:
        loop.detach()
    loop = loop_devices.find(image, usage.tail(volume.id))
    if loop is None:
        return False
    with loop:
        if volume.content.mode == BLOCK:
            loop.keep()
    return True
