"""cdi-uploadproxy: the component."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError, is_not_found
from kubecore.json import get_object, get_str
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from kubecore.runtime import Context, Manager
from virtplane.api import cdi_names, paths, ports
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.serving import https
from virtplane.serving.tls import TLSSettings
from virtplane.storage.cdi.tls import wanted
from virtplane.storage.cdi.tokens import InvalidToken, VerifiedToken, Verifier
from virtplane.storage.cdi.uploadproxy.proxy import UploadProxy

logger = logging.getLogger(__name__)

_BUNDLE = "ca-bundle.crt"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 30.0
_CONNECT_SECONDS = 30.0


class CdiUploadProxy:
    """The component ``cdi-uploadproxy``."""

    name = cdi_names.UPLOAD_PROXY

    async def run(self, context: Context) -> None:
        """Serve until cancelled; certificates are read again when they change."""
        client = context.client(self.name)
        manager = Manager(client)
        settings = context.settings
        own = Path(settings.get("cdi_upload_proxy_certificates") or paths.CDI_UPLOAD_PROXY_CERTIFICATES)
        upload = Path(settings.get("cdi_upload_client_certificates") or paths.CDI_UPLOAD_CLIENT_CERTIFICATES)
        port = int(settings.get("cdi_upload_proxy_port") or ports.CDI_UPLOAD_PROXY)
        cluster = ClusterAccess(client, context.namespace, upload)
        serving = asyncio.Event()
        context.health.add_ready(self.name, lambda: "" if serving.is_set() else "not serving yet")
        proxy = UploadProxy(cluster)
        manager.add_runnable("https", lambda: serve(proxy, own, port, serving, lambda: wanted(client)))
        try:
            await manager.run()
        finally:
            await cluster.close()


class ClusterAccess:
    """Tokens, claims and upload servers of a cluster.

    `certificates` has the pair that upload servers expect.
    """

    def __init__(self, client: Client, namespace: str, certificates: Path) -> None:
        self._client, self._namespace, self._certificates = client, namespace, certificates
        self._session: aiohttp.ClientSession | None = None
        self._made_of: tuple[int, str] | None = None
        self._old: list[aiohttp.ClientSession] = []
        """Sessions with earlier certificates: uploads may still go on in them."""

    async def verified(self, token: str) -> VerifiedToken:
        """What a token says. Raises InvalidToken, StatusError, ConnectionFailed."""
        try:
            secret = await self._client.get(SECRETS, cdi_names.SIGNING_KEY, self._namespace)
            key = base64.b64decode(get_str(get_object(secret, "data"), cdi_names.SIGNING_KEY_PUBLIC))
            return Verifier(cdi_names.API_SERVER_ISSUER, key).verify(token)
        except StatusError as error:
            if not is_not_found(error):
                raise
            raise InvalidToken("there is no key yet") from error
        except (ValueError, binascii.Error) as error:
            raise InvalidToken(
                f"the key in secret {cdi_names.SIGNING_KEY} cannot be read: {error}"
            ) from error

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim. Raises StatusError, ConnectionFailed, UnfitDocument."""
        try:
            found = await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
        return decode(PersistentVolumeClaim, found)

    async def session(self) -> aiohttp.ClientSession:
        """A client with the proxy's certificate that trusts upload servers alone; made anew when they change.

        Raises OSError, StatusError, ConnectionFailed.
        """
        bundle = await self._client.get(CONFIG_MAPS, cdi_names.UPLOAD_SERVER_BUNDLE, self._namespace)
        authorities = get_str(get_object(bundle, "data"), _BUNDLE)
        stamp = await asyncio.to_thread((self._certificates / _CERTIFICATE).stat)
        made_of = (stamp.st_mtime_ns, authorities)
        if self._session is None or made_of != self._made_of:
            tls = await asyncio.to_thread(self._tls, authorities)
            before, timeout = self._session, aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout)
            self._made_of = made_of
            if before is not None:
                self._old.append(before)
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        for session in (*self._old, self._session):
            if session is not None:
                await session.close()

    def _tls(self, authorities: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=authorities)
        context.load_cert_chain(self._certificates / _CERTIFICATE, self._certificates / _KEY)
        return context


def runner_of(proxy: UploadProxy) -> web.AppRunner:
    """Serves the paths. Bodies go on as they came: unpacked ones would have another length than they say."""
    return web.AppRunner(proxy.application(), access_log=None, shutdown_timeout=2.0, auto_decompress=False)


Wanted = Callable[[], Awaitable[TLSSettings]]
"""What restricts TLS now. Raises StatusError, ConnectionFailed, UnfitDocument."""


async def serve(
    proxy: UploadProxy, certificates: Path, port: int, serving: asyncio.Event, tls: Wanted
) -> None:
    """Serve until cancelled; anew when the certificate or `tls` changes. Sets `serving` at the first."""
    runner = runner_of(proxy)
    await runner.setup()
    try:
        while True:
            state = await _state(certificates, tls)
            if state is None:
                logger.info(
                    "%s has no certificate in %s yet; trying again", cdi_names.UPLOAD_PROXY, certificates
                )
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificates / _CERTIFICATE, certificates / _KEY)
            https.restrict(context, state.tls, cdi_names.UPLOAD_PROXY)
            site = web.TCPSite(runner, None, port, ssl_context=context, reuse_port=True)
            await site.start()
            serving.set()
            await _until_changed(certificates, tls, state)
            await site.stop()
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class _State:
    """When the certificate was written, and what restricts TLS."""

    stamp: int
    tls: TLSSettings


async def _until_changed(certificates: Path, tls: Wanted, state: _State) -> None:
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        if await _state(certificates, tls) not in (state, None):
            return


async def _state(certificates: Path, tls: Wanted) -> _State | None:
    """What is served by; None while it is not known."""
    try:
        await asyncio.to_thread((certificates / _KEY).stat)
        stamp = (await asyncio.to_thread((certificates / _CERTIFICATE).stat)).st_mtime_ns
        return _State(stamp, await tls())
    except (OSError, StatusError, ConnectionFailed, UnfitDocument) as error:
        logger.debug("%s cannot see by what it serves: %s", cdi_names.UPLOAD_PROXY, error)
        return None
