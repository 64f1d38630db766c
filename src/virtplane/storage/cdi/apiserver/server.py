"""cdi-apiserver: the component, and what it serves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import orjson
from aiohttp import web

from kubecore.client import Client
from kubecore.json import get_object
from kubecore.runtime import Context, Manager
from virtplane.api import paths, ports
from virtplane.serving import https
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE
from virtplane.serving.gate import Gate, Guarded, document
from virtplane.serving.lookups import ClientLookups
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.apiserver import discovery
from virtplane.storage.cdi.apiserver.requests import Services
from virtplane.storage.cdi.apiserver.reviews import WEBHOOKS, review
from virtplane.storage.cdi.apiserver.signing import SigningKey
from virtplane.storage.cdi.apiserver.uploads import Uploads
from virtplane.storage.cdi.tls import servers_tls

logger = logging.getLogger(__name__)

_MAX_BODY = 16 * 1024 * 1024


class CdiApiServer:
    """The component ``cdi-apiserver``."""

    name = "cdi-apiserver"

    async def run(self, context: Context) -> None:
        """Serve until cancelled; certificates are read again when they change."""
        client = context.client(self.name)
        manager = Manager(client)
        key = SigningKey(client, context.namespace)
        requires_certificate = bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE))
        served = Served(client, key, webhooks_need_certificate=requires_certificate)
        certificates = Path(context.settings.get("cdi_api_certificates") or paths.CDI_API_CERTIFICATES)
        port = int(context.settings.get("cdi_api_port") or ports.CDI_API)
        endpoint = https.Endpoint(self.name, certificates, port, servers_tls(manager))
        serving = asyncio.Event()
        context.health.add_ready(self.name, lambda: _unready(serving, key))
        manager.add_runnable("signing-key", key.run)
        manager.add_runnable("https", lambda: https.serve(client, served, endpoint, serving))
        await manager.run()


def _unready(serving: asyncio.Event, key: SigningKey) -> str:
    if key.signer is None:
        return "there is no key to sign tokens with yet"
    return "" if serving.is_set() else "not serving yet"


class Served:
    """Webhooks and the upload API."""

    def __init__(self, client: Client, key: SigningKey, *, webhooks_need_certificate: bool = False) -> None:
        self._authorizer = Authorizer(client)
        self._lookups = ClientLookups(client)
        self._key = key
        self._uploads = Uploads(lambda: key.signer)
        guarded = Guarded(WEBHOOKS.keys(), discovery.is_open, discovery.attributes)
        self.gate = Gate(self._authorizer, guarded, webhooks_need_certificate=webhooks_need_certificate)

    def application(self) -> web.Application:
        """The web application."""
        app = self.gate.application(_MAX_BODY)
        router = app.router
        for path, build in (
            ("/", discovery.root_paths),
            ("/apis", discovery.groups),
            (discovery.GROUP_PATH, discovery.group),
            (f"{discovery.GROUP_PATH}/", discovery.group),
            (discovery.VERSION_PATH, discovery.resource_list),
            (f"{discovery.VERSION_PATH}/", discovery.resource_list),
            ("/openapi/v2", discovery.openapi_v2),
            ("/openapi/v3", discovery.openapi_v3_index),
            (f"/openapi/v3{discovery.VERSION_PATH}", discovery.openapi_v3),
        ):
            router.add_get(path, document(build))
        router.add_get("/healthz", _healthz)
        router.add_post(discovery.OBJECT_PATH, self._uploads.create)
        for path in WEBHOOKS:
            router.add_post(path, self._review)
        return app

    async def _review(self, request: web.Request) -> web.Response:
        try:
            asked = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            return web.Response(status=400, text=str(error))
        services = Services(self._lookups, self._authorizer, self._key.signer, self._key.namespace)
        answer = await review(request.path, get_object(asked, "request"), services)
        return web.json_response(answer.review(asked))


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="OK")
