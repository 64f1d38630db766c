"""Disks of oVirt: an image transfer of the engine, read at imageio. Deltas are applied in place."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator, Sequence

import aiohttp
import msgspec
from yarl import URL

from virtplane.storage.cdi.importer import ovirt, pipeline
from virtplane.storage.cdi.importer.http import Unavailable, Web, WebObject, address, reason
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.ovirt import Disk, Engine, EngineError, Snapshot, Transfer, failed
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.streams import PIECE

_EXTENTS_BYTES = 16 << 20
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0
_ZEROS = bytes(PIECE)


class Extent(msgspec.Struct, frozen=True):
    """A run of a disk's bytes that are zeros, or are not known to be."""

    start: int
    length: int
    zero: bool = False


class _Options(msgspec.Struct, frozen=True):
    features: tuple[str, ...] = ()


async def from_imageio(job: Job, web: Web) -> Outcome:
    """Import a disk, a layer of it, or what one layer adds to another. Raises ImportFailed, ScratchNeeded,
    OSError.
    """
    settings = job.settings
    endpoint = address(settings.endpoint.rstrip("/"), "imageio")
    is_delta = bool(settings.current_checkpoint and settings.previous_checkpoint)
    if is_delta:
        pipeline.check_base(job)
        job.scratch_file()
    async with ovirt.session(web, endpoint, settings.access_key, settings.secret_key) as engine:
        disk, source = await _source(engine, settings.disk_id, settings.current_checkpoint)
        image_format = ovirt.QCOW2 if is_delta else ovirt.RAW
        async with ovirt.transferring(engine, source, image_format) as transfer:
            url = await _reachable(web, transfer)
            if is_delta:
                rest = await pipeline.received_delta(job, web, _object(url), _is_expected(job))
            else:
                await _write(job, web, url, disk.size_bytes)
    # The engine's disk is free while ours is finished.
    if is_delta:
        return await rest()
    return await pipeline.finish(job, allocated=settings.preallocate)


async def _source(engine: Engine, name: str, checkpoint: str) -> tuple[Disk, Disk | Snapshot]:
    try:
        disk = await engine.disk(name)
    except EngineError as error:
        raise failed(f"error fetching disk {name}: {error}") from error
    if not checkpoint:
        return disk, disk
    try:
        found = await engine.snapshot(disk, checkpoint)
    except EngineError as error:
        raise failed(f"error listing snapshots of disk {name}: {error}") from error
    if found is None and disk.image != checkpoint:
        raise failed(f"snapshot {checkpoint} not found")
    return disk, found or disk


def _is_expected(job: Job) -> pipeline.CheckBacking:
    previous = job.settings.previous_checkpoint

    def check(backing: str) -> None:
        name = posixpath.basename(backing)
        if name != previous:
            raise ImportFailed(
                f"Unable to process data: snapshot backing file '{name}' does not match expected checkpoint "
                f"'{previous}', unable to safely rebase snapshot"
            )

    return check


async def _reachable(web: Web, transfer: Transfer) -> URL:
    """Where the image can be read: at its host, or by the engine's proxy. Raises ImportFailed."""
    problem = ""
    for text in transfer.addresses:
        url = address(text, "imageio")
        try:
            await web.call("OPTIONS", url)
            return url
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = reason(error)
    raise failed(problem)


async def _write(job: Job, web: Web, url: URL, size: int) -> None:
    extents = await _extents(web, url)
    if extents is None:
        job.target.check_fits(size)
        await pipeline.write_raw(job, pipeline.counted(job, await web.open(_object(url)), size))
        return
    size = sum(each.length for each in extents)
    job.target.check_fits(size)
    await pipeline.write_raw(job, pipeline.counted(job, _Extents(web, _object(url), extents), size))


async def _extents(web: Web, url: URL) -> Sequence[Extent] | None:
    """Where the disk has data; None where the server does not tell. Raises ImportFailed."""
    try:
        _, content = await web.call("OPTIONS", url)
        if "extents" not in msgspec.json.decode(content, type=_Options).features:
            return None
        status, content = await web.call("GET", url / "extents", most=_EXTENTS_BYTES)
        if status != 200:
            return None
        extents = msgspec.json.decode(content, type=list[Extent])
    except msgspec.MsgspecError:
        return None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise failed(f"failed to query extents: {reason(error)}") from error
    position = 0
    for each in extents:
        if each.start != position or each.length <= 0:
            raise failed("the extents of the disk do not follow each other")
        position += each.length
    return extents


class _Extents:
    """A reader of a disk of which only the extents with data are asked for."""

    def __init__(self, web: Web, wanted: WebObject, extents: Sequence[Extent]) -> None:
        self._web, self._wanted = web, wanted
        self._pieces = self._read(extents)

    async def read(self) -> bytes:
        """As `Reader.read`. Raises ImportFailed."""
        return await anext(self._pieces, b"")

    async def close(self) -> None:
        await self._pieces.aclose()

    async def _read(self, extents: Sequence[Extent]) -> AsyncGenerator[bytes, None]:
        for extent in extents:
            position, end = extent.start, extent.start + extent.length
            while extent.zero and position < end:
                piece = _ZEROS[: end - position]
                position += len(piece)
                yield piece
            failures = 0
            while position < end:
                try:
                    get = self._web.get(self._wanted, first=position, last=end - 1)
                    async with get as response:
                        while position < end and (piece := await response.content.readany()):
                            piece = piece[: end - position]
                            position += len(piece)
                            failures = 0
                            yield piece
                    problem = "the server's answer is too short"
                except (Unavailable, aiohttp.ClientError, TimeoutError, OSError) as error:
                    problem = reason(error)
                if position < end:
                    failures += 1
                    if failures > _ATTEMPTS:
                        raise ImportFailed(f"Unable to process data: {problem}")
                    await asyncio.sleep(_PAUSE_SECONDS * 2 ** (failures - 1))


def _object(url: URL) -> WebObject:
    return WebObject(url, name="imageio")
