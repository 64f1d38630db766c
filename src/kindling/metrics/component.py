"""The metrics API's server, to which the API server proxies."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response

from kindling.metrics import documents, manifests
from kindling.metrics.documents import NODE_METRICS, POD_METRICS
from kindling.metrics.samples import NodeUsage
from kindling.metrics.scraping import Agent, Scraper, agent_of, reader
from kindling.node.server import http
from kubecore import errors
from kubecore.client import Client, ClientConfig, ConnectionFailed
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.selectors import SelectorError, parse_label_selector
from kubecore.resources import ENDPOINTS, NODES, PODS
from kubecore.runtime import Informer

_log = logging.getLogger(__name__)

_ROOT = ("apis", documents.GROUP, documents.VERSION)
_RETRY_SECONDS = 1.0
_RUNNING = "status.phase=Running"


@dataclass(frozen=True)
class ComponentSettings:
    """Certificates and keys are PEM files. Callers must have a certificate of `proxy_ca`: the API server,
    which has authenticated and authorized the request that it sends on.
    """

    api: ClientConfig
    address: str
    tls_cert: Path
    tls_key: Path
    proxy_ca: Path
    node_ca: Path
    client_cert: Path
    client_key: Path


async def run(settings: ComponentSettings) -> None:
    """Serve until cancelled."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.proxy_ca)
    tls.load_cert_chain(settings.tls_cert, settings.tls_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    towards_nodes = ssl.create_default_context(cafile=settings.node_ca)
    towards_nodes.load_cert_chain(settings.client_cert, settings.client_key)

    async def allow(_peer: http.Peer, _request: BaseRequest) -> None:
        """Whoever has a certificate of the proxies' authority may ask."""

    async with Client(settings.api) as client, aiohttp.ClientSession() as session:
        api = MetricsApi(client, Scraper(reader(session, towards_nodes)))
        async with http.serving(api.handle, settings.address, 0, tls, allow) as port:
            await _publish(client, manifests.subsets(settings.address, port))


async def _publish(client: Client, subsets: Sequence[JsonObject]) -> None:
    """Keep the service's endpoints up to date, unless they belong to another server. Runs until cancelled."""
    changed = asyncio.Event()
    informer: Informer[JsonObject] = Informer(
        client,
        ENDPOINTS,
        namespace=manifests.NAMESPACE,
        field_selector=f"metadata.name={manifests.SERVICE}",
    )
    informer.add_handler(lambda *_: changed.set())
    async with asyncio.TaskGroup() as group:
        group.create_task(informer.run(), name="metrics-endpoints")
        while True:
            await changed.wait()
            changed.clear()
            found = informer.get(manifests.NAMESPACE, manifests.SERVICE)
            own = found is not None and manifests.OWN_LABEL.items() <= meta.labels(found).items()
            if found is None or not own or found.get("subsets") == list(subsets):
                continue
            patch = {"subsets": list(subsets)}
            try:
                await client.patch(ENDPOINTS, manifests.SERVICE, patch, manifests.NAMESPACE, type="merge")
            except (errors.StatusError, ConnectionFailed) as error:
                _log.warning("the address of the metrics API is not published, trying again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                changed.set()


class MetricsApi:
    """Answers requests for metrics of nodes and pods."""

    def __init__(self, client: Client, scraper: Scraper) -> None:
        self._client = client
        self._scraper = scraper

    async def handle(self, request: BaseRequest) -> Response:
        """Answer one request."""
        try:
            document = await self._answer(request)
        except errors.StatusError as error:
            return _json(error.to_status(), error.code)
        except ConnectionFailed as error:
            failure = errors.service_unavailable(str(error))
            return _json(failure.to_status(), failure.code)
        return _json(document, 200)

    async def _answer(self, request: BaseRequest) -> JsonObject:
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        parts = tuple(part for part in request.path.split("/") if part)
        if parts[:3] != _ROOT:
            raise errors.page_not_found()
        match parts[3:]:
            case ():
                return documents.resources()
            case ("nodes",):
                return await self._list_nodes(request)
            case ("nodes", name):
                return await self._get_node(name)
            case ("pods",):
                return await self._list_pods(request, "")
            case ("namespaces", namespace, "pods"):
                return await self._list_pods(request, namespace)
            case ("namespaces", namespace, "pods", name):
                return await self._get_pod(namespace, name)
        raise errors.page_not_found()

    async def _list_nodes(self, request: BaseRequest) -> JsonObject:
        labels, fields = _selectors(request)
        chosen = get_list(
            await self._client.list(NODES, label_selector=labels, field_selector=fields), "items"
        )
        usages = await self._scraper.usages(_agents(chosen))
        items = [
            documents.node_metrics(node, usages[meta.name(node)])
            for node in chosen
            if meta.name(node) in usages
        ]
        return documents.listing(NODE_METRICS, items)

    async def _get_node(self, name: str) -> JsonObject:
        chosen = [node for node in await self._nodes() if meta.name(node) == name]
        usages = await self._scraper.usages(_agents(chosen))
        if name not in usages:
            raise documents.missing(NODE_METRICS, "", name)
        return documents.node_metrics(chosen[0], usages[name])

    async def _list_pods(self, request: BaseRequest, namespace: str) -> JsonObject:
        labels, fields = _selectors(request)
        running = f"{fields},{_RUNNING}" if fields else _RUNNING
        found = await self._client.list(
            PODS, namespace or None, label_selector=labels, field_selector=running
        )
        pods = get_list(found, "items")
        return documents.listing(POD_METRICS, await self._of_pods(pods))

    async def _get_pod(self, namespace: str, name: str) -> JsonObject:
        try:
            pod = await self._client.get(PODS, name, namespace)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                raise documents.missing(POD_METRICS, namespace, name) from error
            raise
        found = await self._of_pods([pod])
        if not found:
            raise documents.missing(POD_METRICS, namespace, name)
        return found[0]

    async def _of_pods(self, pods: Sequence[JsonObject]) -> list[JsonObject]:
        """The metrics of pods, as the node of each tells them and no other."""
        hosts = {get_str(pod, "spec", "nodeName") for pod in pods}
        nodes = [node for node in await self._nodes() if meta.name(node) in hosts] if hosts else []
        usages = await self._scraper.usages(_agents(nodes))
        found = [_of_pod(pod, usages) for pod in pods]
        return [each for each in found if each is not None]

    async def _nodes(self) -> list[JsonObject]:
        nodes = get_list(await self._client.list(NODES), "items")
        self._scraper.retain({meta.name(node) for node in nodes})
        return nodes


def _of_pod(pod: JsonObject, usages: dict[str, NodeUsage]) -> JsonObject | None:
    usage = usages.get(get_str(pod, "spec", "nodeName"))
    return documents.pod_metrics(pod, usage) if usage is not None else None


def _agents(nodes: Sequence[JsonObject]) -> list[Agent]:
    return [agent for node in nodes if (agent := agent_of(node)) is not None]


def _selectors(request: BaseRequest) -> tuple[str, str]:
    """The label and field selector of a request. Raises StatusError."""
    text = request.query.get("labelSelector", "")
    try:
        parse_label_selector(text)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    return text, request.query.get("fieldSelector", "")


def _json(document: JsonObject, status: int) -> Response:
    return Response(status=status, body=orjson.dumps(document), content_type="application/json")
