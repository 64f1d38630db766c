"""The transport over aiohttp: TLS, client certificates, proxies, retries on fresh credentials, websockets.

Importing this module imports aiohttp, which takes half a second on a busy machine; `kubecore.client.client`
imports it with the first request, so that ``--help`` stays fast.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import aiohttp
import yarl
from multidict import CIMultiDict

from kubecore.client.config import ClientConfig, ConfigError
from kubecore.client.credentials import Credentials, CredentialSource
from kubecore.client.failures import status_error
from kubecore.client.transport import (
    REQUEST_SECONDS,
    ConnectionFailed,
    Request,
    Response,
    StreamedResponse,
)

CONNECT_TIMEOUT_SECONDS = 30.0
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A peer that has vanished is noticed after 45 s of silence, as client-go notices it, also by a watch."""

_WEBSOCKET_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_READ_CHUNK_BYTES = 256 * 1024

_refused_upgrade: ContextVar[list[Response] | None] = ContextVar("refused_upgrade", default=None)


class HttpTransport:
    """Requests over a pool of connections to one server. Make and close it within one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._credentials = CredentialSource(config)
        self._session: aiohttp.ClientSession | None = None
        self._certificate: tuple[bytes | None, bytes | None] = (None, None)
        self._base = yarl.URL(config.server.rstrip("/"))
        self._retired: list[aiohttp.ClientSession] = []
        self._limit = config.request_seconds or REQUEST_SECONDS

    async def request(self, request: Request) -> Response:
        """Send and read the whole response."""
        response = await self._request(request)
        if response.status == 401 and self._credentials.refresh():
            return await self._request(request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """Send and return the response as soon as its headers have arrived."""
        session, headers = await self._prepare(request)
        timeout = _timeout(request.deadline_seconds)
        try:
            response = await session.request(
                request.method, self._url(request), headers=headers, data=request.body, timeout=timeout
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _connection_failed(self._config.server, error) from error
        if response.status == 401:
            self._credentials.refresh()
        try:
            yield _HttpStream(response)
        finally:
            response.close()

    async def websocket(self, request: Request, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Upgrade to a websocket. Raises StatusError with the server's message when it refuses.

        Only the upgrade has a deadline.
        """
        session, headers = await self._prepare(request)
        refusals: list[Response] = []
        token = _refused_upgrade.set(refusals)
        try:
            async with asyncio.timeout(self._limit):
                return await session.ws_connect(
                    self._url(request),
                    protocols=protocols,
                    headers=headers,
                    max_msg_size=_WEBSOCKET_MAX_MESSAGE_BYTES,
                    autoping=True,
                )
        except aiohttp.WSServerHandshakeError as error:
            refusal = refusals[0] if refusals else Response(error.status, {}, b"")
            raise status_error(request, refusal) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _connection_failed(self._config.server, error) from error
        finally:
            _refused_upgrade.reset(token)

    async def close(self) -> None:
        """Close all connections."""
        sessions = [*self._retired, *([self._session] if self._session else [])]
        self._session = None
        self._retired = []
        for session in sessions:
            await session.close()
        # aiohttp closes TLS connections in the next iteration of the event loop and offers nothing to wait
        # for.
        await asyncio.sleep(0)

    async def _request(self, request: Request) -> Response:
        session, headers = await self._prepare(request)
        timeout = _timeout(request.deadline_seconds or self._limit)
        try:
            async with session.request(
                request.method, self._url(request), headers=headers, data=request.body, timeout=timeout
            ) as response:
                return await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _connection_failed(self._config.server, error) from error

    def _url(self, request: Request) -> yarl.URL:
        url = yarl.URL.build(
            scheme=self._base.scheme,
            authority=self._base.raw_authority,
            path=self._base.raw_path.rstrip("/") + request.path,
            encoded=True,
        )
        return url.with_query(list(request.query)) if request.query else url

    async def _prepare(self, request: Request) -> tuple[aiohttp.ClientSession, CIMultiDict[str]]:
        credentials = await self._credentials.current()
        headers = CIMultiDict(request.headers)
        if credentials.authorization and "Authorization" not in headers:
            headers["Authorization"] = credentials.authorization
        if not self._config.compression:
            headers.setdefault("Accept-Encoding", "identity")
        return self._session_for(credentials), headers

    def _session_for(self, credentials: Credentials) -> aiohttp.ClientSession:
        certificate = (credentials.client_cert, credentials.client_key)
        if self._session is not None and certificate == self._certificate:
            return self._session
        if self._session is not None:
            # Requests in progress keep using the connections with the old certificate until the transport
            # closes.
            self._retired.append(self._session)
        tls = tls_context(self._config, credentials) if self._base.scheme == "https" else False
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(_keep_refusal)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls, limit=0, ttl_dns_cache=60, socket_factory=_keepalive_socket
            ),
            timeout=_timeout(None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            trace_configs=[trace],
            read_bufsize=_READ_CHUNK_BYTES,
            proxy=self._config.proxy_url or environment_proxy(self._config.server),
        )
        self._certificate = certificate
        return self._session


