"""The HTTPS server of operators' webhooks."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from kubecore import errors, resources
from kubecore.certificates import KeyPair
from kubecore.client import Client, ConnectionFailed
from kubecore.connections import Connections, CountedSite
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import UnfitDocument
from virtplane.operators.kit.mirror import write_pair
from virtplane.serving.frontproxy import PROXY_CONFIG, ProxySettings, is_front_proxy
from virtplane.serving.responses import Response
from virtplane.serving.tls import ServersTLS

logger = logging.getLogger(__name__)

Review = Callable[[str, JsonObject], Awaitable[Response]]
"""Answers an admission request that came to a path. Raises StatusError, UnfitDocument."""

_RETRY_SECONDS = 2.0


class WebhookServer:
    """Answers admission reviews with what `review` says. Serves once it was given a certificate.

    With `requires_certificate` it answers the API server alone, by its front proxy's certificate.
    `servers_tls` restricts its TLS.
    """

    def __init__(
        self,
        client: Client,
        review: Review,
        port: int,
        host: str | None = None,
        *,
        requires_certificate: bool = False,
        servers_tls: ServersTLS | None = None,
    ) -> None:
        self._client = client
        self._review = review
        self._port = port
        self._host = host
        self._requires_certificate = requires_certificate
        self._proxy = ProxySettings()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if servers_tls is not None:
            servers_tls.restrict(self._tls)
        self._certified = asyncio.Event()
        self.is_serving = False

    def use(self, pair: KeyPair) -> None:
        """Serve with this certificate from the next connection on."""
        with tempfile.TemporaryDirectory() as directory:
            write_pair(Path(directory), pair)
            self._tls.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
        self._certified.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._certified.wait()
        if self._requires_certificate:
            self._proxy = await self._wait_for_proxy()
            self._tls.load_verify_locations(cadata=self._proxy.authorities)
            self._tls.verify_mode = ssl.CERT_OPTIONAL
        app = web.Application()
        app.router.add_post("/{path}", self._handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            # The API server comes with some connections at once, and nobody else is to come.
            counted = Connections(most_each=256)
            await CountedSite(runner, self._port, self._tls, counted, host=self._host or "").start()
            self.is_serving = True
            await asyncio.Event().wait()
        finally:
            self.is_serving = False
            await runner.cleanup()

    async def _wait_for_proxy(self) -> ProxySettings:
        """Wait until the API server has published the CA of its front proxy."""
        while True:
            try:
                found = await self._client.get(resources.CONFIG_MAPS, PROXY_CONFIG, "kube-system")
                proxy = ProxySettings.of(found)
                if proxy.authorities:
                    return proxy
                logger.warning(
                    "no webhook is served yet: ConfigMap kube-system/%s has no front proxy CA; trying again",
                    PROXY_CONFIG,
                )
            except (errors.StatusError, ConnectionFailed) as error:
                logger.warning(
                    "no webhook is served yet: ConfigMap kube-system/%s cannot be read, trying again: %s",
                    PROXY_CONFIG,
                    error,
                )
            await asyncio.sleep(_RETRY_SECONDS)

    async def _handle(self, request: web.Request) -> web.Response:
        if self._requires_certificate and not is_front_proxy(request.transport, self._proxy):
            return web.Response(status=401, text="request is not authenticated")
        review = await request.json()
        asked = get_object(review, "request")
        try:
            answer = await self._review(request.path, asked)
        except (errors.StatusError, UnfitDocument) as error:
            answer = Response.plain(str(error))
        return web.json_response(answer.review(review))
