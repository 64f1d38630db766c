"""Proxied requests without an upgrade: request and response streamed through."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from kubecore import errors

from ..bounded import read_whole
from .rewriting import ProxyPlace, recoder
from .target import Target, forwarded_headers

_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS = 30.0
_FETCHED_BYTES = 3 * 1024 * 1024
"""How much the server itself reads of a response."""
_SKIPPED = frozenset({"connection", "keep-alive", "transfer-encoding", "trailer", "upgrade"})


class Forwarder:
    """Keeps upstream connections open between requests. The server must ``close`` it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all upstream connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    async def forward(
        self, request: web.BaseRequest, target: Target, *, place: ProxyPlace | None = None
    ) -> web.StreamResponse:
        """The upstream server's response, passed on as it comes. Raises StatusError (503).

        Where the server appears at a `place` of its own, its links and redirects are made to lead there.
        """
        headers = forwarded_headers(request.headers.items(), target.headers)
        data = request.content if request.body_exists else None
        if data is not None and request.content_length is not None:
            headers["Content-Length"] = str(request.content_length)
        async with await self._request(request.method, target, headers=headers, data=data) as upstream:
            return await self.pass_on(request, upstream, place)

    @asynccontextmanager
    async def open(self, target: Target) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a GET made by the server itself, its body to be read. Raises StatusError (503)."""
        async with await self._request("GET", target) as upstream:
            yield upstream

    async def _request(
        self,
        method: str,
        target: Target,
        *,
        headers: CIMultiDict[str] | None = None,
        data: aiohttp.StreamReader | None = None,
    ) -> aiohttp.ClientResponse:
        try:
            return await self._open().request(
                method,
                target.url,
                headers=headers,
                data=data,
                ssl=target.tls if target.tls is not None else True,
                server_hostname=target.server_name or None if target.tls is not None else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.service_unavailable(f"error trying to reach service: {error}") from error

    async def fetch(
        self, target: Target, *, headers: dict[str, str], timeout_seconds: float
    ) -> tuple[int, bytes]:
        """(status, body) of a GET made by the server itself. Raises aiohttp.ClientError, OSError, TooLong."""
        status, _, body = await self.fetch_tagged(target, headers=headers, timeout_seconds=timeout_seconds)
        return status, body

    async def fetch_tagged(
        self, target: Target, *, headers: dict[str, str], timeout_seconds: float
    ) -> tuple[int, str, bytes]:
        """The same with the answer's ``ETag`` in the middle, empty without one."""
        async with self._open().get(
            target.url,
            headers=headers,
            ssl=target.tls if target.tls is not None else True,
            server_hostname=target.server_name or None if target.tls is not None else None,
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            allow_redirects=False,
        ) as response:
            body = await read_whole(response.content, _FETCHED_BYTES)
            return response.status, response.headers.get("ETag", ""), body

    @staticmethod
    async def pass_on(
        request: web.BaseRequest, upstream: aiohttp.ClientResponse, place: ProxyPlace | None = None
    ) -> web.StreamResponse:
        """Send what `upstream` answers as it comes, with links and redirects that lead to `place`."""
        kept: CIMultiDict[str] = CIMultiDict()
        for name, value in upstream.headers.items():
            if name.lower() not in _SKIPPED:
                kept.add(name, value)
        recode = None
        if place is not None and "Location" in kept:
            kept["Location"] = place.rewrite(kept["Location"])
        elif place is not None and request.method != "HEAD":
            recode = recoder(place, kept.get("Content-Type", ""), kept.get("Content-Encoding", ""))
            if recode is not None:
                kept.popall("Content-Length", None)
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=kept)
        if "Content-Length" not in kept and request.method != "HEAD":
            response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"")
        try:
            async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                for piece in [chunk] if recode is None else recode.feed(chunk):
                    await response.write(piece)
        except (aiohttp.ClientError, asyncio.IncompleteReadError, zlib.error):
            # Abort: a truncated response must not look complete.
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof(b"" if recode is None else recode.finish())
        return response
