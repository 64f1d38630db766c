"""Serving consoles by certificates and authorities that change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path

from aiohttp import web

from kubecore.connections import Connections, CountedSite
from kubecore.json import JsonObject, get_str
from kubecore.resources import CONFIG_MAPS
from kubecore.runtime import Context, Informer, Manager
from virtplane.compute.handler.consoles.server import ConsoleServer, server_tls
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.serving.tls import ChangingTLS, ServersTLS

logger = logging.getLogger(__name__)

_CA_NAME = "kubevirt-ca"
_CA_KEY = "ca-bundle"
_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 10.0
"""How often the file of the certificate is looked at."""


class Authorities:
    """The certificate authorities of the installation, as virt-operator publishes them.

    They are watched: virt-api's next certificate may be of a new one within seconds.
    """

    def __init__(self, manager: Manager, namespace: str) -> None:
        self._informer: Informer[JsonObject] = manager.informer(
            CONFIG_MAPS, namespace=namespace, field_selector=f"metadata.name={_CA_NAME}"
        )
        self._changed = asyncio.Event()
        self._informer.add_handler(self._observe)

    def _observe(self, event: str, old: JsonObject | None, new: JsonObject) -> None:
        self._changed.set()

    def bundle(self) -> str:
        """PEM; empty while nothing is published."""
        return get_str(next(iter(self._informer.list()), {}), "data", _CA_KEY)

    async def change(self, seconds: float) -> None:
        """Wait for one, but not for longer than so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()


async def serve(
    context: Context,
    settings: HandlerSettings,
    console_server: ConsoleServer,
    authorities: Authorities,
    serving: asyncio.Event,
) -> None:
    """Serve until cancelled, new connections by the certificate and the authorities as they are then.

    `serving` is set once the port listens.
    """
    certificate = settings.certificate_directory / "servercertificates" / "tls.crt"
    runner = web.AppRunner(console_server.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    tls = ChangingTLS(ssl.PROTOCOL_TLS_SERVER)
    try:
        while True:
            version, bundle = _version(certificate), authorities.bundle()
            current = _current(settings, bundle)
            if current is None:
                await authorities.change(_RETRY_SECONDS)
                continue
            ServersTLS.of(context).restrict(current)
            tls.current = current
            while not serving.is_set():
                await _listen(runner, settings, tls, serving, console_server.connections)
            while (_version(certificate), authorities.bundle()) == (version, bundle):
                await authorities.change(_CHECK_SECONDS)
    finally:
        await runner.cleanup()


def _current(settings: HandlerSettings, bundle: str) -> ssl.SSLContext | None:
    """What to serve by; None while the certificate or the authorities are missing."""
    if not bundle:
        logger.info("Consoles wait for the authorities of the installation")
        return None
    try:
        return server_tls(settings, bundle)
    except OSError as error:
        logger.info("Consoles wait for their certificates", extra={"err": str(error)})
        return None


async def _listen(
    runner: web.AppRunner,
    settings: HandlerSettings,
    tls: ssl.SSLContext,
    serving: asyncio.Event,
    connections: Connections,
) -> None:
    site = CountedSite(runner, settings.console_port, tls, connections)
    try:
        await site.start()
    except OSError as error:
        logger.error(
            "Consoles cannot be served; trying again. See which process uses the port on this node",
            extra={"port": settings.console_port, "err": str(error)},
        )
        await site.stop()
        await asyncio.sleep(_RETRY_SECONDS)
    else:
        serving.set()


def _version(file: Path) -> int:
    """A number that changes with the file; 0 if there is none, as while the kubelet replaces it."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
