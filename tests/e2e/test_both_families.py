"""Guests behind NAT that have both address families: their own configuration names the IPv6 gateway."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]

_SERVICES = f"{CORE}/namespaces/{NAMESPACE}/services"
_CONFIGURED = """runcmd:
  - ip -6 addr add fd10:0:2::2/120 dev eth0
  - ip -6 route add default via fd10:0:2::1 dev eth0
"""


def _create(cluster: Cluster, name: str) -> Machine:
    wanted = manifest(name, grace=1)
    wanted["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] += _CONFIGURED
    return cluster.create(wanted)


@pytest.fixture(scope="module")
def machines(cluster: Cluster) -> Iterator[tuple[Machine, Machine]]:
    """The one that asks, and the one that answers."""
    (node, *_) = cluster.items(f"{CORE}/nodes")
    if len(node["spec"]["podCIDRs"]) == 1:
        pytest.skip("the cluster has IPv4 alone")
    asks, answers = _create(cluster, "six-asks"), _create(cluster, "six-answers")
    try:
        for machine in (asks, answers):
            machine.wait_running(90)
        yield asks, answers
    finally:
        clean_up([asks, answers])


@pytest.fixture
def service(cluster: Cluster, machines: tuple[Machine, Machine]) -> Iterator[str]:
    """The IPv6 address of a service before the guest that answers."""
    spec = {"selector": {"app": machines[1].name}, "ports": [{"port": 80}], "ipFamilies": ["IPv6"]}
    made = cluster.request("POST", _SERVICES, {"metadata": {"name": "six"}, "spec": spec})
    yield str(made["spec"]["clusterIP"])
    cluster.request("DELETE", f"{_SERVICES}/six")


def _addresses(machine: Machine) -> list[str]:
    (card,) = (machine.instance() or {})["status"]["interfaces"]
    return [str(address) for address in card["ipAddresses"]]


def _page_seen_in(console: Console, address: str) -> str:
    return console.run(f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80")


@pytest.mark.feature("NET-05", "NET-06")
def test_an_instance_reports_its_pods_address_of_each_family(machines: tuple[Machine, Machine]) -> None:
    for machine in machines:
        addresses = _addresses(machine)
        assert addresses == [item["ip"] for item in machine.pod()["status"]["podIPs"]]
        assert [ip_address(address).version for address in addresses] == [4, 6]


@pytest.mark.feature("NET-05")
def test_guests_reach_each_other_at_every_address_that_is_reported(
    machines: tuple[Machine, Machine], service: str
) -> None:
    asks, answers = machines
    ipv4, ipv6 = _addresses(answers)
    page = wait_for("the web server answers", partial(fetch_page, f"http://[{ipv6}]/"), 60)
    assert page == b"six-answers is up\n"
    with asks.console() as console:
        wait_for("it has a route", lambda: "fd10:0:2::1" in console.run("ip -6 route show default"), 40)
        for address in (ipv4, ipv6):
            assert "1 packets received" in console.run(f"ping -c 1 -w 5 {address}")
            assert _page_seen_in(console, address).endswith("six-answers is up")
        assert _page_seen_in(console, service).endswith("six-answers is up")
