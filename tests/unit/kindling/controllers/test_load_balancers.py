"""Services of type LoadBalancer get addresses of the administrator's ranges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kindling.controllers.services import load_balancers
from kindling.controllers.services.load_balancers import (
    LoadBalancers,
    NoAddress,
    choose,
    gateways,
    is_machines,
)
from kindling.network.external import ExternalRanges
from kubecore.json import JsonObject
from kubecore.resources import EVENTS, SERVICES

from .conftest import Cluster

POOL = ExternalRanges.of(["192.0.2.0/30"], own=["10.64.0.0/16"])
"""Two addresses."""


@pytest.fixture(autouse=True)
def strange_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address of the documentation's is this machine's."""
    monkeypatch.setattr(load_balancers, "is_machines", lambda _address: False)


def service(name: str, **spec: Any) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "lab"}, "spec": {"type": "LoadBalancer", **spec}}


def addresses(cluster: Cluster, name: str) -> list[str]:
    found = cluster.get(SERVICES, name, "lab").get("status", {}).get("loadBalancer", {}).get("ingress")
    return [item["ip"] for item in found or ()]


def events(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    found = [item for item in cluster.api.list(EVENTS) if item["involvedObject"]["name"] == name]
    return [(item["type"], item["message"]) for item in found]


@pytest.mark.looptime
async def test_addresses_are_given_and_given_back(cluster: Cluster) -> None:
    async with cluster.running(LoadBalancers, external=POOL):
        for name in ("one", "two", "three"):
            cluster.api.put(SERVICES, service(name))
            await asyncio.sleep(1)
        assert (addresses(cluster, "one"), addresses(cluster, "two")) == (["192.0.2.1"], ["192.0.2.2"])
        assert addresses(cluster, "three") == []
        ((kind, message),) = events(cluster, "three")
        assert kind == "Warning"
        assert message.startswith("Error syncing load balancer: all addresses")
        cluster.api.remove(SERVICES, "one", "lab")
        await asyncio.sleep(1)
        assert addresses(cluster, "three") == ["192.0.2.1"]
        assert events(cluster, "two") == [("Normal", "Ensured load balancer: 192.0.2.2")]


def test_nobody_claims_a_whole_range() -> None:
    """What services of a namespace claim counts as used up to what takes effect."""
    claimed = [f"198.51.100.{number}" for number in range(256)]
    greedy = [service(str(half), externalIPs=claimed[half::2]) for half in (0, 1)]
    given = {**service("given"), "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    assert load_balancers.in_use([*greedy, given]) == ["192.0.2.1", *claimed[0:200:2]]


@pytest.mark.looptime
async def test_another_type_gives_its_address_back(cluster: Cluster) -> None:
    async with cluster.running(LoadBalancers, external=POOL):
        cluster.api.put(SERVICES, service("one", loadBalancerIP="192.0.2.2"))
        await asyncio.sleep(1)
        assert addresses(cluster, "one") == ["192.0.2.2"]
        changed = cluster.get(SERVICES, "one", "lab")
        cluster.api.put(SERVICES, {**changed, "spec": {"type": "ClusterIP"}})
        await asyncio.sleep(1)
        assert addresses(cluster, "one") == []


@pytest.mark.looptime
async def test_services_of_others_are_left_alone(cluster: Cluster) -> None:
    written = service("written")
    written["status"] = {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}
    async with cluster.running(LoadBalancers, external=POOL):
        cluster.api.put(SERVICES, service("classed", loadBalancerClass="example.com/other"))
        cluster.api.put(SERVICES, written)
        cluster.api.put(SERVICES, service("plain", type="NodePort"))
        await asyncio.sleep(1)
        assert [addresses(cluster, name) for name in ("classed", "written", "plain")] == [
            [],
            ["198.51.100.1"],
            [],
        ]


@pytest.mark.looptime
async def test_a_cluster_without_a_pool_says_so(cluster: Cluster) -> None:
    async with cluster.running(LoadBalancers):
        cluster.api.put(SERVICES, service("one"))
        await asyncio.sleep(1)
        ((kind, message),) = events(cluster, "one")
        assert kind == "Warning"
        assert "--external-range" in message


@pytest.mark.looptime
async def test_two_at_once_never_share_an_address(cluster: Cluster) -> None:
    ranges = ExternalRanges.of(["192.0.2.0/24"], own=[])
    for number in range(20):
        cluster.api.put(SERVICES, service(f"s{number}"))
    async with cluster.running(LoadBalancers, external=ranges):
        await asyncio.sleep(5)
        found = [addresses(cluster, f"s{number}") for number in range(20)]
    assert sorted(each for (each,) in found) == sorted(f"192.0.2.{number}" for number in range(1, 21))


@pytest.mark.parametrize(
    ("families", "given"),
    [
        (["IPv4", "IPv6"], ["192.0.2.1", "2001:db8::1"]),
        (["IPv6", "IPv4"], ["2001:db8::1", "192.0.2.1"]),
        (["IPv6"], ["2001:db8::1"]),
        (["IPv4"], ["192.0.2.1"]),
    ],
)
def test_a_service_gets_an_address_of_each_of_its_families(families: list[str], given: list[str]) -> None:
    both = ExternalRanges.of(["192.0.2.0/30", "2001:db8::/126"], own=[])
    assert choose(service("a", ipFamilies=families), [], both, lambda _address: False) == given


def test_a_family_without_a_pool_is_lacking_only_where_it_is_the_first() -> None:
    dual = service("a", ipFamilies=["IPv4", "IPv6"])
    assert choose(dual, [], POOL, lambda _address: False) == ["192.0.2.1"]
    with pytest.raises(NoAddress, match="no pool of IPv6 addresses"):
        choose(service("a", ipFamilies=["IPv6", "IPv4"]), [], POOL, lambda _address: False)


def test_what_cannot_be_had_is_said() -> None:
    def problem(wanted: str, *taken: str, ranges: ExternalRanges = POOL) -> str:
        with pytest.raises(NoAddress) as caught:
            choose(service("a", loadBalancerIP=wanted), taken, ranges, lambda address: address == "192.0.2.2")
        return str(caught.value)

    assert "in no range" in problem("198.51.100.1")
    assert "in no range" in problem("10.64.240.1", ranges=ExternalRanges.of(["10.0.0.0/8"], ["10.64.0.0/16"]))
    assert "in no range" in problem("192.0.2.2"), "the machine's own"
    assert "another service" in problem("192.0.2.1", "192.0.2.1")
    assert "in use" in problem("", "192.0.2.1")
    assert "no pool" in problem("", ranges=ExternalRanges.of(["0.0.0.0/0"], []))


def test_the_machines_own_addresses_and_gateways_are_known() -> None:
    assert is_machines("127.0.0.1")
    assert not is_machines("203.0.113.77")
    routes = "Iface Destination Gateway Flags\neth0 00000000 0101A8C0 0003\neth0 0001A8C0 00000000 0001\n"
    assert gateways(routes) == {"192.168.1.1", "0.0.0.0"}
