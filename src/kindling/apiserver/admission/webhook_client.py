"""Calling webhooks: one HTTPS POST of a review, one review back.

The server shows webhooks the certificate that it shows to aggregated servers, as Kubernetes does when its
admission configuration names one: a webhook can then tell the API server from any pod that reaches its port.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson

from kindling.apiserver.bounded import TooLong, read_whole
from kindling.apiserver.registry.admission import ServiceEndpoint
from kubecore.errors import StatusError
from kubecore.json import JsonObject

_ANSWER_LIMIT_BYTES = 3 * 1024 * 1024
_SERVICE_PORT = 443
_PLAIN = {"Accept-Encoding": "identity"}
"""A few bytes can unpack to more than there is memory: packed answers are neither asked for nor unpacked."""


class WebhookCallError(Exception):
    """The webhook could not be called, or its answer cannot be read. Users see the text."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The address of a request, and the name by which errors call the webhook."""

    url: str
    shown: str
    server_name: str | None


class WebhookClient:
    """Connections to webhooks, kept open between calls. Owned by the server; `close` it at the end.

    `certificate` is the file of the certificate to show and that of its key.
    """

    def __init__(
        self,
        resolve_service: Callable[[str, str, int], ServiceEndpoint],
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._resolve_service = resolve_service
        self._session: aiohttp.ClientSession | None = None
        self._context = lru_cache(maxsize=64)(lambda bundle: _tls_context(bundle, certificate))

    async def call(self, config: JsonObject, review: JsonObject, timeout_seconds: float) -> JsonObject:
        """Post `review` to the address in the clientConfig `config`. Raises WebhookCallError."""
        target = self._target(config, timeout_seconds)
        try:
            tls = self._context(str(config.get("caBundle") or ""))
        except (ssl.SSLError, ValueError) as error:
            raise WebhookCallError(f"unable to load root certificates: {error}") from error
        prefix = f'Post "{target.shown}": '
        try:
            async with self._open().post(
                target.url,
                data=orjson.dumps(review),
                headers={"Content-Type": "application/json", "Accept": "application/json, */*", **_PLAIN},
                ssl=tls,
                server_hostname=target.server_name,
                timeout=aiohttp.ClientTimeout(total=timeout_seconds),
                allow_redirects=False,
            ) as answer:
                return await _read(answer)
        except TimeoutError as error:
            raise WebhookCallError(f"{prefix}context deadline exceeded") from error
        except aiohttp.ClientConnectorCertificateError as error:
            reason = _certificate_words(error.certificate_error)
            raise WebhookCallError(f"{prefix}{reason}") from error
        except aiohttp.ClientConnectorError as error:
            raise WebhookCallError(prefix + _connection_words(error)) from error
        except aiohttp.ClientError as error:
            raise WebhookCallError(f"{prefix}EOF") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Webhooks that do not answer keep their connections: the calls of others do not wait for one.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _target(self, config: JsonObject, timeout_seconds: float) -> _Target:
        query = "?" + urlencode({"timeout": f"{timeout_seconds:g}s"})
        service = config.get("service")
        if not isinstance(service, dict):
            url = str(config.get("url"))
            return _Target(url + query, url + query, urlsplit(url).hostname)
        port = int(service.get("port") or _SERVICE_PORT)
        path = str(service.get("path") or "/")
        name, namespace = str(service.get("name")), str(service.get("namespace"))
        shown = f"https://{name}.{namespace}.svc:{port}{path}{query}"
        try:
            endpoint = self._resolve_service(namespace, name, port)
        except StatusError as error:
            raise WebhookCallError(f'Post "{shown}": {error.message}') from error
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return _Target(f"https://{host}:{endpoint.port}{path}{query}", shown, endpoint.server_name)


async def _read(answer: aiohttp.ClientResponse) -> JsonObject:
    try:
        body = await read_whole(answer.content, _ANSWER_LIMIT_BYTES)
    except TooLong as error:
        raise WebhookCallError(str(error)) from error
    if answer.status == 404:
        raise WebhookCallError("the server could not find the requested resource")
    if answer.status != 200:
        text = body.decode(errors="replace").strip()
        raise WebhookCallError(f'an error on the server ("{text}") has prevented the request from succeeding')
    try:
        document: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(document, dict):
        raise WebhookCallError("couldn't get version/kind; json parse error: the answer is no object")
    return document


def _tls_context(bundle: str, certificate: tuple[Path, Path] | None) -> ssl.SSLContext:
    """Trust only the CA bundle (base64 of PEM) if there is one, else the machine's certificate
    authorities.
    """
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode() if bundle else None)
    if certificate is not None:
        try:
            context.load_cert_chain(*certificate)
        except OSError as error:
            raise WebhookCallError(f"unable to load the client certificate: {error}") from error
    return context


def _certificate_words(error: Exception) -> str:
    text = str(error)
    if "self-signed" in text or "unable to get" in text:
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    return f"tls: failed to verify certificate: x509: {text}"


def _connection_words(error: aiohttp.ClientConnectorError) -> str:
    cause = error.os_error
    if isinstance(cause, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return f"dial tcp {error.host}:{error.port}: {(cause.strerror or str(cause)).lower()}"
