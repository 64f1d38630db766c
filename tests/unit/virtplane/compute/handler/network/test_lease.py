"""What a guest is told by DHCP."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.network_plans import plan_network

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.network.lease import Resolver, guest_routes, lease, parse_resolver
from virtplane.compute.handler.network.plan import PodInterface, Route

ADDRESS = IPv4Interface("10.1.0.5/24")
DEFAULT = Route(IPv4Network("0.0.0.0/0"), IPv4Address("10.1.0.1"))
POD = PodInterface("0a:58:0a:01:00:05", 1450, (ADDRESS,), (DEFAULT,))
RESOLVER = Resolver(("10.96.0.10",), ("ns.svc.cluster.local", "svc.cluster.local"))


def instance(interface: dict[str, Any], **spec: Any) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default"} | interface]}},
            "networks": [{"name": "default", "pod": {}}],
            **spec,
        },
    }
    return decode(VirtualMachineInstance, document)


def offer(
    interface: dict[str, Any], pod: PodInterface = POD, resolver: Resolver = RESOLVER, **spec: Any
) -> dict[str, Any]:
    vmi = instance(interface, **spec)
    plan = plan_network(vmi, pod)
    assert plan is not None
    found = lease(plan, vmi, resolver)
    assert found is not None
    return found


def test_the_resolver_is_the_pods_without_servers_of_ipv6() -> None:
    text = "search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00::a\n"
    assert parse_resolver(text) == RESOLVER


@pytest.mark.feature("NET-12")
def test_lease_carries_resolver_mtu_and_subdomain() -> None:
    found = offer({"masquerade": {}}, subdomain="web", hostname="h")
    assert found["search"][0] == "web.ns.svc.cluster.local"
    assert found["dns"] == ["10.96.0.10"]
    assert (found["mtu"], found["hostname"], found["routers"]) == (1450, "h", ["10.0.2.1"])
    assert found["routes"] == [["0.0.0.0/0", "10.0.2.1"]]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (("svc.cluster.local", "ns.svc.cluster.local", "ns.a.long.name"), ["web.ns.svc.cluster.local"]),
        (("web.ns.svc.cluster.local", "ns.svc.cluster.local"), []),
        (("example.com",), []),
        ((), []),
    ],
)
def test_a_subdomain_is_searched_among_the_services_of_the_namespace(
    search: tuple[str, ...], expected: list[str]
) -> None:
    found = offer({"masquerade": {}}, resolver=Resolver(("10.96.0.10",), search), subdomain="web")
    assert found["search"] == [*expected, *search]


@pytest.mark.feature("NET-01", "NET-08")
def test_a_bridged_guest_gets_what_the_pod_had() -> None:
    found = offer({"bridge": {}})
    assert (found["address"], found["prefix"], found["mac"]) == ("10.1.0.5", 24, POD.mac)
    assert (found["routers"], found["routes"]) == (["10.1.0.1"], [["0.0.0.0/0", "10.1.0.1"]])
    assert (found["mtu"], found["server"], found["hostname"]) == (1450, "169.254.75.10", "vm")
    assert (found["dns"], found["search"]) == (["10.96.0.10"], list(RESOLVER.search))


def test_a_pod_without_ipv4_address_has_none_to_give() -> None:
    vmi = instance({"bridge": {}})
    for addresses in ((), (IPv6Interface("fd00::5/64"),)):
        plan = plan_network(vmi, PodInterface(POD.mac, 1500, addresses))
        assert plan is not None
        assert lease(plan, vmi, RESOLVER) is None


def test_a_gateway_outside_the_subnet_gets_a_route_of_its_own_before_it_is_used() -> None:
    gateway = IPv4Address("169.254.1.1")
    pod = PodInterface(
        POD.mac, 1440, (IPv4Interface("10.1.0.5/32"),), (Route(IPv4Network("0.0.0.0/0"), gateway),)
    )
    found = offer({"bridge": {}}, pod)
    assert found["prefix"] == 32
    assert found["routers"] == ["169.254.1.1"]
    assert found["routes"] == [["169.254.1.1/32", "0.0.0.0"], ["0.0.0.0/0", "169.254.1.1"]]


def test_routes_are_the_pods_with_the_default_last() -> None:
    near = Route(IPv4Network("10.8.0.0/16"))
    far = Route(IPv4Network("172.16.0.0/12"), IPv4Address("10.8.0.9"))
    assert guest_routes(ADDRESS, [DEFAULT, far, near]) == [near, far, DEFAULT]


addresses = st.integers(1, 2**32 - 2).map(IPv4Address)
routes = st.builds(
    lambda base, length, gateway: Route(IPv4Network((int(base), length), strict=False), gateway),
    addresses,
    st.integers(1, 32),
    st.none() | addresses,
)


@given(st.lists(routes, max_size=6))
def test_whoever_adds_the_routes_in_turn_can_reach_every_gateway(wanted: list[Route]) -> None:
    reachable = [ADDRESS.network]
    found = guest_routes(ADDRESS, [DEFAULT, *wanted])
    for route in found:
        if route.gateway is None:
            reachable.append(route.destination)
        else:
            assert any(route.gateway in network for network in reachable)
    assert {DEFAULT, *wanted} <= set(found)
    assert found[-1] == DEFAULT


def test_servers_of_the_time_are_told_without_leading_zeros() -> None:
    options = {"ntpServers": ["127.0.0.1", "0127.0.0.010"]}
    assert offer({"masquerade": {}, "dhcpOptions": options})["ntp"] == ["127.0.0.1", "127.0.0.10"]
