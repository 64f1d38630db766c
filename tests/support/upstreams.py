"""What an API server passes requests on to: a node, its pod, an aggregated API server, all on loopback."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import trustme
from aiohttp import web
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, generic_definition, sample_definitions

from kindling.apiserver.kinds import apiregistration
from kindling.apiserver.registry.definition import Subresource
from kubecore import resources

STREAMS = {
    name: Subresource(name, "Pod", ("create", "get"), connect=True) for name in ("log", "exec", "proxy")
}


@asynccontextmanager
async def upstream(app: web.Application) -> AsyncIterator[int]:
    """An HTTPS server on a free port of loopback."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    not_after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    authority.issue_cert("127.0.0.1", not_after=not_after).configure_cert(context)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def definitions() -> list[Any]:
    return [
        *sample_definitions(),
        generic_definition(resources.NODES),
        generic_definition(resources.PODS, subresources=STREAMS),
        generic_definition(resources.SERVICES),
        generic_definition(resources.ENDPOINTS),
        generic_definition(resources.ENDPOINT_SLICES),
        *apiregistration.definitions(),
    ]


async def add_pod(running: RunningServer, port: int) -> None:
    objects = running.server.objects
    endpoint = {"kubeletEndpoint": {"Port": port}}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    await objects.create(resources.NODES, {"metadata": {"name": "n"}})

    def status(node: dict[str, Any]) -> dict[str, Any]:
        node["status"] = {"addresses": addresses, "daemonEndpoints": endpoint}
        return node

    await objects.modify(resources.NODES, None, "n", status)
    spec = {"nodeName": "n", "containers": [{"name": "main"}]}
    await objects.create(resources.PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


def session(running: RunningServer) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cadata=running.ca_data.decode())
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context), headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
    )


async def add_service(running: RunningServer, port: int, address: str = "127.0.0.1", **spec: Any) -> None:
    """The service ``things`` with one endpoint."""
    objects = running.server.objects
    metadata = {"name": "things", "namespace": "default"}
    await objects.create(
        resources.SERVICES, {"metadata": dict(metadata), "spec": {"ports": [{"port": 443}], **spec}}
    )
    subsets = [{"addresses": [{"ip": address}], "ports": [{"port": port}]}]
    await objects.create(resources.ENDPOINTS, {"metadata": dict(metadata), "subsets": subsets})


async def add_aggregated(running: RunningServer, port: int) -> None:
    """The group ``things.example.com``, served on `port`; returns when it is available."""
    await add_service(running, port)
    spec = {
        "group": "things.example.com",
        "version": "v1",
        "service": {"namespace": "default", "name": "things", "port": 443},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
    }
    name = "v1.things.example.com"
    await running.server.objects.create(resources.API_SERVICES, {"metadata": {"name": name}, "spec": spec})
    async with running.client() as api:
        async for event in api.watch(resources.API_SERVICES, resource_version="0"):
            conditions = (event.object.get("status") or {}).get("conditions") or [{}]
            if event.object["metadata"]["name"] == name and conditions[0].get("status") == "True":
                return
