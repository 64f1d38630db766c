"""cdi-uploadproxy: the component."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from pathlib import Path

import aiohttp
from aiohttp import web

from kubecore.client import Client
from kubecore.connections import Connections
from kubecore.errors import StatusError, is_not_found
from kubecore.json import get_object, get_str
from kubecore.objects.structs import decode
from kubecore.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from kubecore.runtime import Context, Manager
from virtplane.api import cdi_names, paths, ports
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.serving import https
from virtplane.storage.cdi.tls import servers_tls
from virtplane.storage.cdi.tokens import InvalidToken, VerifiedToken, Verifier
from virtplane.storage.cdi.uploadproxy.proxy import UploadProxy

logger = logging.getLogger(__name__)

_BUNDLE = "ca-bundle.crt"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_CONNECT_SECONDS = 30.0
_KEY_SECONDS = 1.0
"""So long the key is believed to be the same: anybody may send what is no token."""


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
        endpoint = https.Endpoint(self.name, own, port, servers_tls(manager))
        # Uploads may all come by one ingress controller.
        counted = Connections(most_each=512, most=2048)
        manager.add_runnable(
            "https", lambda: https.serve_runner(runner_of(proxy), endpoint, serving, connections=counted)
        )
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
        self._verifier: Verifier | None = None
        self._key_read = 0.0
        self._old: list[aiohttp.ClientSession] = []
        """Sessions with earlier certificates: uploads may still go on in them."""

    async def verified(self, token: str) -> VerifiedToken:
        """What a token says. Raises InvalidToken, StatusError, ConnectionFailed."""
        now = asyncio.get_running_loop().time()
        if self._verifier is None or now - self._key_read >= _KEY_SECONDS:
            self._key_read = now
            try:
                self._verifier = await self._read_key()
            except InvalidToken:
                # A key that was replaced by what is no key vouches for nobody any more.
                self._verifier = None
                raise
        if self._verifier is None:
            raise InvalidToken("there is no key yet")
        return self._verifier.verify(token)

    async def _read_key(self) -> Verifier | None:
        """None where there is no key. Raises InvalidToken, StatusError, ConnectionFailed."""
        try:
            secret = await self._client.get(SECRETS, cdi_names.SIGNING_KEY, self._namespace)
            key = base64.b64decode(get_str(get_object(secret, "data"), cdi_names.SIGNING_KEY_PUBLIC))
            return Verifier(cdi_names.API_SERVER_ISSUER, key)
        except StatusError as error:
            if not is_not_found(error):
                raise
            return None
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
            # Any number of uploads may stand still: none waits for another's end.
            connector = aiohttp.TCPConnector(ssl=tls, limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
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
