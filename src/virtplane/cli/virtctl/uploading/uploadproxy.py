"""Sending a file to CDI's upload proxy: its address, its two endpoints, attempts and tokens."""

from __future__ import annotations

import asyncio
import posixpath
import random
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import click

from kubecore import errors
from kubecore.client import Client
from kubecore.json import get_list, get_str
from kubecore.objects import meta
from kubecore.resources import CONFIG_MAPS, SERVICES
from virtplane.api import cdi_names, resources
from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.progress import Progress

UPLOAD_PATH = "/v1beta1/upload"
ASYNC_PATH = "/v1beta1/upload-async"

_PIECE_BYTES = 1 << 20
_TOKEN_REFRESHES = 3
_CONNECT_SECONDS = 30.0
_BUNDLE_KEY = "ca-bundle.crt"
_QUESTION_SECONDS = 60.0
_ANSWER_BYTES = 4096
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Proxy:
    """The upload proxy, and how its certificate is verified."""

    url: str
    insecure: bool = False
    authority: str = ""
    """Authorities that are trusted beside the system's (PEM)."""
    server_name: str = ""
    """The name that the certificate must have, where it is not the host in `url`."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """How an upload is tried: how often, and with tokens from `new_token`.

    `prepare` is called before each attempt; `is_done` says whether content arrived though no answer came.
    """

    count: int
    new_token: Callable[[], Awaitable[str]]
    prepare: Callable[[], Awaitable[None]]
    is_done: Callable[[], Awaitable[bool]]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class _Refused(Exception):
    """The proxy's answer, or that there is none (status 0)."""

    def __init__(self, status: int, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.status, self.is_final = status, is_final


async def find_proxy(client: Client, url: str, *, insecure: bool) -> Proxy:
    """The proxy at `url`, or the one that CDIConfig names. Raises click.ClickException, StatusError."""
    authority = name = ""
    if not url:
        config = await client.get(resources.CDI_CONFIGS, cdi_names.CONFIG)
        url = get_str(config, "spec", "uploadProxyURLOverride") or get_str(config, "status", "uploadProxyURL")
        authority = get_str(config, "status", "uploadProxyCA")
        if not authority and not insecure:
            authority, name = await _of_service(client, url)
    if not url:
        raise click.ClickException("uploadproxy URL not found")
    if "://" not in url:
        url = f"https://{url}"
    try:
        urlsplit(url)
    except ValueError as error:
        raise click.ClickException(f'parse "{printable(url)}": {error}') from error
    return Proxy(url, insecure, authority, name)


async def _of_service(client: Client, url: str) -> tuple[str, str]:
    """The authority and the name of the proxy's certificate, where `url` is its service's own address.

    Certificates have the service's name, not its address. Both are empty for any other URL, and for users who
    may not see them. Raises StatusError.
    """
    with errors.ignoring(403, 404):
        selector = f"metadata.name={cdi_names.UPLOAD_PROXY}"
        for service in get_list(await client.list(SERVICES, field_selector=selector), "items"):
            address, namespace = get_str(service, "spec", "clusterIP"), meta.namespace(service)
            if address and urlsplit(url).hostname == address:
                bundle = await client.get(CONFIG_MAPS, cdi_names.UPLOAD_PROXY_BUNDLE, namespace)
                name = f"{cdi_names.UPLOAD_PROXY}.{namespace}.svc"
                return get_str(bundle, "data", _BUNDLE_KEY), name
    return "", ""


def endpoint(url: str, path: str) -> str:
    """The proxy's `url` with the endpoint's path, unless it contains it already."""
    if path in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.normpath(parts.path.rstrip("/") + path)))


