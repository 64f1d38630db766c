"""HTTPS with a certificate that changes, and clients that the API server's front proxy vouches for."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiohttp import web

from kubecore import resources
from kubecore.client import Client, ConnectionFailed
from kubecore.connections import Connections, CountedSite
from kubecore.errors import StatusError
from virtplane.serving.frontproxy import PROXY_CONFIG, ProxySettings
from virtplane.serving.gate import Gate
from virtplane.serving.tls import ChangingTLS, ServersTLS, TellingTLS

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 30.0


class Served(Protocol):
    """What is served."""

    @property
    def gate(self) -> Gate:
        """Who gets in."""
        ...

    def application(self) -> web.Application:
        """The web application."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a component serves, and by which certificate (``tls.crt``, ``tls.key``)."""

    component: str
    certificates: Path
    port: int
    servers_tls: ServersTLS | None = None
    """What restricts its TLS, with that of other servers."""


Vouching = Callable[[], Awaitable[ProxySettings]]
"""How the API server vouches for its users now. Raises StatusError, ConnectionFailed."""
Adopt = Callable[[ProxySettings], None]
"""Takes that into account, before anybody is served by it."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The server's certificate and the front proxy's authority at one time."""

    stamp: int
    proxy: ProxySettings


async def serve(client: Client, served: Served, endpoint: Endpoint, serving: asyncio.Event) -> None:
    """Serve what the API server vouches for, as `serve_runner` does."""

    async def vouching() -> ProxySettings:
        return ProxySettings.of(await client.get(resources.CONFIG_MAPS, PROXY_CONFIG, "kube-system"))

    def adopt(proxy: ProxySettings) -> None:
        served.gate.proxy = proxy

    runner = web.AppRunner(served.application(), access_log=None, shutdown_timeout=2.0)
    await serve_runner(runner, endpoint, serving, vouching, adopt, connections=served.gate.connections)


async def serve_runner(
    runner: web.AppRunner,
    endpoint: Endpoint,
    serving: asyncio.Event,
    vouching: Vouching | None = None,
    adopt: Adopt | None = None,
    *,
    connections: Connections | None = None,
) -> None:
    """Serve until cancelled, new connections by the certificate and authority as they are then.

    Sets `serving` at the first. `connections` count those of strangers.
    """
    counted = Connections() if connections is None else connections
    await runner.setup()
    tls = ChangingTLS(ssl.PROTOCOL_TLS_SERVER)
    try:
        while True:
            files = await _wait_for_files(endpoint, vouching)
            if adopt is not None:
                adopt(files.proxy)
            current = await asyncio.to_thread(server_tls, endpoint.certificates, files.proxy.authorities)
            if endpoint.servers_tls is not None:
                endpoint.servers_tls.restrict(current)
            tls.current = current
            if not serving.is_set():
                await CountedSite(runner, endpoint.port, tls, counted, is_shared=True).start()
                serving.set()
                logger.info("%s serves on port %d", endpoint.component, endpoint.port)
            await _until_changed(endpoint, vouching, files)
    finally:
        await runner.cleanup()


def server_tls(certificates: Path, authorities: str) -> ssl.SSLContext:
    """TLS with the pair in `certificates`; a client's certificate must be of `authorities` (PEM)."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.sslobject_class = TellingTLS
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    if authorities:
        context.load_verify_locations(cadata=authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def _files(endpoint: Endpoint, vouching: Vouching | None) -> _Files | None:
    """The files as they are; None while some are missing."""
    try:
        proxy = await vouching() if vouching is not None else ProxySettings()
        stat = await asyncio.to_thread((endpoint.certificates / "tls.crt").stat)
        await asyncio.to_thread((endpoint.certificates / "tls.key").stat)
    except (StatusError, ConnectionFailed, OSError) as error:
        logger.info("%s cannot see by what it serves, trying again: %s", endpoint.component, error)
        return None
    return _Files(stat.st_mtime_ns, proxy)


async def _wait_for_files(endpoint: Endpoint, vouching: Vouching | None) -> _Files:
    while True:
        found = await _files(endpoint, vouching)
        if found is not None:
            return found
        await asyncio.sleep(_RETRY_SECONDS)


async def _until_changed(endpoint: Endpoint, vouching: Vouching | None, files: _Files) -> None:
    """Wait for other files, which are looked at again and again."""
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        found = await _files(endpoint, vouching)
        if found is None:
            await asyncio.sleep(_RETRY_SECONDS)
        elif found != files:
            return
