"""The cloner's process: a volume's files or bytes, compressed, to an upload server (CDI's clone source).

What the upload server gets is a tar or the disk itself behind zstd, which it recognises as it does for any
upload.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from kubecore.logs import set_up_logging
from virtplane.storage.cdi import ending
from virtplane.storage.cdi.importer.progress import Progress, served
from virtplane.storage.cdi.importer.settings import log_level
from virtplane.storage.cdi.uploadserver.server import BLOCK_CLONE, CONTENT_HEADER, FILESYSTEM_CLONE

_log = logging.getLogger(__name__)

_TERMINATION = Path("/dev/termination-log")
_KEY = "CLIENT_KEY"
_PIECE = 1 << 20
_BLOCK_MODE = "block"
_NOT_CLONED = "./lost+found"


class CloneFailed(Exception):
    """The clone cannot go on; the pod is restarted and tries again."""


@dataclass(frozen=True, slots=True)
class CloneSettings:
    """One clone: what is read, where it goes, and as whom."""

    source: Path
    is_device: bool
    url: str
    certificate: str
    key: str = field(repr=False)
    authority: str
    owner_uid: str
    preallocate: bool


def read_clone_settings(environment: Mapping[str, str]) -> CloneSettings:
    """The settings in `environment` (CDI's names). Raises KeyError for what is missing."""
    return CloneSettings(
        source=Path(environment["MOUNT_POINT"]),
        is_device=environment["VOLUME_MODE"].lower() == _BLOCK_MODE,
        url=environment["UPLOAD_URL"],
        certificate=environment["CLIENT_CERT"],
        key=environment[_KEY],
        authority=environment["SERVER_CA_CERT"],
        owner_uid=environment["OWNER_UID"],
        preallocate=environment.get("PREALLOCATION", "").lower() == "true",
    )


def main() -> int:
    """Send one volume by the environment."""
    set_up_logging("cloner", level=log_level(sys.argv[1:]))
    try:
        settings = read_clone_settings(os.environ)
    except KeyError as error:
        _log.error("the environment variable %s is missing", error)
        return 1
    os.environ.pop(_KEY)  # What runs beside us needs no secrets.
    try:
        text = ending.run(_run(settings))
        _TERMINATION.write_text(text)
    except ending.Ended:
        _log.error("the clone was ended from outside")
        return ending.EXIT_CODE
    except (CloneFailed, OSError) as error:
        _log.error("the clone failed: %s", error)
        return 1
    return 0


async def _run(settings: CloneSettings) -> str:
    progress = Progress(settings.owner_uid, "clone")
    async with served(progress):
        return await clone(settings, progress)


async def clone(settings: CloneSettings, progress: Progress) -> str:
    """Send the volume; the termination message. Raises CloneFailed, OSError."""
    total = await asyncio.to_thread(_size, settings)
    kind = BLOCK_CLONE if settings.is_device else FILESYSTEM_CLONE
    connector = aiohttp.TCPConnector(ssl=client_tls(settings))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
    async with (
        _packed(settings) as packed,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
    ):
        try:
            # All upload servers take this pod's certificate: none may send it to another tenant's.
            async with session.post(
                settings.url,
                data=_told(packed, progress, total),
                headers={CONTENT_HEADER: kind},
                allow_redirects=False,
            ) as answer:
                if answer.status >= 300:
                    text = (await answer.content.read(4096)).decode(errors="replace")
                    raise CloneFailed(f"Unexpected status code {answer.status} from {settings.url}: {text}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CloneFailed(f"POSTing to {settings.url}: {error}") from error
    progress.tell(100.0)
    return "Clone Complete, Preallocation applied" if settings.preallocate else "Clone Complete"


def client_tls(settings: CloneSettings) -> ssl.SSLContext:
    """TLS with the pod's certificate that trusts the upload servers' authority alone."""
    context = ssl.create_default_context(cadata=settings.authority)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_text(f"{settings.key}\n{settings.certificate}")
        context.load_cert_chain(path)
    return context


class _Packed:
    """What is sent, and how many bytes of the source it stands for."""

    def __init__(self, output: asyncio.StreamReader) -> None:
        self.output = output
        self.read_bytes = 0
        self.reading: asyncio.Task[None] | None = None


@asynccontextmanager
async def _packed(settings: CloneSettings) -> AsyncIterator[_Packed]:
    """The volume's bytes through zstd. Raises CloneFailed."""
    pipe = asyncio.subprocess.PIPE
    source = await asyncio.create_subprocess_exec(*_reader(settings), stdout=pipe, limit=2 * _PIECE)
    packer = await asyncio.create_subprocess_exec(
        "zstd", "-1", "-q", "-c", stdin=pipe, stdout=pipe, limit=2 * _PIECE
    )
    assert source.stdout is not None and packer.stdin is not None and packer.stdout is not None
    packed = _Packed(packer.stdout)
    packed.reading = asyncio.create_task(_feed(source, packer, packed))
    try:
        yield packed
    finally:
        packed.reading.cancel()
        for process in (source, packer):
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _feed(
    source: asyncio.subprocess.Process, packer: asyncio.subprocess.Process, packed: _Packed
) -> None:
    assert source.stdout is not None and packer.stdin is not None
    while piece := await source.stdout.read(_PIECE):
        packer.stdin.write(piece)
        await packer.stdin.drain()
        packed.read_bytes += len(piece)
    code = await source.wait()
    if code != 0:
        raise CloneFailed(f"reading the volume ended with code {code}")
    packer.stdin.close()


async def _told(packed: _Packed, progress: Progress, total: int) -> AsyncIterator[bytes]:
    """The packed bytes; what stops the reading of the volume also stops them, so that no half is taken as
    whole.
    """
    while piece := await packed.output.read(_PIECE):
        yield piece
        if total:
            progress.tell(100.0 * packed.read_bytes / total)
    assert packed.reading is not None
    await packed.reading


def _reader(settings: CloneSettings) -> list[str]:
    if settings.is_device:
        return ["cat", str(settings.source)]
    sparse = [] if settings.preallocate else ["--sparse"]
    return ["tar", "--create", *sparse, f"--exclude={_NOT_CLONED}", "-C", str(settings.source), "."]


def _size(settings: CloneSettings) -> int:
    """About how many bytes will be read."""
    if settings.is_device:
        with settings.source.open("rb") as device:
            return device.seek(0, os.SEEK_END)
    usage = os.statvfs(settings.source)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


if __name__ == "__main__":
    sys.exit(main())