async def send(proxy: Proxy, content: Content, attempts: Attempts, progress: Progress) -> None:
    """Send `content`, with further attempts where one fails. Raises click.ClickException.

    As in KubeVirt's virtctl: a token that is refused at once is not replaced, later ones are, three times.
    """
    token, refreshes = await attempts.new_token(), _TOKEN_REFRESHES
    count, is_unanswered = max(attempts.count, 1), False
    async with _session(proxy) as session:
        for attempt in range(count):
            if attempt:
                await attempts.sleep(_pause(attempt))
            progress.restart()
            await attempts.prepare()
            try:
                await _attempt(session, proxy, content, token, progress)
                return
            except _Refused as error:
                if error.is_final:
                    raise click.ClickException(str(error)) from error
                is_unanswered = is_unanswered or (error.status == 0 and progress.is_complete)
                if is_unanswered and await attempts.is_done():
                    return
                if error.status == 401:
                    if attempt == 0 or refreshes == 0:
                        raise click.ClickException(f"authentication failed: {error}") from error
                    token = await attempts.new_token()
                    refreshes -= 1
                if attempt == count - 1:
                    text = f"error uploading image after {count} retries: {error}"
                    raise click.ClickException(text) from error


def _pause(attempt: int) -> float:
    longest = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
    return random.SystemRandom().uniform(longest / 2, longest)


def _session(proxy: Proxy) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    connector = aiohttp.TCPConnector(ssl=_tls(proxy), force_close=True)
    # No compression: what is sent is what the file has.
    return aiohttp.ClientSession(connector=connector, timeout=timeout, proxy=_web_proxy(proxy.url))


def _tls(proxy: Proxy) -> ssl.SSLContext | bool:
    if proxy.insecure:
        return False
    context = ssl.create_default_context()
    if proxy.authority:
        try:
            context.load_verify_locations(cadata=proxy.authority)
        except (ssl.SSLError, ValueError) as error:
            click.echo(
                f"WARNING: the upload proxy's authority in CDIConfig is not readable: {error}", err=True
            )
        # CDIConfig may name the proxy's own certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _web_proxy(url: str) -> str | None:
    """The HTTP proxy that the environment names for `url`. Raises click.ClickException for another one.

    aiohttp's own look at the environment also reads ``.netrc``, which does not go with tokens.
    """
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise click.ClickException(f"the proxy {proxy} of the environment is no HTTP proxy")
    return proxy


async def _attempt(
    session: aiohttp.ClientSession, proxy: Proxy, content: Content, token: str, progress: Progress
) -> None:
    """One attempt, at the endpoint that answers before the content is processed where there is one.

    Raises _Refused, click.ClickException.
    """
    headers = {"Authorization": f"Bearer {token}"}
    url = await _endpoint_of(session, proxy, headers)
    headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(content.size)}
    body = _pieces(content, progress.add) if content.size else b""
    try:
        async with session.post(
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            server_hostname=proxy.server_name or None,
        ) as answer:
            if answer.status == 200:
                return
            text = printable((await answer.content.read(_ANSWER_BYTES)).decode(errors="replace"))
            raise _Refused(answer.status, f"unexpected return value {answer.status}, {text}")
    except aiohttp.ClientConnectorCertificateError as error:
        reason = error.certificate_error
        text = f'Post "{url}": tls: failed to verify certificate: {reason}'
        raise _Refused(0, f"{text} (--insecure does not verify it)", is_final=True) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise _Refused(0, f'Post "{url}": the URL is invalid', is_final=True) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        _check_unchanged(content)
        raise _Refused(0, f'Post "{url}": {error or type(error).__name__}') from error


async def _endpoint_of(session: aiohttp.ClientSession, proxy: Proxy, headers: dict[str, str]) -> str:
    url = endpoint(proxy.url, ASYNC_PATH)
    timeout = aiohttp.ClientTimeout(total=_QUESTION_SECONDS)
    try:
        async with session.head(
            url,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=proxy.server_name or None,
        ) as answer:
            is_known = answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        # An unreachable proxy is the error of the upload itself.
        is_known = False
    return url if is_known else endpoint(proxy.url, UPLOAD_PATH)


async def _pieces(content: Content, sent: Callable[[int], None]) -> AsyncIterator[bytes]:
    with content.path.open("rb") as file:
        file.seek(content.offset)
        left = content.size
        while left:
            piece = await asyncio.to_thread(file.read, min(left, _PIECE_BYTES))
            if not piece:
                raise OSError(f"{content.path} became shorter")
            left -= len(piece)
            yield piece
            sent(len(piece))


def _check_unchanged(content: Content) -> None:
    """Raises click.ClickException where the file is shorter than it was: no further attempt can succeed."""
    if whole(content.path).size < content.offset + content.size:
        raise click.ClickException(f"{content.path} became shorter while it was sent")
