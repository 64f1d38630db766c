"""UDP flows through services whose backends change, tried in network namespaces."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.support.routed_pods import GATEWAY, RoutedPods, routed_pods

from kindling.network import flows, rules, tables
from kindling.network.flows import Flows, Stale, destinations, stale
from kindling.network.services import Backend, HostPort, ServicePort

SERVICE, NODE_PORT, PORT = "10.64.240.9", 30053, 53
ONE, TWO = Backend("10.64.1.3", PORT), Backend("10.64.1.4", PORT)
DNS = ServicePort("ns/dns:udp", "udp", (SERVICE,), PORT, NODE_PORT, (ONE,))
OTHER = replace(DNS, name="ns/other:udp", addresses=("10.64.240.10",), node_port=0)


class Node:
    """A node whose rules lead to two pods that answer with their names, and what was loaded last."""

    def __init__(self, pods: RoutedPods) -> None:
        self.pods = pods
        self.loaded: flows.Destinations = {}

    def load(self, *ports: ServicePort) -> None:
        """Load the rules as the proxy does, and forget what they no longer lead."""
        table = rules.table("t", rules.Place("10.64.0.0/16"), ports)
        self.pods.node.nft(tables.replacement(tables.Existing(), table))
        wanted = destinations(ports, (), {})
        self.forget(stale(self.loaded, wanted))
        self.loaded = wanted

    def forget(self, found: list[Flows]) -> None:
        """Forget flows in the node."""
        asyncio.run(flows.forget(found, 4, self.pods.namespace))

    def client(self) -> socket.socket:
        """A client, which keeps its port."""

        def bound() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((self.pods.address("client"), 0))
            made.settimeout(0.3)
            return made

        return self.pods.pods["client"].inside(bound)


def asked(client: socket.socket, address: str = SERVICE, port: int = PORT) -> str:
    """Who answers the client; the empty string if nobody does."""
    client.sendto(b"who", (address, port))
    try:
        return client.recv(64).decode()
    except (TimeoutError, ConnectionRefusedError):
        return ""


@pytest.fixture
def node() -> Iterator[Node]:
    with ExitStack() as stack:
        pods = stack.enter_context(routed_pods(["client", "one", "two"]))
        for name in ("one", "two"):
            stack.enter_context(answering(pods, name))
        yield Node(pods)


def answering(pods: RoutedPods, name: str) -> ExitStack:
    """A server in a pod that tells the pod's name."""

    def bound() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((pods.address(name), PORT))
        return made

    server = pods.pods[name].inside(bound)

    def serve() -> None:
        while (found := server.recvfrom(64))[0]:
            server.sendto(name.encode(), found[1])

    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> None:
        # An empty packet ends it.
        pods.pods[name].inside(lambda: _send_nothing(pods.address(name)))
        thread.join()
        server.close()

    stack = ExitStack()
    stack.callback(end)
    return stack


def _send_nothing(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"", (address, PORT))


needs_host = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]


