"""Addresses and ports of services: a namespace has a share of them."""

from __future__ import annotations

import pytest

from kindling.apiserver.registry.addresses import AddressPool, AllocationError

_PORTS = (30000, 32767)
_SHARE = (_PORTS[1] - _PORTS[0] + 1) // 4


def test_one_namespace_leaves_node_ports_to_others() -> None:
    pool = AddressPool("10.96.0.0/16", _PORTS)
    had = [pool.allocate_port("greedy") for _ in range(_SHARE)]
    refused = "the services of namespace greedy have 692 node ports"
    with pytest.raises(AllocationError, match=refused):
        pool.allocate_port("greedy")
    free = next(port for port in range(*_PORTS) if port not in had)
    with pytest.raises(AllocationError, match=refused):
        pool.reserve_port(free, "greedy")
    pool.reserve_port(free, "other")
    pool.release_port(had[0])
    assert pool.allocate_port("greedy")


def test_one_namespace_leaves_addresses_to_others() -> None:
    pool = AddressPool("10.96.0.0/20,fd00:96::/116")
    for number in range(1024):
        pool.allocate_ip(pool.families[number % 2], "greedy")
    with pytest.raises(AllocationError, match="the services of namespace greedy have 1024 addresses"):
        pool.allocate_ip("IPv4", "greedy")
    with pytest.raises(AllocationError, match="which is their share"):
        pool.reserve_ip("10.96.0.10", "greedy")
    pool.reserve_ip("10.96.0.10", "other")


def test_what_stored_services_have_counts_and_small_ranges_may_be_one_namespaces() -> None:
    pool = AddressPool("10.96.0.0/24", (30000, 30999))
    spec = {"clusterIPs": ["10.96.0.7"], "ports": [{"nodePort": 30000 + number} for number in range(256)]}
    pool.adopt({"metadata": {"namespace": "ns", "name": "s"}, "spec": spec})
    with pytest.raises(AllocationError, match="have 256 node ports"):
        pool.allocate_port("ns")
    for _ in range(253):
        pool.allocate_ip("IPv4", "ns")
    with pytest.raises(AllocationError, match="range is full"):
        pool.allocate_ip("IPv4", "ns")
