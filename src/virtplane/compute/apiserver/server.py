"""virt-api: webhooks and the aggregated API of subresources, over HTTPS."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import orjson
from aiohttp import web

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.runtime import Context, Manager
from kubecore.runtime.access import TokenAccess
from kubecore.runtime.health import MetricsPage
from kubecore.runtime.metrics import collected
from virtplane import KUBEVIRT_VERSION
from virtplane.api import paths, ports
from virtplane.api import resources as kinds
from virtplane.api.config import (
    API_WEBHOOKS,
    VERSION_DETAIL,
    ClusterConfig,
    LastGood,
    observed_version,
    readers_client,
)
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.api.vnc_access import GATE, ISSUER, TOKEN_GROUP, TOKEN_VERSIONS
from virtplane.compute.apiserver import authorization, discovery, openapi, webhooks
from virtplane.compute.apiserver.expansion import Expander
from virtplane.compute.apiserver.subresources.clusterprofiler import ClusterProfiler
from virtplane.compute.apiserver.subresources.instances import Instances
from virtplane.compute.apiserver.subresources.machines import Machines
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgents
from virtplane.compute.apiserver.vnctokens.requests import Tokens
from virtplane.serving import https
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE
from virtplane.serving.gate import Gate, Guarded, Handler, document
from virtplane.serving.rights import Authorizer
from virtplane.serving.tls import ServersTLS

DEFAULT_CERTIFICATES = Path(paths.API_CERTIFICATES)
_MAX_BODY = 16 * 1024 * 1024


class VirtApi:
    """The component ``virt-api``."""

    name = "virt-api"

    async def run(self, context: Context) -> None:
        """Serve until cancelled; certificates are read again when they change."""
        client = context.client(self.name)
        manager = Manager(client)
        requires_certificate = bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE))
        review = webhooks.Webhooks(context.client(API_WEBHOOKS))
        served = Served(
            client,
            manager,
            context.namespace,
            review,
            requires_certificate,
            issuing=context.client(ISSUER),
            metrics=MetricsPage(
                context.registry, TokenAccess(context.client(readers_client(self.name))).status
            ),
        )
        port = int(context.settings.get("api_port") or ports.API)
        certificates = Path(context.settings.get("api_certificates") or DEFAULT_CERTIFICATES)
        serving = asyncio.Event()
        context.health.add_ready(self.name, lambda: "" if serving.is_set() else "not serving yet")
        endpoint = https.Endpoint(self.name, certificates, port, servers_tls=ServersTLS.of(context))
        manager.add_runnable("https", lambda: https.serve(client, served, endpoint, serving))
        with collected(context.registry, review.metrics):
            await manager.run()


class Served:
    """The state of the server."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        namespace: str,
        review: webhooks.Webhooks,
        webhooks_need_certificate: bool = False,
        *,
        issuing: Client | None = None,
        metrics: MetricsPage | None = None,
    ) -> None:
        """`issuing` is the client that makes tokens for displays, unless `client` may do so itself.

        `metrics` are served here, too, where those of KubeVirt's virt-api are.
        """
        guarded = Guarded(webhooks.PATHS, authorization.is_open, authorization.attributes, _accepts)
        authorizer = Authorizer(client)
        self.gate = Gate(authorizer, guarded, webhooks_need_certificate=webhooks_need_certificate)
        self._client = client
        self._namespace = namespace
        self._configuration = LastGood()
        self._kubevirts = manager.informer(kinds.KUBEVIRTS)
        self._webhooks = review
        self._metrics = metrics
        expander = Expander(client, self.config)
        agents = NodeAgents(client, namespace)
        self._instances = Instances(client, agents, expander, self._settings, review.metrics)
        self._machines = Machines(client, self._instances)
        self._profiler = ClusterProfiler(client, namespace, self.config)
        self._tokens = Tokens(authorizer, issuing or client, lambda: self.config().gate(GATE))

    async def _settings(self) -> ClusterConfig:
        return self.config()

    def config(self) -> ClusterConfig:
        """The installation's configuration now; the last good one where the present one is not."""
        return self._configuration.of(self._kubevirt())

    def _kubevirt(self) -> JsonObject | None:
        found = self._kubevirts.list()
        own = [item for item in found if meta.namespace(item) == self._namespace]
        return next(iter([*own, *found]), None)

    def application(self) -> web.Application:
        """The web application."""
        app = self.gate.application(_MAX_BODY)
        router = app.router
        for path, build in (
            ("/", discovery.root_paths),
            ("/apis", discovery.groups),
            (f"/apis/{SUBRESOURCES_GROUP}", discovery.group),
            (f"/apis/{SUBRESOURCES_GROUP}/", discovery.group),
            (f"/apis/{TOKEN_GROUP}", discovery.token_group),
            (f"/apis/{TOKEN_GROUP}/", discovery.token_group),
            ("/openapi/v3", openapi.index_v3),
        ):
            router.add_get(path, document(build))
        for version in SUBRESOURCES_VERSIONS:
            self._add_version(router, version)
        for version in TOKEN_VERSIONS:
            self._add_tokens(router, version)
        router.add_get("/healthz", self._healthz)
        for path in webhooks.PATHS:
            router.add_post(path, self._review)
        _describe(router)
        if self._metrics is not None:
            router.add_get("/metrics", _page(self._metrics))
        return app

    def _add_version(self, router: web.UrlDispatcher, version: str) -> None:
        base = f"/apis/{SUBRESOURCES_GROUP}/{version}"
        for end in ("", "/"):
            router.add_get(base + end, document(lambda: discovery.resource_list(version)))
        router.add_get(f"{base}/version", document(lambda: discovery.version(KUBEVIRT_VERSION)))
        router.add_get(f"{base}/guestfs", self._guestfs)
        router.add_get(f"{base}/healthz", self._healthz)
        router.add_get(f"{base}/start-cluster-profiler", self._profiler.start)
        router.add_get(f"{base}/stop-cluster-profiler", self._profiler.stop)
        router.add_get(f"{base}/dump-cluster-profiler", self._profiler.dump)
        instance = base + "/namespaces/{namespace}/virtualmachineinstances/{name}"
        for method, path, handler in self._instances.routes():
            router.add_route(method, f"{instance}/{path}", handler)
        machine = base + "/namespaces/{namespace}/virtualmachines/{name}"
        for method, path, handler in _machine_routes(self._machines):
            router.add_route(method, f"{machine}/{path}", handler)
        router.add_put(base + "/namespaces/{namespace}/expand-vm-spec", self._machines.expand_given)

    def _add_tokens(self, router: web.UrlDispatcher, version: str) -> None:
        base = f"/apis/{TOKEN_GROUP}/{version}"
        for end in ("", "/"):
            router.add_get(base + end, document(lambda: discovery.token_resource_list(version)))
        router.add_get(base + "/namespaces/{namespace}/virtualmachines/{name}/vnc", self._tokens.create)

    async def _review(self, request: web.Request) -> web.Response:
        try:
            review = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            return web.Response(status=400, text=str(error))
        return web.json_response(await self._webhooks.review(request.path, review, self.config()))

    async def _healthz(self, request: web.Request) -> web.Response:
        known = {VERSION_DETAIL: observed_version(self._kubevirt())}
        try:
            await self._client.request("GET", "/version")
        except (StatusError, ConnectionFailed) as error:
            failed = {"apiserver": {"connectivity": "failed", "error": str(error)}, **known}
            return web.json_response(failed, status=500)
        return web.json_response({"apiserver": {"connectivity": "ok"}, **known})

    async def _guestfs(self, request: web.Request) -> web.Response:
        listing = await self._client.list(kinds.KUBEVIRTS, self._namespace)
        for kubevirt in get_list(listing, "items"):
            status = get_object(kubevirt, "status")
            registry, tag = status.get("observedKubeVirtRegistry"), status.get("observedKubeVirtVersion")
            image = guestfs_image(status)
            return web.json_response({"registry": registry, "tag": tag, "imagePrefix": "", "gsImage": image})
        failed = {"guestfs": {"status": "failed", "error": "no KubeVirt object found"}}
        return web.json_response(failed, status=500)


