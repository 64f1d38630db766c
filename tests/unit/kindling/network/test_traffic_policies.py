"""Session affinity, traffic policies and source ranges, tried with connections in network namespaces."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from tests.support.namespaces import connect, namespaces
from tests.support.routed_pods import GATEWAY, RoutedPods, routed_pods
from tests.support.waiting import until

from kindling.network import nftables, rules, services, tables
from kindling.network.external import ExternalRanges
from kindling.network.health_checks import HealthChecks
from kindling.network.services import Backend, HealthCheck, ServicePort

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

SUBNET, SERVICE, BALANCER = "10.64.0.0/16", "10.64.240.9", "198.51.100.1"
STRANGER, OTHER = "192.0.2.7", "192.0.2.8"
NODE, PORT = "node01", 80


@pytest.fixture(scope="module")
def network() -> Iterator[RoutedPods]:
    """A client and three servers on a node, and a stranger with two addresses."""
    with ExitStack() as stack:
        made = stack.enter_context(routed_pods(["client", "one", "two", "three"]))
        (stranger,) = stack.enter_context(namespaces("stranger"))
        connect(made.node, "lan", stranger, "eth0")
        made.node.run("ip", "addr", "add", "192.0.2.1/24", "dev", "lan")
        for address in (STRANGER, OTHER):
            stranger.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        stranger.run("ip", "route", "add", "default", "via", "192.0.2.1")
        for name in ("one", "two", "three"):
            made.pods[name].serve(made.address(name), PORT)
        made.pods["stranger"] = stranger
        yield made


def web(network: RoutedPods, *names: str, **fields: Any) -> ServicePort:
    backends = tuple(Backend(network.address(name), PORT) for name in names)
    return ServicePort("ns/web:http", "tcp", (SERVICE,), PORT, 30080, backends, **fields)


def load(network: RoutedPods, port: ServicePort, node: str = NODE) -> None:
    place = rules.Place(SUBNET, node, "10.64.1.0/24", GATEWAY)
    external = services.assign_external([port], {})
    wanted = rules.table("t", place, [port], (), external)
    network.node.run("nft", "delete", "table", "ip", "t", check=False)
    network.node.nft(tables.replacement(tables.Existing(), wanted))


def reached(network: RoutedPods, caller: str, address: str, port: int = PORT, source: str = "") -> str:
    """Whom the backend that answers a connection sees; empty without an answer."""
    return network.pods[caller].inside(lambda: dialled(address, port, source))


def dialled(address: str, port: int, source: str) -> str:
    with socket.socket() as made:
        made.settimeout(0.3)
        if source:
            made.bind((source, 0))
        try:
            made.connect((address, port))
            return made.recv(64).decode().removeprefix("answered ")
        except OSError:
            return ""


def clients(network: RoutedPods) -> list[set[str]]:
    """The clients that each backend is remembered for."""
    listed = json.loads(network.node.run("nft", "-j", "list", "sets", "ip"))["nftables"]
    found = [item["set"] for item in listed if item.get("set", {}).get("name", "").startswith("clients-")]
    return [{each["elem"]["val"] for each in item.get("elem", [])} for item in found]


def test_a_client_stays_with_its_backend(network: RoutedPods) -> None:
    load(network, web(network, "one", "two", "three", affinity_seconds=100))
    own = network.address("client")
    for _ in range(12):
        assert reached(network, "client", SERVICE) == own
    assert sorted(map(len, clients(network))) == [0, 0, 1], "twelve connections, one backend"


def test_affinity_ends_with_its_time(network: RoutedPods) -> None:
    load(network, web(network, "one", "two", affinity_seconds=1))
    assert reached(network, "client", SERVICE)
    assert sum(map(len, clients(network))) == 1
    asyncio.run(until(lambda: not any(clients(network))))
    assert reached(network, "client", SERVICE)
    assert sum(map(len, clients(network))) == 1, "it begins anew"


async def test_affinity_survives_other_changes_and_a_restart(network: RoutedPods) -> None:
    sticky = web(network, "one", "two", "three", affinity_seconds=100)
    place = rules.Place(SUBNET, NODE, "10.64.1.0/24", GATEWAY)
    network.node.run("nft", "delete", "table", "ip", "t", check=False)
    keeper = nftables.Keeper(network.namespace)
    assert await keeper.load(rules.table("t", place, [sticky]))
    assert reached(network, "client", SERVICE)
    before = clients(network)
    other = replace(sticky, name="ns/other:", addresses=("10.64.240.10",), affinity_seconds=0, node_port=0)
    assert await keeper.load(rules.table("t", place, [sticky, other]))
    assert sorted(map(sorted, clients(network))) == sorted(map(sorted, before))
    successor = nftables.Keeper(network.namespace)
    assert await successor.load(rules.table("t", place, [sticky]))
    assert sorted(map(sorted, clients(network))) == sorted(map(sorted, before))
    assert not await successor.load(rules.table("t", place, [sticky])), "nothing to do"
    fewer = replace(sticky, backends=sticky.backends[:1])
    assert await successor.load(rules.table("t", place, [fewer]))
    assert len(clients(network)) == 1, "what a backend that is gone was remembered for is gone, too"


def test_inside_local_leads_to_the_own_node_alone(network: RoutedPods) -> None:
    nearby = {NODE: (Backend(network.address("two"), PORT),), "node02": ()}
    load(network, web(network, "one", "two", nearby=nearby, is_internal_local=True))
    assert all(reached(network, "client", SERVICE) for _ in range(4))
    load(network, web(network, "one", nearby={"node02": ()}, is_internal_local=True))
    assert reached(network, "client", SERVICE) == "", "no other node's backend, no refusal"
    assert reached(network, "stranger", "192.0.2.1", 30080), "the other policy is Cluster"


def test_outside_local_keeps_the_clients_address(network: RoutedPods) -> None:
    port = web(network, "one", "two", external=(BALANCER,))
    load(network, port)
    assert reached(network, "stranger", "192.0.2.1", 30080) == GATEWAY
    assert reached(network, "stranger", BALANCER) != STRANGER
    near = replace(port, is_external_local=True, nearby={NODE: (Backend(network.address("two"), PORT),)})
    load(network, near)
    assert reached(network, "stranger", "192.0.2.1", 30080) == STRANGER
    assert reached(network, "stranger", BALANCER) == STRANGER
    assert reached(network, "client", BALANCER) == network.address("client")


def test_outside_local_drops_where_no_backend_is(network: RoutedPods) -> None:
    far = web(network, "one", external=(BALANCER,), is_external_local=True, nearby={"node02": ()})
    load(network, far)
    assert reached(network, "stranger", "192.0.2.1", 30080) == ""
    assert reached(network, "stranger", BALANCER) == ""
    assert reached(network, "client", BALANCER), "clients of the cluster go wherever backends are"
    assert reached(network, "client", SERVICE)


def test_the_machine_balances_between_all_nodes(network: RoutedPods) -> None:
    far = web(network, "one", external=(BALANCER,), is_external_local=True, nearby={"node02": ()})
    load(network, far, node="")
    assert reached(network, "stranger", BALANCER) == STRANGER
    assert reached(network, "client", BALANCER) != network.address("client"), "or answers would go past it"


def test_a_load_balancers_address_is_for_its_source_ranges(network: RoutedPods) -> None:
    sources = (f"{STRANGER}/32", "2001:db8::/32")
    port = web(network, "one", external=(BALANCER,), balanced=(BALANCER,), sources=sources)
    load(network, port)
    assert reached(network, "stranger", BALANCER, source=STRANGER)
    assert not reached(network, "stranger", BALANCER, source=OTHER)
    assert reached(network, "stranger", "192.0.2.1", 30080, source=OTHER), "node ports are for all"
    load(network, replace(port, sources=("2001:db8::/32",)))
    assert not reached(network, "stranger", BALANCER, source=STRANGER)
    load(network, replace(port, balanced=()))
    assert reached(network, "stranger", BALANCER, source=OTHER), "external addresses are not the balancer's"


def test_a_preference_for_the_own_node_is_no_duty(network: RoutedPods) -> None:
    nearby = {NODE: (Backend(network.address("two"), PORT),)}
    port = web(network, "one", "two", nearby=nearby, prefers_own_node=True)
    load(network, replace(port, backends=(Backend(network.address("client"), 1), *nearby[NODE])))
    whole = [reached(network, "client", SERVICE) for _ in range(6)]
    assert all(whole), "the other backend, which nobody serves, is never chosen"
    load(network, replace(port, nearby={}))
    assert reached(network, "client", SERVICE)


async def test_nodes_tell_how_many_endpoints_they_have(network: RoutedPods) -> None:
    def asked(port: int) -> tuple[bytes, dict[str, Any]]:
        def ask() -> bytes:
            with socket.create_connection((GATEWAY, port), timeout=5) as made:
                made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                return made.makefile("rb").read()

        head, _, body = network.pods["client"].inside(ask).partition(b"\r\n\r\n")
        return head, json.loads(body)

    check = HealthCheck("ns", "web", 32001, {NODE: 2})
    async with HealthChecks({NODE: (network.namespace, GATEWAY)}) as checks:
        assert await checks.serve([check])
        head, body = await asyncio.to_thread(asked, 32001)
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        assert b"X-Load-Balancing-Endpoint-Weight: 2" in head
        assert body == {
            "service": {"namespace": "ns", "name": "web"},
            "localEndpoints": 2,
            "serviceProxyHealthy": True,
        }
        assert await checks.serve([replace(check, endpoints={})])
        head, body = await asyncio.to_thread(asked, 32001)
        assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert body["localEndpoints"] == 0
        assert await checks.serve([])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(asked, 32001)


async def test_clients_that_keep_one_port_busy_leave_the_others_free(network: RoutedPods) -> None:
    def connected(port: int) -> socket.socket:
        return network.node.inside(lambda: socket.create_connection((GATEWAY, port), timeout=5))

    def answered(port: int) -> bool:
        with connected(port) as made:
            try:
                made.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return bool(made.recv(1))
            except (ConnectionResetError, BrokenPipeError):
                return False  # It was closed with the question unread.

    listed = [HealthCheck("ns", "busy", 32003, {NODE: 1}), HealthCheck("ns", "web", 32004, {NODE: 1})]
    async with HealthChecks({NODE: (network.namespace, GATEWAY)}) as checks:
        assert await checks.serve(listed)
        with ExitStack() as stack:
            for _ in range(64):
                stack.enter_context(await asyncio.to_thread(connected, 32003))
            assert not await asyncio.to_thread(answered, 32003)
            assert await asyncio.to_thread(answered, 32004)


async def test_a_taken_port_is_told_and_tried_again(
    network: RoutedPods, caplog: pytest.LogCaptureFixture
) -> None:
    taken = network.node.inside(lambda: socket.create_server((GATEWAY, 32002)))
    async with HealthChecks({NODE: (network.namespace, GATEWAY)}) as checks:
        with taken:
            assert not await checks.serve([HealthCheck("ns", "web", 32002, {})])
        assert "health checks of service ns/web on port 32002 of node node01" in caplog.text
        assert await checks.serve([HealthCheck("ns", "web", 32002, {})])


def test_fields_of_services_are_read() -> None:
    spec = {
        "type": "LoadBalancer",
        "clusterIP": SERVICE,
        "ports": [{"name": "http", "port": 80}],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
        "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 32001,
        "loadBalancerSourceRanges": [" 192.0.2.0/24 "],
        "trafficDistribution": "PreferSameNode",
        "externalIPs": ["198.51.100.2"],
    }
    points = [{"ip": BALANCER, "ipMode": "VIP"}, {"ip": "198.51.100.9", "ipMode": "Proxy"}]
    service = {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec}
    service["status"] = {"loadBalancer": {"ingress": points}}
    endpoints = [
        {"addresses": ["10.64.1.2"], "nodeName": "node01"},
        {"addresses": ["10.64.1.3"], "nodeName": "node01", "conditions": {"ready": False}},
        {
            "addresses": ["10.64.2.2"],
            "nodeName": "node02",
            "conditions": {"ready": False, "serving": True, "terminating": True},
        },
    ]
    slices = {
        "metadata": {"namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": endpoints,
    }
    ranges = ExternalRanges.of(["198.51.100.0/24"], own=[SUBNET])
    (port,) = services.service_ports([service], [slices], ranges)
    assert (port.affinity_seconds, port.sources) == (10, ("192.0.2.0/24",))
    assert (port.is_internal_local, port.is_external_local, port.prefers_own_node) == (True, True, True)
    assert (port.external, port.balanced) == (("198.51.100.2", BALANCER), (BALANCER,))
    assert port.backends == (Backend("10.64.1.2", 8080),)
    assert port.nearby == {
        "node01": (Backend("10.64.1.2", 8080),),
        "node02": (Backend("10.64.2.2", 8080),),
    }, "a node without ready backends has those that end, as in kube-proxy"
    assert services.health_checks([service], [slices]) == [HealthCheck("ns", "web", 32001, {"node01": 1})]
    del spec["sessionAffinityConfig"]
    assert services.service_ports([service], [slices], ranges)[0].affinity_seconds == 10800
