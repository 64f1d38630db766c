"""The importer's process: one import, told in the termination message.

Exit code 0 means that the controller has what it needs (also: a scratch volume is needed, the checksum is
wrong); 1 that the kubelet shall start the container again.

A module of one source or one kind of file is imported when it is the one: what the others need takes a tenth
of a second to load, in a pod with a part of a processor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable

from kubecore.logs import set_up_logging
from virtplane.storage.cdi import ending
from virtplane.storage.cdi.buffers import keep_freed_memory
from virtplane.storage.cdi.importer import pipeline
from virtplane.storage.cdi.importer.http import Web, WebObject, address
from virtplane.storage.cdi.importer.outcome import (
    ChecksumMismatch,
    ImportFailed,
    Outcome,
    ScratchNeeded,
    one_line,
)
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.progress import PORT, Progress, served_from
from virtplane.storage.cdi.importer.settings import (
    SECRETS,
    Content,
    Paths,
    Settings,
    log_level,
    read_settings,
)
from virtplane.storage.cdi.importer.target import find_target

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 1.0
"""After how long the import can be asked how far it is: controllers ask every two seconds."""


def main() -> int:
    """Run one import by the environment."""
    set_up_logging("importer", level=log_level(sys.argv[1:]))
    keep_freed_memory()
    return process(Paths(), PORT)


def process(paths: Paths, port: int) -> int:
    """Run one import by the environment on the volumes at `paths`, with metrics at `port`; the exit code."""
    try:
        settings = read_settings(os.environ, paths)
    except ImportFailed as error:
        _log.error("the import cannot begin: %s", error)
        return 1
    for name in SECRETS:
        os.environ.pop(name, None)  # What runs beside us needs no secrets.
    try:
        # What a source holds at its server (the transfer of an oVirt disk) is given back before the end.
        code, text = ending.run(_run(settings, port))
    except ending.Ended:
        _log.error("the import was ended from outside")
        return ending.EXIT_CODE
    try:
        settings.paths.termination.write_text(text)
    except OSError as error:
        _log.error("the termination message %r could not be written: %s", text, error)
        return 1
    return code


async def _run(settings: Settings, port: int) -> tuple[int, str]:
    progress = Progress(settings.owner_uid)
    async with served_from(_PROGRESS_SECONDS, progress, port):
        code, text = await attempt(settings, progress)
    if code == 0 and settings.done_file:
        from virtplane.storage.cdi.importer.sources.node import tell_done

        tell_done(settings.done_file)
    return code, text


async def attempt(settings: Settings, progress: Progress) -> tuple[int, str]:
    """The exit code and the termination message of one import."""
    target = find_target(settings.paths.data, settings.paths.device, settings.size_bytes, settings.overhead)
    job = Job(settings, target, progress)
    try:
        outcome = await run(job)
    except ScratchNeeded:
        return 0, Outcome(message="scratch space required and none found", scratch_space_required=True).text()
    except ChecksumMismatch as error:
        _log.error("the import ends: %s", error)
        await asyncio.to_thread(target.clear if settings.content is Content.KUBEVIRT else target.empty)
        return 0, Outcome(message=f"Unable to process data: {error}").text()
    except ImportFailed as error:
        _log.error("the import failed: %s", error)
        return 1, one_line(str(error))
    except OSError as error:
        _log.error("the import failed: %s", error)
        return 1, one_line(f"Unable to process data: {(error.strerror or str(error)).lower()}")
    _log.info("the import is complete: %s", outcome.message)
    return 0, outcome.text()


async def run(job: Job) -> Outcome:
    """Import what the job names. Raises ImportFailed, ScratchNeeded, ChecksumMismatch, OSError."""
    settings = job.settings
    source = _SOURCES.get(settings.source)
    if source is None:
        raise ImportFailed(f"Unknown data source: {settings.source}")
    return await source(job)


async def _from_http(job: Job) -> Outcome:
    if not job.settings.ready_file:
        return await _from_server(job)
    from virtplane.storage.cdi.importer.sources.node import from_node

    return await from_node(job, _from_server)


async def _from_server(job: Job) -> Outcome:
    settings = job.settings
    wanted = WebObject(
        address(settings.endpoint, "http"),
        user=settings.access_key,
        password=settings.secret_key,
        headers=settings.headers,
    )
    async with _web(settings) as web:
        return await pipeline.from_web(job, web, wanted)


async def _from_s3(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.s3 import s3_object

    _refuse_archive(job.settings)
    async with _web(job.settings) as web:
        return await pipeline.from_web(job, web, s3_object(job.settings))


async def _from_gcs(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.gcs import gcs_object

    _refuse_archive(job.settings)
    async with _web(job.settings) as web:
        return await pipeline.from_web(job, web, await gcs_object(job.settings, web))


async def _from_registry(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.registry import from_registry

    _refuse_archive(job.settings)
    return await from_registry(job)


async def _from_imageio(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.imageio import from_imageio

    _refuse_archive(job.settings)
    async with _web(job.settings) as web:
        return await from_imageio(job, web)


async def _from_vddk(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.vddk import from_vddk

    _refuse_archive(job.settings)
    return await from_vddk(job)


async def _blank(job: Job) -> Outcome:
    from virtplane.storage.cdi.importer.sources.blank import blank

    return await blank(job)


def _web(settings: Settings) -> Web:
    return Web(insecure=settings.insecure_tls, cert_folders=settings.cert_folders)


def _refuse_archive(settings: Settings) -> None:
    if settings.content.value == "archive":
        raise ImportFailed(f"Unable to process data: source {settings.source} has no content of type archive")


_SOURCES: dict[str, Callable[[Job], Awaitable[Outcome]]] = {
    "http": _from_http,
    "s3": _from_s3,
    "gcs": _from_gcs,
    "imageio": _from_imageio,
    "registry": _from_registry,
    "none": _blank,
    "vddk": _from_vddk,
}

if __name__ == "__main__":
    sys.exit(main())
