"""The upload server's paths: who may send, what is taken, what is answered (CDI's upload server)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

import aiohttp
from aiohttp import web

from virtplane.storage.cdi.importer import archives, pipeline
from virtplane.storage.cdi.importer.http import next_piece
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome, ScratchNeeded, TooLarge
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.settings import Content
from virtplane.storage.cdi.importer.streams import PIECE, Peeked, Reader, peel
from virtplane.storage.cdi.importer.target import DISK_FILE

_log = logging.getLogger(__name__)

CONTENT_HEADER = "x-cdi-content-type"
FILESYSTEM_CLONE = "filesystem-clone"
BLOCK_CLONE = "blockdevice-clone"

_VERSIONS = ("v1beta1", "v1alpha1")


class State(Enum):
    """What the server is doing."""

    WAITING = auto()
    BUSY = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Uploaded:
    """How the upload ended."""

    outcome: Outcome
    clone: bool


Rest = Callable[[], Awaitable[Outcome]]


class UploadServer:
    """Takes one upload for `job` from the client whose certificate has the name `client`."""

    def __init__(self, job: Job, client: str) -> None:
        self._job, self._client = job, client
        self.state = State.WAITING
        self.uploaded: asyncio.Future[Uploaded] = asyncio.get_running_loop().create_future()
        self._background: asyncio.Task[None] | None = None

    def application(self) -> web.Application:
        """The paths of both versions."""
        application = web.Application(client_max_size=0)
        add = application.router.add_route
        add("GET", "/healthz", _healthy)
        for version in _VERSIONS:
            add("*", f"/{version}/upload", self._handler(_body, wait=True))
            add("*", f"/{version}/upload-async", self._handler(_body, wait=False))
            add("*", f"/{version}/upload-form", self._handler(_form, wait=True))
            add("*", f"/{version}/upload-form-async", self._handler(_form, wait=False))
            add("*", f"/{version}/upload-archive", self._handler(_body, wait=True, archive=True))
        return application

    async def close(self) -> None:
        """Wait for what goes on after an answer."""
        if self._background is not None:
            await self._background

    def _handler(
        self,
        body: Callable[[web.Request], Awaitable[Reader | None]],
        *,
        wait: bool,
        archive: bool = False,
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            refusal = self._refusal(request, may_ask=not wait)
            if refusal is not None:
                return web.Response(status=refusal)
            self.state = State.BUSY
            taken = False
            try:
                content = await body(request)
                if content is None:
                    return web.Response(status=400)
                rest = await self._receive(request, content, archive=archive)
                if wait:
                    self._finished(await rest(), request)
                else:
                    self._background = asyncio.create_task(self._later(rest, request))
                taken = True
            except (ImportFailed, ScratchNeeded, OSError, aiohttp.ClientError) as error:
                return _failed(error)
            finally:
                if not taken:
                    self.state = State.WAITING
            return web.Response(status=200)

        return handle

    def _refusal(self, request: web.Request, *, may_ask: bool) -> int | None:
        """The status of a request that may not upload; 200 for one that only asks whether it could."""
        if request.method != "POST" and not (may_ask and request.method == "HEAD"):
            return 404
        if self._client not in _common_names(request):
            _log.warning("refused a client whose certificate is not that of %s", self._client)
            return 401
        if self.state is State.BUSY:
            return 503
        if self.state is State.DONE:
            return 409
        return 200 if request.method == "HEAD" else None

    async def _receive(self, request: web.Request, content: Reader, *, archive: bool) -> Rest:
        """Take all of `content`; what is left to do. Raises ImportFailed, ScratchNeeded, OSError."""
        peeked, kind, _ = await peel(content)
        clone = request.headers.get(CONTENT_HEADER, "")
        try:
            if clone == BLOCK_CLONE:
                outcome = await pipeline.raw(self._job, peeked)
            elif clone == FILESYSTEM_CLONE and self._job.target.is_device:
                outcome = await self._disk_of_archive(peeked)
            elif archive or clone == FILESYSTEM_CLONE or self._job.settings.content is Content.ARCHIVE:
                outcome = await self._unpacked(peeked)
            else:
                return await pipeline.received(self._job, peeked, kind)
        finally:
            await peeked.close()
        return lambda: _settled(outcome)

    async def _disk_of_archive(self, source: Peeked) -> Outcome:
        async with archives.extracted(source, DISK_FILE) as disk:
            return await pipeline.raw(self._job, disk)

    async def _unpacked(self, source: Peeked) -> Outcome:
        if self._job.target.is_device:
            raise ImportFailed("an archive needs a file system")
        await pipeline.unpacked(self._job.target, source)
        return Outcome()

    async def _later(self, rest: Rest, request: web.Request) -> None:
        try:
            self._finished(await rest(), request)
        except Exception as error:  # whatever it is: a server that stays busy never ends
            _log.error("the upload failed: %s", str(error) or type(error).__name__)
            if not self.uploaded.done():
                self.uploaded.set_exception(error)

    def _finished(self, outcome: Outcome, request: web.Request) -> None:
        self.state = State.DONE
        clone = request.headers.get(CONTENT_HEADER, "") in (FILESYSTEM_CLONE, BLOCK_CLONE)
        if not self.uploaded.done():
            self.uploaded.set_result(Uploaded(outcome, clone))


class _Body:
    """A request's body as a reader."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def read(self) -> bytes:
        return await next_piece(self._content)

    async def close(self) -> None:
        return None


class _Field:
    """A field of a form as a reader."""

    def __init__(self, part: aiohttp.BodyPartReader) -> None:
        self._part = part

    async def read(self) -> bytes:
        return await self._part.read_chunk(PIECE)

    async def close(self) -> None:
        return None


async def _settled(outcome: Outcome) -> Outcome:
    return outcome


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="OK")


async def _body(request: web.Request) -> Reader | None:
    return _Body(request.content)


async def _form(request: web.Request) -> Reader | None:
    """The field ``file`` of a multipart form."""
    if not request.content_type.startswith("multipart/"):
        return None
    try:
        form = await request.multipart()
        while (part := await form.next()) is not None:
            if isinstance(part, aiohttp.BodyPartReader) and part.name == "file":
                return _Field(part)
    except ValueError:
        pass
    return None


_NO_ROOM = "effective image size is larger than the reported available storage: "


def _failed(error: Exception) -> web.Response:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    is_too_large = full or isinstance(error, TooLarge)
    why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
    text = f"Saving stream failed: {_NO_ROOM if is_too_large else ''}{why}"
    _log.error("the upload failed: %s", text)
    return web.Response(status=400 if is_too_large else 500, text=text)


def _common_names(request: web.Request) -> list[str]:
    """The common names of the client's certificate, which TLS has verified; none without one."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return []
    return [
        value for names in certificate.get("subject", ()) for name, value in names if name == "commonName"
    ]
