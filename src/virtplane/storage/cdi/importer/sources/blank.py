"""Blank disks."""

from __future__ import annotations

import asyncio
import os

from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.pipeline import Job, finish
from virtplane.storage.cdi.importer.settings import Content

_ZEROS = bytes(1 << 20)


async def blank(job: Job) -> Outcome:
    """A disk of zeros that fills the volume. Raises ImportFailed, OSError."""
    if job.settings.content is Content.ARCHIVE:
        raise ImportFailed("Cannot create empty disk with content type archive")
    await asyncio.to_thread(job.target.clear)
    if not job.target.is_device:
        job.target.path.touch()
    elif job.settings.preallocate:
        await asyncio.to_thread(_fill, job)
    return await finish(job, allocated=job.settings.preallocate)


def _fill(job: Job) -> None:
    size = job.target.available()
    with job.target.path.open("r+b", buffering=0) as device:
        for offset in range(0, size, len(_ZEROS)):
            os.pwrite(device.fileno(), _ZEROS[: size - offset], offset)
