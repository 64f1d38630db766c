"""Objects on web servers: read from any offset, over redirects, again after a broken connection.

CDI's rules: a failed HEAD says nothing; GET must answer 200; credentials go along on redirects; no progress
for ten minutes ends a transfer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from virtplane.storage.cdi.buffers import read_more_at_once
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.proxies import proxy_for
from virtplane.storage.cdi.importer.streams import PIECE
from virtplane.storage.cdi.importer.trust import tls_context

_log = logging.getLogger(__name__)

USER_AGENT = "cdi-golang-importer"
"""CDI's own: servers of users tell imports by it."""
STALL_SECONDS = 600.0
_CONNECT_SECONDS = 60.0
_CALL_SECONDS = 120.0
_REDIRECTS = 10
_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({429, 500, 502, 503, 504})
"""Answers of servers that may be themselves again soon."""
_ATTEMPTS = 5
"""How often a broken transfer is taken up again without a byte of progress."""
_PAUSE_SECONDS = 1.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-")
_ANSWER_BYTES = 1 << 20
_EXPLANATION_BYTES = 1 << 14


Sign = Callable[[str, URL, Mapping[str, str]], Mapping[str, str]]
"""Headers that sign a request, by its method, address and other headers."""

Explain = Callable[[aiohttp.ClientResponse, bytes], str]
"""What an answer that is no object says, in the source's words; of its body there is the beginning."""


