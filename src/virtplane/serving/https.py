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
from kubecore.errors import StatusError
from kubecore.objects.structs import UnfitDocument
from virtplane.serving.frontproxy import PROXY_CONFIG, ProxySettings
from virtplane.serving.gate import Gate
from virtplane.serving.tls import ServersTLS, TLSSettings

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
    tls: Callable[[], Awaitable[TLSSettings]] | None = None
    """What restricts TLS; asked again and again. Raises StatusError, ConnectionFailed, UnfitDocument."""
    servers_tls: ServersTLS | None = None
    """What restricts it with the other servers of the process."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The server's certificate, the front proxy's authority and the restrictions at one time."""

    stamp: int
    proxy: ProxySettings
    tls: TLSSettings


async def serve(client: Client, served: Served, endpoint: Endpoint, serving: asyncio.Event) -> None:
    """Serve until cancelled; the certificate is read again when it changes. Sets `serving` at the first."""
    runner = web.AppRunner(served.application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        while True:
            files = await _wait_for_files(client, endpoint)
            served.gate.proxy = files.proxy
            tls = await asyncio.to_thread(server_tls, endpoint.certificates, files.proxy.authorities)
            restrict(tls, files.tls, endpoint.component)
            if endpoint.servers_tls is not None:
                endpoint.servers_tls.restrict(tls)
            site = web.TCPSite(runner, None, endpoint.port, ssl_context=tls, reuse_port=True)
            await site.start()
            serving.set()
            logger.info("%s serves on port %d", endpoint.component, endpoint.port)
            await _until_changed(client, endpoint, files)
            await site.stop()
    finally:
        await runner.cleanup()


def server_tls(certificates: Path, authorities: str) -> ssl.SSLContext:
    """TLS with the pair in `certificates`; a client's certificate must be of `authorities` (PEM)."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    if authorities:
        context.load_verify_locations(cadata=authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def restrict(context: ssl.SSLContext, settings: TLSSettings, component: str) -> None:
    """Apply restrictions. Those that mean nothing are told, and the server works without them."""
    try:
        settings.apply(context)
    except ValueError as error:
        logger.error("%s serves with the usual TLS, correct its TLS profile: %s", component, error)


async def _files(client: Client, endpoint: Endpoint) -> _Files | None:
    """The files as they are; None while some are missing."""
    try:
        config = await client.get(resources.CONFIG_MAPS, PROXY_CONFIG, "kube-system")
        stat = await asyncio.to_thread((endpoint.certificates / "tls.crt").stat)
        await asyncio.to_thread((endpoint.certificates / "tls.key").stat)
        tls = await endpoint.tls() if endpoint.tls is not None else TLSSettings()
    except (StatusError, ConnectionFailed, UnfitDocument, OSError) as error:
        logger.info("%s does not serve yet, trying again: %s", endpoint.component, error)
        return None
    return _Files(stat.st_mtime_ns, ProxySettings.of(config), tls)


async def _wait_for_files(client: Client, endpoint: Endpoint) -> _Files:
    while True:
        found = await _files(client, endpoint)
        if found is not None:
            return found
        await asyncio.sleep(_RETRY_SECONDS)


async def _until_changed(client: Client, endpoint: Endpoint, files: _Files) -> None:
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        found = await _files(client, endpoint)
        if found is not None and found != files:
            return