def _page(metrics: MetricsPage) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        answer = await metrics.answer(request.path, request.headers)
        headers = {"Content-Type": answer.content_type}
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    return handle


def guestfs_image(status: JsonObject) -> str:
    """The image of ``virtctl guestfs`` that a KubeVirt object's `status` names; empty if none."""
    try:
        config = json.loads(get_str(status, "observedDeploymentConfig"))
    except ValueError:
        return ""
    return get_str(config, "gsImage") if isinstance(config, dict) else ""


def _describe(router: web.UrlDispatcher) -> None:
    """Serve the OpenAPI documents of the routes that are there."""
    routes = [(route.method, route.resource.canonical) for route in router.routes() if route.resource]
    router.add_get("/openapi/v2", document(lambda: openapi.document_v2(routes)))
    for group, version in openapi.GROUP_VERSIONS:
        described = document(partial(openapi.document_v3, routes, group, version))
        router.add_get(f"/openapi/v3/apis/{group}/{version}", described)


def _machine_routes(machines: Machines) -> list[tuple[str, str, Handler]]:
    return [
        ("PUT", "start", machines.start),
        ("PUT", "stop", machines.stop),
        ("PUT", "restart", machines.restart),
        ("PUT", "migrate", machines.migrate),
        ("GET", "expand-spec", machines.expand_spec),
        ("PUT", "addvolume", machines.add_volume),
        ("PUT", "removevolume", machines.remove_volume),
        ("PUT", "memorydump", machines.memory_dump),
        ("PUT", "removememorydump", machines.remove_memory_dump),
        ("GET", "portforward/{port}", machines.port_forward),
        ("GET", "portforward/{port}/{protocol}", machines.port_forward),
        ("GET", "objectgraph", machines.object_graph),
        ("PUT", "evacuate/cancel", machines.cancel_evacuation),
    ]


def _accepts(request: web.Request) -> bool:
    """Whether the client takes what comes. Answers without body have no type, so only ``*/*`` takes them."""
    accept = request.headers.get("Accept", "*/*")
    types = {part.partition(";")[0].strip() for part in accept.split(",")}
    if "*/*" in types or not accept.strip():
        return True
    has_body = request.method == "GET" or request.path.endswith("/expand-vm-spec")
    return has_body and "application/json" in types
