"""Images that the kubelet has pulled: a container beside the importer serves the disk that is in them.

That container is the user's image. What it writes into the shared folder is read with bounds, and follows no
link.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.sources.registry import labels_of

READY_SECONDS = 60.0
ENVIRONMENT_FILE = "environment"
"""Beside the ready file: the variables of the image, by which it can ask for labels."""
_POLL_SECONDS = 0.2
_DISK = "disk.img"
_NAME_BYTES = 255
_ENVIRONMENT_BYTES = 64 << 10


async def from_node(
    job: Job, fetch: Callable[[Job], Awaitable[Outcome]], ready_seconds: float = READY_SECONDS
) -> Outcome:
    """Import what the container serves. Raises ImportFailed and what `fetch` raises."""
    ready = Path(job.settings.ready_file)
    name = await _name(ready, ready_seconds)
    endpoint = job.settings.endpoint
    if name:
        endpoint = endpoint.removesuffix(_DISK) + quote(name, safe="")
    settings = dataclasses.replace(job.settings, endpoint=endpoint)
    outcome = await fetch(dataclasses.replace(job, settings=settings))
    environment = _content(ready.with_name(ENVIRONMENT_FILE), _ENVIRONMENT_BYTES) or ""
    return dataclasses.replace(outcome, labels=labels_of(tuple(environment.splitlines())))


def tell_done(path: str) -> None:
    """Let the container end. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666))


async def _name(ready: Path, seconds: float) -> str:
    """The name of the file that is served, once there is one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while (name := _content(ready, _NAME_BYTES)) is None:
        if loop.time() >= deadline:
            raise ImportFailed(f"Timeout waiting for file {ready}")
        await asyncio.sleep(_POLL_SECONDS)
    return name


def _content(path: Path, most: int) -> str | None:
    """The first bytes of a regular file; None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, most).decode(errors="replace")
    finally:
        os.close(descriptor)
