"""The metrics of virt-api: connections to guests, and VMs that are created."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from tests.support.waiting import until
from tests.support.web import serve_app

from kubecore import resources
from kubecore.destinations import Destinations
from kubecore.json import JsonObject
from kubecore.runtime.metrics import exposition
from virtplane.api import resources as kinds
from virtplane.api.streams import SUBPROTOCOL
from virtplane.compute.apiserver.metrics import CONNECTIONS, MOST_REMEMBERED, ApiMetrics
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgents

from .conftest import BASE, VirtApi

_INSTANCE = {"namespace": "ns", "vmi": "vm"}
_LAST = "kubevirt_vmi_last_api_connection_timestamp_seconds"
_CREATED = "kubevirt_vm_created_by_pod_total"
_VMI: JsonObject = {
    "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
    "spec": {"domain": {"devices": {"clientPassthrough": {}}}},
    "status": {"phase": "Running", "nodeName": "n", "interfaces": [{"ipAddress": "127.0.0.1"}]},
}


def _registry(metrics: ApiMetrics) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(metrics)
    return registry


@asynccontextmanager
async def _node_agent() -> AsyncIterator[str]:
    """What virt-handler serves: streams that say nothing."""

    async def stream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await own.prepare(request)
        async for _ in own:
            pass
        return own

    app = web.Application()
    app.router.add_get("/{action}", stream)
    async with serve_app(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """virt-api reaches the agents of all nodes at one place, without TLS."""
    async with _node_agent() as url:

        async def base_url(*_: object) -> str:
            return url

        async def tls(_: object) -> ssl.SSLContext:
            return ssl.create_default_context()

        monkeypatch.setattr(NodeAgents, "base_url", base_url)
        monkeypatch.setattr(NodeAgents, "_tls", tls)
        yield


async def _until_connections(virt_api: VirtApi, action: str, wanted: int) -> None:
    registry, (name, _) = _registry(virt_api.metrics), CONNECTIONS[action]
    await until(lambda: registry.get_sample_value(name, _INSTANCE) == wanted)


@pytest.mark.parametrize("action", ["console", "vnc", "usbredir"])
async def test_who_is_connected_to_a_guest_is_counted(virt_api: VirtApi, agent: None, action: str) -> None:
    virt_api.cluster.put(kinds.VIRTUAL_MACHINE_INSTANCES, _VMI)
    url = f"{virt_api.url}{BASE}/namespaces/ns/virtualmachineinstances/vm/{action}"
    registry, before = _registry(virt_api.metrics), int(time.time())
    async with virt_api.session.ws_connect(url, protocols=[SUBPROTOCOL]):
        await _until_connections(virt_api, action, 1)
        assert registry.get_sample_value(_LAST, _INSTANCE) is None
        async with virt_api.session.ws_connect(url, protocols=[SUBPROTOCOL]):
            await _until_connections(virt_api, action, 2)
        await _until_connections(virt_api, action, 1)
    await _until_connections(virt_api, action, 0)
    ended = registry.get_sample_value(_LAST, _INSTANCE)
    assert ended is not None
    assert before <= ended <= time.time()


async def test_connections_to_ports_of_a_guest_are_counted(
    virt_api: VirtApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def anywhere(_: object, host: str) -> str:
        return host

    monkeypatch.setattr(Destinations, "resolve", anywhere)
    virt_api.cluster.put(kinds.VIRTUAL_MACHINE_INSTANCES, _VMI)
    owner = {"kind": "VirtualMachineInstance", "name": "vm", "uid": "u", "controller": True}
    own = {"kubevirt.io/created-by": "u"}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "labels": own, "ownerReferences": [owner]},
        "spec": {"nodeName": "n"},
        "status": {"podIP": "127.0.0.1"},
    }
    virt_api.cluster.put(resources.PODS, pod)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as guest:
        port = guest.sockets[0].getsockname()[1]
        url = f"{virt_api.url}{BASE}/namespaces/ns/virtualmachineinstances/vm/portforward/{port}"
        async with virt_api.session.ws_connect(url, protocols=[SUBPROTOCOL]):
            await _until_connections(virt_api, "portforward", 1)
        await _until_connections(virt_api, "portforward", 0)
    assert _registry(virt_api.metrics).get_sample_value(_LAST, _INSTANCE)


async def test_connections_that_do_not_come_about_are_not_counted(virt_api: VirtApi) -> None:
    answer = await virt_api.ask("GET", "/namespaces/ns/virtualmachineinstances/none/vnc")
    assert answer.status == 404
    assert b"{" not in exposition(_registry(virt_api.metrics))


def test_instances_that_nobody_is_connected_to_are_forgotten_some_time() -> None:
    metrics = ApiMetrics()
    with metrics.connection("vnc", "ns", "vm"), metrics.connection("vsock", "ns", "vm"):
        for number in range(MOST_REMEMBERED + 10):
            with metrics.connection("vnc", "ns", f"vm-{number}"):
                pass
            metrics.created(f"ns-{number}")
        found = {metric.name: metric.samples for metric in metrics.collect()}
    vnc = {sample.labels["vmi"]: sample.value for sample in found["kubevirt_vnc_active_connections"]}
    assert len(vnc) == MOST_REMEMBERED + 1
    assert (vnc["vm"], vnc["vm-10"]) == (1, 0)
    assert "vm-9" not in vnc
    assert len(found[_LAST]) == MOST_REMEMBERED
    created = [sample.labels["namespace"] for sample in found[_CREATED.removesuffix("_total")]]
    assert (len(created), created[0]) == (MOST_REMEMBERED, "ns-10")


async def test_machines_that_are_created_are_counted(virt_api: VirtApi) -> None:
    async def create(**more: object) -> bool:
        template = {"spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}}
        spec = {"runStrategy": "Halted", "template": template}
        vm = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec}
        request = {"uid": "1", "operation": "CREATE", "namespace": "ns", "name": "vm", "object": vm, **more}
        async with virt_api.session.post(
            f"{virt_api.url}/virtualmachines-validate", json={"request": request}
        ) as answer:
            return bool((await answer.json())["response"]["allowed"])

    registry = _registry(virt_api.metrics)
    assert await create()
    assert await create(namespace="other")
    assert await create()
    assert await create(dryRun=True)
    assert not await create(object={"metadata": {"name": "vm"}, "spec": {"template": {}}})
    assert registry.get_sample_value(_CREATED, {"namespace": "ns"}) == 2
    assert registry.get_sample_value(_CREATED, {"namespace": "other"}) == 1
