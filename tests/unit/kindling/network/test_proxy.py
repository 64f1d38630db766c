"""The service proxy at work on a node, in the loop that it runs in."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from tests.support.dialling import listening
from tests.support.routed_pods import GATEWAY, RoutedPods, routed_pods
from tests.support.waiting import until

from kindling.network import flows, nftables, proxy
from kindling.network.proxy import ProxyPlace, ServiceNetwork
from kindling.network.services import Backend
from kubecore.client import ClientConfig
from kubecore.resources import ENDPOINT_SLICES, SERVICES
from kubecore.testing import MemoryApi

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

SERVICE, PORT, CHECKS = "10.64.240.9", 80, 32003


@pytest.fixture
def network() -> Iterator[RoutedPods]:
    with ExitStack() as stack:
        made = stack.enter_context(routed_pods(["client", "server"]))
        stack.enter_context(listening(made.pods["server"], [(made.address("server"), PORT)]))
        yield made


def service(**spec: Any) -> dict[str, Any]:
    port = {"name": "web", "port": PORT, "protocol": "TCP"}
    whole = {"type": "ClusterIP", "clusterIP": SERVICE, "clusterIPs": [SERVICE], "ports": [port], **spec}
    return {"metadata": {"name": "web", "namespace": "lab"}, "spec": whole}


def slices(*addresses: str) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "web"}
    return {
        "metadata": {"name": "web-1", "namespace": "lab", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [each], "nodeName": "node01"} for each in addresses],
    }


def made(network: RoutedPods) -> ServiceNetwork:
    return ServiceNetwork(
        ClientConfig(server="memory://"),
        [ProxyPlace("node01", network.namespace, ("10.64.1.0/24",), (GATEWAY,), (), GATEWAY)],
        table="t",
        subnets=["10.64.0.0/16"],
        bridge="",
        dns_service="10.64.240.10",
        dns_address="127.0.0.1",
        upstream_servers=(),
    )


def test_services_come_and_go(
    network: RoutedPods, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy, "_RETRY_SECONDS", 0.05)
    api = MemoryApi()
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": CHECKS}
    load = nftables.load

    def reached(port: int = PORT, address: str = SERVICE) -> bool:
        return network.reaches("client", address, port)

    async def refuse(*_: object) -> None:
        raise nftables.RulesRefused("not now")

    async def work() -> None:
        async with api.client() as client:
            working = asyncio.create_task(made(network).follow(client))
            api.put(SERVICES, service())
            api.put(ENDPOINT_SLICES, slices(network.address("server")))
            await until(reached)
            api.put(SERVICES, service(**local))
            await until(lambda: reached(CHECKS, GATEWAY))
            assert reached()
            monkeypatch.setattr(nftables, "load", refuse)
            api.put(ENDPOINT_SLICES, slices())
            await until(lambda: "not now" in caplog.text)
            assert reached(), "what was loaded stays"
            monkeypatch.setattr(nftables, "load", load)
            await until(lambda: not reached())
            api.put(ENDPOINT_SLICES, slices(network.address("server")))
            await until(reached)
            api.remove(SERVICES, "web", "lab")
            await until(lambda: not reached() and not reached(CHECKS, GATEWAY))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    uvloop.run(work())


def test_udp_clients_follow_their_service(
    network: RoutedPods, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy, "_RETRY_SECONDS", 0.05)
    api = MemoryApi()
    asked: list[list[flows.Flows]] = []
    gone, server = "10.64.1.99", network.address("server")
    lost = flows.Flows(SERVICE, PORT, Backend(gone, PORT))

    async def forget(found: list[flows.Flows], version: int, _namespace: object) -> None:
        if version == 4:
            asked.append(found)
        if len(asked) == 2:
            raise flows.FlowsKept("not now")

    def udp(document: dict[str, Any]) -> dict[str, Any]:
        ports = document.get("ports") or document["spec"]["ports"]
        ports[0]["protocol"] = "UDP"
        return document

    async def work() -> None:
        monkeypatch.setattr(flows, "forget", forget)
        async with api.client() as client:
            api.put(SERVICES, udp(service()))
            api.put(ENDPOINT_SLICES, udp(slices(gone, server)))
            working = asyncio.create_task(made(network).follow(client))
            await until(lambda: bool(asked))
            api.put(ENDPOINT_SLICES, udp(slices(server)))
            await until(lambda: any(lost in found for found in asked[2:]))
            assert "UDP clients of services in node01 may still go to pods that are gone" in caplog.text
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    uvloop.run(work())
    assert flows.Flows(SERVICE, PORT) in asked[0], "what was led where before is not known at first"