class _HttpStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = _lower(response.headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _connection_failed(str(self._response.url.origin()), error) from error


def _timeout(seconds: float | None) -> aiohttp.ClientTimeout:
    """The timeout of the whole response; with None, only connecting has a timeout."""
    return aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_TIMEOUT_SECONDS)


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system that the command line runs on
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _keep_refusal(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
) -> None:
    """Keep the body of a refused upgrade, which aiohttp drops: it is the Status that users need to see."""
    holder = _refused_upgrade.get()
    if holder is not None and params.response.status != 101:
        holder.append(await _read(params.response))


async def _read(response: aiohttp.ClientResponse) -> Response:
    return Response(response.status, _lower(response.headers), await response.read())


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    lowered: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        # Several Warning headers are equivalent to one list.
        lowered[key] = f"{lowered[key]}, {value}" if key in lowered else value
    return lowered


def _connection_failed(server: str, error: BaseException) -> ConnectionFailed:
    host = urlsplit(server).netloc or server
    if isinstance(error, aiohttp.ClientConnectorError):
        text = error.os_error.strerror or str(error.os_error)
        return ConnectionFailed(
            f"The connection to the server {host} was refused - "
            f"did you specify the right host or port? ({text})"
        )
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    return ConnectionFailed(f"The connection to the server {host} failed: {text}")


def environment_proxy(server: str) -> str | None:
    """The HTTP proxy that the environment names for `server`. Raises ConfigError for another kind of proxy.

    As in client-go it is looked up once. aiohttp's own look (`trust_env`) takes two threads and three reads
    of ``.netrc`` with each request, and refuses to send a token to a host that ``.netrc`` names.
    """
    parts = urlsplit(server)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigError(f"the proxy {proxy} that the environment names for {server} is no HTTP proxy")
    return proxy


def tls_context(config: ClientConfig, credentials: Credentials) -> ssl.SSLContext:
    """The TLS settings of `config` with the client certificate of `credentials`.

    Raises ConfigError for certificates that cannot be read.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if config.tls_server_name:
            context = _NamedContext.make(config.tls_server_name)
        if config.ca_data:
            context.load_verify_locations(cadata=config.ca_data.decode())
        if config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif not config.ca_data:
            context.load_default_certs()
        if credentials.client_cert and credentials.client_key:
            _load_certificate(context, credentials.client_cert, credentials.client_key)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"unable to use the certificates of the client configuration: {error}") from error
    return context


class _NamedContext(ssl.SSLContext):
    """Verifies the server under a given name instead of its host's (``tls-server-name``)."""

    server_name: str

    @classmethod
    def make(cls, server_name: str) -> _NamedContext:
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = server_name
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module reads certificates from files only; this one exists for the duration of the call.
    with tempfile.TemporaryDirectory(prefix="kubecore-") as directory:
        path = Path(directory) / "client.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(path)
