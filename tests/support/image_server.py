"""A web server with one file that can misbehave as servers do."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


@dataclass
class ServedFile:
    """What the server has, what it does wrong, and what it was asked.

    `breaks` are offsets at which a connection ends early, each once; `later` replaces the content after the
    first complete answer to a range.
    """

    content: bytes
    ranges: bool = True
    status: int = 200
    tag: str = '"one"'
    content_type: str = "application/octet-stream"
    breaks: list[int] = field(default_factory=list)
    claimed_length: int | None = None
    redirect: str = ""
    user: str = ""
    password: str = ""
    later: bytes = b""
    lets_in: Callable[[web.Request], bool] | None = None
    requests: list[web.Request] = field(default_factory=list)
    sent: int = 0

    def answers(self, method: str) -> int:
        """How many requests of `method` came."""
        return sum(1 for request in self.requests if request.method == method)


@asynccontextmanager
async def serving(file: ServedFile, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server on loopback that has `file`, whatever the path; with `tls` it speaks HTTPS."""

    async def answer(request: web.Request) -> web.StreamResponse:
        file.requests.append(request)
        if file.redirect and request.path == "/moved":
            return web.Response(status=302, headers={"Location": file.redirect})
        if file.user and not _authorized(file, request):
            return web.Response(status=401)
        if file.lets_in is not None and not file.lets_in(request):
            return web.Response(status=403)
        if file.status != 200:
            return web.Response(status=file.status)
        return await _send(file, request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _send(file: ServedFile, request: web.Request) -> web.StreamResponse:
    content, first, status = file.content, 0, 200
    last = len(content) - 1
    found = _RANGE.match(request.headers.get("Range", "")) if file.ranges else None
    fresh = request.headers.get("If-Range", file.tag) == file.tag
    headers = {"Content-Type": file.content_type} | ({"Accept-Ranges": "bytes"} if file.ranges else {})
    if file.tag:
        headers["ETag"] = file.tag
    if found and fresh:
        first, last, status = int(found[1]), min(int(found[2] or last), last), 206
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = file.claimed_length or last - first + 1
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    end = next((each for each in file.breaks if first <= each <= last), None)
    if end is not None:
        file.breaks.remove(end)
        await response.write(content[first:end])
        file.sent += end - first
        assert request.transport is not None
        request.transport.close()
        return response
    await response.write(content[first : last + 1])
    file.sent += last - first + 1
    if found and file.later:
        file.content, file.later = file.later, b""
    if file.claimed_length:
        assert request.transport is not None
        request.transport.close()
    return response


def _authorized(file: ServedFile, request: web.Request) -> bool:
    header = request.headers.get("Authorization", "")
    return header == aiohttp.encode_basic_auth(file.user, file.password, "utf-8")