class TestAtWork:
    pytestmark = needs_host

    def test_a_client_that_keeps_its_port_is_led_to_another_backend(self, node: Node) -> None:
        node.load(DNS)
        with node.client() as client:
            assert asked(client) == "one"
            node.load(replace(DNS, backends=(TWO,)))
            assert asked(client) == "two"

    def test_a_node_port_without_backends_leads_those_who_asked_before(self, node: Node) -> None:
        node.load(replace(DNS, backends=()))
        with node.client() as client:
            assert asked(client, GATEWAY, NODE_PORT) == ""
            node.load(DNS)
            assert asked(client, GATEWAY, NODE_PORT) == "one"
            node.load(replace(DNS, backends=(TWO,)))
            assert asked(client, GATEWAY, NODE_PORT) == "two"

    def test_flows_of_other_services_and_to_other_backends_stay(self, node: Node) -> None:
        node.load(DNS, OTHER)
        moved = replace(OTHER, backends=(TWO,))
        with node.client() as client, node.client() as second:
            assert asked(client) == "one"
            assert asked(second, "10.64.240.10") == "one"
            # As if the rules of the other one had been loaded without its flows being forgotten.
            node.loaded = destinations((DNS, moved), (), {})
            node.load(replace(DNS, backends=(TWO,)), moved)
            assert asked(client) == "two"
            assert asked(second, "10.64.240.10") == "one"
            node.forget([Flows("10.64.240.10", PORT, TWO)])
            assert asked(second, "10.64.240.10") == "one"
            node.forget([Flows("10.64.240.10", PORT)])
            assert asked(second, "10.64.240.10") == "two"

    def test_many_kinds_of_flows_are_forgotten_at_once(self, node: Node) -> None:
        """The kernel takes ten milliseconds for a kind: those of a service of thousands of ports would keep
        everybody's new rules waiting for minutes.
        """
        node.load(DNS, OTHER)
        many = [Flows("10.64.240.77", port, ONE) for port in range(1, 20_000)]
        with node.client() as client, node.client() as second:
            assert asked(client) == "one"
            assert asked(second, "10.64.240.10") == "one"
            node.load(replace(DNS, backends=(TWO,)), replace(OTHER, backends=(TWO,)))
            assert asked(client) == asked(second, "10.64.240.10") == "two"
            node.pods.node.nft(
                tables.replacement(
                    tables.Existing(), rules.table("t", rules.Place("10.64.0.0/16"), (DNS, OTHER))
                )
            )
            began = time.monotonic()
            node.forget([*many, Flows("10.64.240.10", PORT, ONE)])
            assert asked(client) == asked(second, "10.64.240.10") == "two"
            node.forget([*many, Flows(SERVICE, PORT, TWO)])
            assert time.monotonic() - began < 20
            assert (asked(client), asked(second, "10.64.240.10")) == ("one", "two")
            node.forget([*many, Flows("", PORT)])
            assert asked(second, "10.64.240.10") == "one"

    def test_what_the_kernel_refuses_is_told(self, node: Node) -> None:
        with pytest.raises(flows.FlowsKept, match="1 kinds of UDP flows"):
            asyncio.run(flows.forget([Flows("", 1)], 4, node.pods.namespace / "gone"))


def test_a_flow_is_stale_by_its_target_and_by_who_answers() -> None:
    def end(address: str, port: int) -> tuple[bytes, int]:
        return socket.inet_aton(address), port

    found = Stale([Flows(SERVICE, PORT, ONE), Flows("10.64.240.10", PORT), Flows("", 9, Backend("", 9))])
    assert found.has(end(SERVICE, PORT), end(ONE.address, PORT))
    assert not found.has(end(SERVICE, PORT), end(TWO.address, PORT))
    assert not found.has(end(SERVICE, PORT + 1), end(ONE.address, PORT))
    assert found.has(end("10.64.240.10", PORT), end(TWO.address, 1))
    assert found.has(end(GATEWAY, 9), end(GATEWAY, 9))
    assert not found.has(end(GATEWAY, 9), end(ONE.address, 10))


def test_only_udp_is_led_by_flows() -> None:
    tcp = replace(DNS, protocol="tcp", addresses=("10.64.240.11",))
    host = HostPort("n", "udp", 5353, TWO, "192.168.77.1")
    outside = replace(OTHER, external=("192.0.2.7", "192.0.2.8"))
    external = {("192.0.2.7", "udp", PORT): "ns/other:udp", ("192.0.2.8", "udp", PORT): "ns/dns:udp"}
    assert destinations((tcp, DNS, outside), (host, replace(host, protocol="tcp", port=1)), external) == {
        (SERVICE, PORT): {ONE},
        ("", NODE_PORT): {ONE},
        ("10.64.240.10", PORT): {ONE},
        ("192.0.2.7", PORT): {ONE},
        ("192.168.77.1", 5353): {TWO},
    }


def test_flows_are_stale_whose_backend_is_gone() -> None:
    key, other = (SERVICE, PORT), ("", NODE_PORT)
    both = frozenset((ONE, TWO))
    assert stale({key: both}, {key: both}) == []
    assert stale({key: both}, {key: frozenset((TWO,))}) == [Flows(SERVICE, PORT, ONE)]
    assert stale({key: both}, {}) == [Flows(SERVICE, PORT, ONE), Flows(SERVICE, PORT, TWO)]
    assert stale({key: both}, {key: both, other: both}) == [Flows("", NODE_PORT, Backend("", NODE_PORT))]
    assert stale({key: frozenset()}, {key: both}) == [Flows(SERVICE, PORT, Backend(SERVICE, PORT))]


def test_flows_are_all_stale_where_nobody_knows_what_was_loaded() -> None:
    assert stale(None, {(SERVICE, PORT): frozenset((ONE,))}) == [Flows(SERVICE, PORT)]
