"""The HTTPS server of the operator's webhooks."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from pathlib import Path

from aiohttp import web

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.api import resources as api
from virtplane.compute.apiserver.admission.response import Response
from virtplane.operator import validation
from virtplane.operator.certificates import KeyPair
from virtplane.operator.mirror import write_pair

logger = logging.getLogger(__name__)

_BLOCKING: tuple[tuple[ResourceType, str], ...] = (
    (api.VIRTUAL_MACHINE_INSTANCES, "Virtual Machine Instances"),
    (api.VIRTUAL_MACHINES, "Virtual Machines"),
    (api.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS, "Virtual Machine Instance Replica Sets"),
)


class OperatorWebhooks:
    """Answers admission reviews of the KubeVirt object. Serves once it was given a certificate."""

    def __init__(self, client: Client, port: int, host: str | None = None) -> None:
        self._client = client
        self._port = port
        self._host = host
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
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
        app = web.Application()
        app.router.add_post("/{path}", self._handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, ssl_context=self._tls).start()
            self.is_serving = True
            await asyncio.Event().wait()
        finally:
            self.is_serving = False
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        review = await request.json()
        asked = get_object(review, "request")
        try:
            answer = await self._review(request.path, asked)
        except errors.StatusError as error:
            answer = Response.plain(str(error))
        return web.json_response(answer.review(review))

    async def _review(self, path: str, request: JsonObject) -> Response:
        if path == "/kubevirt-validate-create":
            existing = (await self._client.list(api.KUBEVIRTS)).get("items") or []
            return validation.review_create(len(existing))
        if path == "/kubevirt-validate-update":
            return validation.review_update(get_object(request, "object"), get_object(request, "oldObject"))
        if path == "/kubevirt-validate-delete":
            return await self._review_delete(request)
        return Response.plain(f"unknown webhook {path}")

    async def _review_delete(self, request: JsonObject) -> Response:
        kubevirt = get_object(request, "oldObject")
        if not kubevirt.get("metadata"):
            kubevirt = await self._client.get(
                api.KUBEVIRTS, get_str(request, "name"), get_str(request, "namespace")
            )
        present = []
        if validation.blocks_removal(kubevirt):
            for resource, what in _BLOCKING:
                if (await self._client.list(resource, limit=1)).get("items"):
                    present.append(what)
        return validation.review_delete(kubevirt, present)
