"""The upload server's process: one upload, told in the termination message."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import sys
from datetime import UTC, datetime

from aiohttp import web

from kubecore.logs import set_up_logging
from virtplane.storage.cdi import ending
from virtplane.storage.cdi.buffers import keep_freed_memory
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.progress import Progress
from virtplane.storage.cdi.importer.settings import log_level
from virtplane.storage.cdi.importer.target import find_target
from virtplane.storage.cdi.uploadserver.server import State, Uploaded, UploadServer
from virtplane.storage.cdi.uploadserver.settings import UploadSettings, read_upload_settings

_log = logging.getLogger(__name__)

DEADLINE_PASSED = "Deadline Passed"
_LATE_SECONDS = 1.0
"""How often to look, after the deadline, whether the client who was sending has failed."""


def main() -> int:
    """Take one upload by the environment."""
    set_up_logging("uploadserver", level=log_level(sys.argv[1:]))
    keep_freed_memory()
    try:
        settings = read_upload_settings(os.environ)
    except KeyError as error:
        _log.error("the environment variable %s is missing", error)
        return 1
    except (ImportFailed, ValueError) as error:
        _log.error("the environment makes no sense: %s", error)
        return 1
    try:
        text = ending.run(serve(settings))
        settings.volume.paths.termination.write_text(text)
    except ending.Ended:
        _log.error("the upload was ended from outside")
        return ending.EXIT_CODE
    except (ImportFailed, ValueError, OSError) as error:
        _log.error("UploadServer failed: %s", error)
        return 1
    return 0


async def serve(settings: UploadSettings) -> str:
    """Serve until the upload is complete or the certificates are too old; the termination message."""
    volume = settings.volume
    target = find_target(volume.paths.data, volume.paths.device, volume.size_bytes, volume.overhead)
    server = UploadServer(Job(volume, target, Progress(volume.owner_uid)), settings.client_name)
    # What is compressed is recognised by itself, whatever a header says.
    runner = web.AppRunner(server.application(), access_log=None, auto_decompress=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.address, settings.port, ssl_context=server_tls(settings)).start()
        uploaded = await _first(server, settings.deadline)
    finally:
        await server.close()
        await runner.cleanup()
    return message(uploaded)


def message(uploaded: Uploaded | None) -> str:
    """The termination message; None means that nobody came in time."""
    if uploaded is None:
        return json.dumps({"deadlinePassed": True, "message": DEADLINE_PASSED})
    text = "Clone Complete" if uploaded.clone else "Upload Complete"
    return Outcome(message=text, preallocation_applied=uploaded.outcome.preallocation_applied).text()


def server_tls(settings: UploadSettings) -> ssl.SSLContext:
    """TLS with the pod's certificate.

    Clients need none for the readiness probe; the others are checked later. Raises ValueError.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.client_authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(settings.certificate, settings.key)
    settings.tls.apply(context)
    return context


async def _first(server: UploadServer, deadline: datetime | None) -> Uploaded | None:
    """The upload, or None when the deadline passed while nobody was sending. Raises what made it fail."""
    while True:
        seconds = None if deadline is None else (deadline - datetime.now(UTC)).total_seconds()
        if seconds is not None and seconds <= 0 and server.state is State.WAITING:
            return None
        try:
            wait = None if seconds is None else max(seconds, _LATE_SECONDS)
            return await asyncio.wait_for(asyncio.shield(server.uploaded), wait)
        except TimeoutError:
            continue


if __name__ == "__main__":
    sys.exit(main())