@dataclass(frozen=True, slots=True)
class WebObject:
    """Where an object is and what is sent along.

    `name` is the source's in messages (``http``, ``s3``, ...), where `problem` comes before what is wrong;
    `sign` is asked for each request, `explain` for refusals.
    """

    url: URL
    name: str = "http"
    user: str = ""
    password: str = ""
    headers: Sequence[tuple[str, str]] = ()
    sign: Sign | None = None
    problem: str = ""
    explain: Explain | None = None

    def failed(self, why: object) -> ImportFailed:
        """The error that the object cannot be reached."""
        return ImportFailed(f"Unable to connect to {self.name} data source: {self.problem}{why}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says of an object.

    `size` is unknown for some; `validator` changes when the object does.
    """

    size: int | None
    ranges: bool
    validator: str
    content_type: str = ""


class Unavailable(ImportFailed):
    """The server cannot answer now."""


class Web:
    """A client with the pod's certificates and proxies; a context manager.

    `tls` says itself whom to trust; `cookies` are sent back to APIs that have sessions.
    """

    def __init__(
        self,
        *,
        insecure: bool,
        cert_folders: Sequence[Path],
        tls: ssl.SSLContext | None = None,
        cookies: bool = False,
    ) -> None:
        self._insecure = insecure
        self._tls = tls or (tls_context(insecure=insecure, folders=cert_folders) if cert_folders else None)
        self._cookies = cookies

    async def __aenter__(self) -> Web:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=STALL_SECONDS)
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True) if self._cookies else aiohttp.DummyCookieJar(),
            timeout=timeout,
            auto_decompress=False,
            read_bufsize=PIECE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def facts(self, wanted: WebObject) -> Facts:
        """What HEAD tells of the object; nothing where the server does not answer it."""
        try:
            async with self._response(wanted, "HEAD", {}) as response:
                if response.status == 200:
                    return facts_of(response)
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        return Facts(None, False, "")

    @asynccontextmanager
    async def get(
        self, wanted: WebObject, *, first: int = 0, last: int | None = None, validator: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a GET of the whole object, or of its bytes from `first` to `last`.

        Raises ImportFailed for other answers than 200 or 206 (Unavailable if it may be another one soon),
        aiohttp.ClientError.
        """
        headers = {}
        ranged = first > 0 or last is not None
        if ranged:
            headers["Range"] = f"bytes={first}-{'' if last is None else last}"
            if validator:
                headers["If-Range"] = validator
        async with self._response(wanted, "GET", headers) as response:
            expected = 206 if ranged else 200
            if response.status != expected:
                failure = wanted.failed(await _explained(wanted, expected, response))
                raise Unavailable(str(failure)) if response.status in _PASSING else failure
            if ranged and not _begins_at(response, first):
                raise wanted.failed("the server answers with other bytes than it was asked for")
            if response.connection is not None:
                read_more_at_once(response.connection.transport)
            yield response

    async def post_form(self, url: URL, form: dict[str, str]) -> dict[str, object]:
        """The JSON object that answers a form. Raises aiohttp.ClientError, ValueError."""
        options = self._routed(url, {})
        async with self._session.post(url, data=form, raise_for_status=True, **options) as response:
            content = await response.content.read(_ANSWER_BYTES)
        try:
            document = json.loads(content)
        except RecursionError as error:
            raise ValueError("the answer is nested too deeply") from error
        if not isinstance(document, dict):
            raise ValueError("the answer is no JSON object")
        return document

    async def call(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int = _ANSWER_BYTES,
    ) -> tuple[int, bytes]:
        """Status and body of the answer to one call of an API.

        Raises aiohttp.ClientError, TimeoutError, ValueError where the body has more than `most` bytes.
        """
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
        content = bytearray()
        async with self._session.request(
            method, url, data=body, timeout=timeout, **self._routed(url, headers or {})
        ) as response:
            while piece := await response.content.readany():
                content += piece
                if len(content) > most:
                    raise ValueError("the answer is too long")
        return response.status, bytes(content)

    async def open(self, wanted: WebObject) -> Download:
        """Begin to read the object. Raises ImportFailed."""
        download = Download(self, wanted)
        await download.begin()
        return download

    @asynccontextmanager
    async def _response(
        self, wanted: WebObject, method: str, headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = wanted.url
        for _ in range(_REDIRECTS):
            own = self._headers(wanted, method, url, headers)
            response = await self._session.request(method, url, **self._routed(url, own))
            try:
                location = response.headers.get("Location", "")
                if response.status not in _REDIRECT_CODES or not location:
                    yield response
                    return
            finally:
                response.release()
            try:
                url = url.join(URL(location, encoded=True))
            except ValueError as error:
                raise aiohttp.InvalidURL(location) from error
            if url.scheme not in ("http", "https"):
                raise wanted.failed(f"a redirect leads to {url.scheme!r}")
        raise wanted.failed(f"stopped after {_REDIRECTS} redirects")

    def _headers(self, wanted: WebObject, method: str, url: URL, more: dict[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        downgraded = wanted.url.scheme == "https" and url.scheme == "http"
        if not downgraded:
            if wanted.user or wanted.password:
                headers["Authorization"] = aiohttp.encode_basic_auth(wanted.user, wanted.password, "utf-8")
            for name, value in wanted.headers:
                headers.add(name, value)
            if wanted.sign is not None:
                headers.update(wanted.sign(method, url, more))
        headers.update(more)
        return headers

    def _routed(self, url: URL, headers: Mapping[str, str]) -> dict[str, Any]:
        """Options of a request that goes through the environment's proxy; a redirect is an answer.

        A proxy that makes a tunnel is asked with headers of its own, any other one reads those of the
        request.
        """
        proxy = proxy_for(url, os.environ)
        options: dict[str, Any] = {"headers": CIMultiDict(headers), "allow_redirects": False}
        if "https" in (url.scheme, proxy.url.scheme if proxy else ""):
            options["ssl"] = self._trust()
        if proxy is None:
            return options
        known = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        if url.scheme == "https":
            options["proxy_headers"] = {"User-Agent": USER_AGENT} | known
        else:
            options["headers"].update(known)
        return options | {"proxy": proxy.url}

    def _trust(self) -> ssl.SSLContext:
        """TLS for what asks for it: to read the system's authorities takes a twentieth of a second."""
        if self._tls is None:
            self._tls = tls_context(insecure=self._insecure, folders=())
        return self._tls


class Download:
    """A reader of one object from its beginning, which goes on where a connection broke.

    It goes on only where the server has ranges and says that the object is still the same.
    """

    def __init__(self, web: Web, wanted: WebObject) -> None:
        self._web, self._wanted = web, wanted
        self._done = 0
        self.facts = Facts(None, False, "")

    async def begin(self) -> None:
        """Send the request. Raises ImportFailed."""
        try:
            await self._connect()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._wanted.failed(reason(error)) from error
        self.facts = facts_of(self._response)

    async def read(self) -> bytes:
        """As `Reader.read`. Raises ImportFailed where the transfer broke and cannot go on."""
        failures = 0
        while True:
            try:
                piece = await next_piece(self._response.content)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failures += 1
                await self._resume(error, failures)
                continue
            self._done += len(piece)
            if not piece and self.facts.size is not None and self._done != self.facts.size:
                raise ImportFailed(
                    f"Unable to process data: {self._done} bytes came, {self.facts.size} were announced"
                )
            return piece

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def _connect(self) -> None:
        self._context = self._web.get(self._wanted, first=self._done, validator=self.facts.validator)
        self._response = await self._context.__aenter__()

    async def _resume(self, error: Exception, failures: int) -> None:
        if has_stalled(error) or failures > _ATTEMPTS or not self.facts.ranges or not self.facts.validator:
            raise ImportFailed(f"Unable to process data: {reason(error)}") from error
        _log.warning(
            "the transfer of %s broke after %d bytes: %s; going on",
            self._wanted.name,
            self._done,
            reason(error),
        )
        await self.close()  # the broken connection; the next one has a context of its own
        await asyncio.sleep(_PAUSE_SECONDS * 2 ** (failures - 1))
        try:
            await self._connect()
        except (Unavailable, aiohttp.ClientError, TimeoutError, OSError) as again:
            await self._resume(again, failures + 1)


async def next_piece(content: aiohttp.StreamReader) -> bytes:
    """What has come, as it came: `readany` copies all that waits into one. Empty at the end."""
    while True:
        piece, is_end_of_chunk = await content.readchunk()
        if piece or not is_end_of_chunk:
            return piece


async def _explained(wanted: WebObject, expected: int, response: aiohttp.ClientResponse) -> str:
    if wanted.explain is not None:
        async with asyncio.timeout(_CALL_SECONDS):
            return wanted.explain(response, await response.content.read(_EXPLANATION_BYTES))
    status = f"{response.status} {response.reason}"
    return f"expected status code {expected}, got {response.status}. Status: {status}"


def _begins_at(response: aiohttp.ClientResponse, first: int) -> bool:
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == first


def facts_of(response: aiohttp.ClientResponse) -> Facts:
    """What a complete answer says of the object."""
    ranges = response.headers.get("Accept-Ranges", "none").strip().lower() == "bytes"
    tag = response.headers.get("ETag", "")
    strong = tag if tag.startswith('"') else ""
    validator = strong or response.headers.get("Last-Modified", "")
    return Facts(response.content_length, ranges, validator, response.headers.get("Content-Type", ""))


def address(text: str, name: str) -> URL:
    """The address of a source of the kind `name`. Raises ImportFailed."""
    try:
        url = URL(text)
    except ValueError as error:
        raise ImportFailed(f"Unable to connect to {name} data source: {error}") from error
    if not url.host:
        raise ImportFailed(f"Unable to connect to {name} data source: the address has no host")
    return url


def has_stalled(error: BaseException) -> bool:
    """Whether a transfer had no progress for ten minutes, which ends it."""
    return isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)


def reason(error: BaseException) -> str:
    """What broke a transfer, for users: never the whole address, which may hold a signature."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "the connection timed out"
    if isinstance(error, TimeoutError):
        return "no progress for 10 minutes"
    if isinstance(error, aiohttp.InvalidURL):
        return "a redirect leads to an address that is none"
    if isinstance(error, aiohttp.ClientResponseError):
        # Parts of the answer follow on other lines.
        return f"the answer cannot be read: {error.message.partition(chr(10))[0]}"
    return str(error) or type(error).__name__
