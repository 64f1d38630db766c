"""The HTTPS server of the operator's webhooks."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from pathlib import Path

from aiohttp import web

from kubecore import errors, resources
from kubecore.client import Client, ConnectionFailed
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import ResourceType
from virtplane.api import resources as api
from virtplane.compute.apiserver.admission.response import Response
from virtplane.compute.apiserver.authorization import PROXY_CONFIG, ProxySettings, is_front_proxy
from virtplane.operators.kit.certificates import KeyPair
from virtplane.operators.kit.mirror import write_pair
from virtplane.operators.kubevirt import validation

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0

_BLOCKING: tuple[tuple[ResourceType, str], ...] = (
    (api.VIRTUAL_MACHINE_INSTANCES, "Virtual Machine Instances"),
    (api.VIRTUAL_MACHINES, "Virtual Machines"),
    (api.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS, "Virtual Machine Instance Replica Sets"),
)


class OperatorWebhooks:
    """Answers admission reviews of the KubeVirt object. Serves once it was given a certificate.

    With `requires_certificate` it answers the API server alone, by its front proxy's certificate.
    """

    def __init__(
        self, client: Client, port: int, host: str | None = None, *, requires_certificate: bool = False
    ) -> None:
        self._client = client
        self._port = port
        self._host = host
        self._requires_certificate = requires_certificate
        self._proxy = ProxySettings()
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
        if self._requires_certificate:
            self._proxy = await self._wait_for_proxy()
            self._tls.load_verify_locations(cadata=self._proxy.authorities)
            self._tls.verify_mode = ssl.CERT_OPTIONAL
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

    async def _review(self, path: str, request: JsonObject) -> Response:
        if path == "/kubevirt-validate-create":
            existing = (await self._client.list(api.KUBEVIRTS)).get("items") or []
            return validation.review_create(get_object(request, "object"), len(existing))
        if path == "/kubevirt-validate-update":
            return await self._review_update(request)
        if path == "/kubevirt-validate-delete":
            return await self._review_delete(request)
        return Response.plain(f"unknown webhook {path}")

    async def _review_update(self, request: JsonObject) -> Response:
        new, old = get_object(request, "object"), get_object(request, "oldObject")
        refusal = validation.unreadable(new)
        if refusal is not None:
            return refusal
        found = []
        for resource, probe in validation.placement_probes(new, old):
            try:
                await self._client.create(resource, probe, get_str(request, "namespace"), dry_run=True)
            except errors.StatusError as error:
                found.append(error.message)
        return validation.review_update(new, old, found)

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
