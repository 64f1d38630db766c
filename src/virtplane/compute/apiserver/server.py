"""virt-api: webhooks and the aggregated API of subresources, over HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.runtime import Context, Manager
from virtplane import KUBEVIRT_VERSION
from virtplane.api import paths, ports
from virtplane.api import resources as kinds
from virtplane.api.config import VERSION_DETAIL, ClusterConfig, LastGood, observed_version
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.compute.apiserver import authorization, discovery, webhooks
from virtplane.compute.apiserver.expansion import Expander
from virtplane.compute.apiserver.subresources.instances import Instances
from virtplane.compute.apiserver.subresources.machines import Machines
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgents
from virtplane.serving import frontproxy, https
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE, ProxySettings
from virtplane.serving.rights import Authorizer

DEFAULT_CERTIFICATES = Path(paths.API_CERTIFICATES)
_MAX_BODY = 16 * 1024 * 1024

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class VirtApi:
    """The component ``virt-api``."""

    name = "virt-api"

    async def run(self, context: Context) -> None:
        """Serve until cancelled; certificates are read again when they change."""
        client = context.client(self.name)
        manager = Manager(client)
        requires_certificate = bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE))
        served = Served(client, manager, context.namespace, requires_certificate)
        port = int(context.settings.get("api_port") or ports.API)
        certificates = Path(context.settings.get("api_certificates") or DEFAULT_CERTIFICATES)
        serving = asyncio.Event()
        context.health.add_ready(self.name, lambda: "" if serving.is_set() else "not serving yet")
        endpoint = https.Endpoint(self.name, certificates, port)
        manager.add_runnable("https", lambda: https.serve(client, served, endpoint, serving))
        await manager.run()


class Served:
    """The state of the server. `proxy` changes with the API server's settings.

    With `webhooks_need_certificate`, webhooks accept only the API server, which must send the certificate of
    its front proxy; it does so only if configured to (KubeVirt's webhooks accept every client).
    """

    def __init__(
        self, client: Client, manager: Manager, namespace: str, webhooks_need_certificate: bool = False
    ) -> None:
        self.proxy = ProxySettings()
        self._webhooks_need_certificate = webhooks_need_certificate
        self._client = client
        self._namespace = namespace
        self._configuration = LastGood()
        self._kubevirts = manager.informer(kinds.KUBEVIRTS)
        self._authorizer = Authorizer(client)
        self._webhooks = webhooks.Webhooks(client)
        expander = Expander(client, self.config)
        agents = NodeAgents(client, namespace)
        self._instances = Instances(client, agents, expander, self._settings)
        self._machines = Machines(client, self._instances)

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
        # As Go's servers do, on whom clients rely that put a slash before a path which has one.
        plain_path = web.normalize_path_middleware(
            append_slash=False, redirect_class=web.HTTPMovedPermanently
        )
        app = web.Application(middlewares=[plain_path, self._guard], client_max_size=_MAX_BODY)
        router = app.router
        for path, document in (
            ("/", discovery.root_paths),
            ("/apis", discovery.groups),
            (f"/apis/{SUBRESOURCES_GROUP}", discovery.group),
            (f"/apis/{SUBRESOURCES_GROUP}/", discovery.group),
            ("/openapi/v2", discovery.openapi_v2),
            ("/openapi/v3", discovery.openapi_v3_index),
        ):
            router.add_get(path, _document(document))
        for version in SUBRESOURCES_VERSIONS:
            self._add_version(router, version)
        router.add_get("/healthz", self._healthz)
        for path in webhooks.PATHS:
            router.add_post(path, self._review)
        return app

    def _add_version(self, router: web.UrlDispatcher, version: str) -> None:
        base = f"/apis/{SUBRESOURCES_GROUP}/{version}"
        for end in ("", "/"):
            router.add_get(base + end, _document(lambda: discovery.resource_list(version)))
        router.add_get(f"/openapi/v3/apis/{SUBRESOURCES_GROUP}/{version}", _document(discovery.openapi_v3))
        router.add_get(f"{base}/version", _document(lambda: discovery.version(KUBEVIRT_VERSION)))
        router.add_get(f"{base}/guestfs", self._guestfs)
        router.add_get(f"{base}/healthz", self._healthz)
        instance = base + "/namespaces/{namespace}/virtualmachineinstances/{name}"
        for method, path, handler in self._instances.routes():
            router.add_route(method, f"{instance}/{path}", handler)
        machine = base + "/namespaces/{namespace}/virtualmachines/{name}"
        for method, path, handler in _machine_routes(self._machines):
            router.add_route(method, f"{machine}/{path}", handler)
        router.add_put(base + "/namespaces/{namespace}/expand-vm-spec", self._machines.expand_given)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Authentication, authorization, content negotiation, and errors in the forms that clients know.

        A slash that is encoded separates for some readers of a path and not for others. The API server never
        sends one, and no name has one.
        """
        if "%2f" in request.rel_url.raw_path.lower():
            return web.Response(status=404, text="404: Page Not Found")
        try:
            refusal = await self._refusal(request)
            if refusal is not None:
                return refusal
            return await handler(request)
        except StatusError as error:
            return web.json_response(error.to_status(), status=error.code)
        except web.HTTPNotFound:
            return web.Response(status=404, text="404: Page Not Found")
        except web.HTTPMethodNotAllowed:
            return web.Response(status=405, text="405: Method Not Allowed")
        except ConnectionFailed as error:
            return web.Response(status=500, text=str(error))

    async def _refusal(self, request: web.Request) -> web.Response | None:
        if authorization.is_open(request.path):
            return None
        is_front_proxy = frontproxy.is_front_proxy(request.transport, self.proxy)
        if request.path in webhooks.PATHS and (is_front_proxy or not self._webhooks_need_certificate):
            return None
        user = frontproxy.user_of(request.headers.items(), self.proxy) if is_front_proxy else None
        if user is None:
            return web.Response(status=401, text="request is not authenticated")
        wanted = authorization.attributes(request.method, request.path)
        if wanted is None:
            return web.Response(status=401, text="unknown api endpoint")
        denial = await self._authorizer.refusal(user, wanted)
        if denial:
            return web.Response(status=401, text=denial)
        if not _accepts(request):
            return web.Response(status=406, text="406: Not Acceptable\n\nAvailable representations: ")
        return None

    async def _review(self, request: web.Request) -> web.Response:
        review = await request.json()
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
            return web.json_response({"registry": registry, "tag": tag, "imagePrefix": "", "gsImage": ""})
        failed = {"guestfs": {"status": "failed", "error": "no KubeVirt object found"}}
        return web.json_response(failed, status=500)


def _machine_routes(machines: Machines) -> list[tuple[str, str, _Handler]]:
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


def _document(build: Callable[[], JsonObject]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(build())

    return handle


def _accepts(request: web.Request) -> bool:
    """Whether the client takes what comes. Answers without body have no type, so only ``*/*`` takes them."""
    accept = request.headers.get("Accept", "*/*")
    types = {part.partition(";")[0].strip() for part in accept.split(",")}
    if "*/*" in types or not accept.strip():
        return True
    has_body = request.method == "GET" or request.path.endswith("/expand-vm-spec")
    return has_body and "application/json" in types
