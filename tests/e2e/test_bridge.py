"""A machine without networks and interfaces: KubeVirt's default puts the guest in its pod's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, is_ready_again
from tests.e2e.commands import ROOT
from tests.e2e.failures import Document
from tests.e2e.processes import kill
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]

PAGE = b"plain is up\n"
_SERVICES = f"{CORE}/namespaces/{NAMESPACE}/services"
_PODS = f"{CORE}/namespaces/{NAMESPACE}/pods"
_GET = "printf 'GET / HTTP/1.0\\r\\n\\r\\n'"


@pytest.fixture(scope="module")
def machine(cluster: Cluster) -> Iterator[Machine]:
    """The example, running."""
    made = cluster.create(yaml.safe_load((ROOT / "examples/vm-plain.yaml").read_text()))
    try:
        made.wait_running()
        yield made
    finally:
        clean_up([made])


@pytest.fixture
def service(cluster: Cluster, machine: Machine) -> Iterator[str]:
    """The cluster's address for the machine's web server."""
    spec = {"selector": {"app": "plain"}, "ports": [{"port": 80}]}
    made = cluster.request("POST", _SERVICES, {"metadata": {"name": "plain"}, "spec": spec})
    yield str(made["spec"]["clusterIP"])
    cluster.request("DELETE", f"{_SERVICES}/plain")


@pytest.fixture
def pod_succeeds(cluster: Cluster) -> Iterator[Callable[[str], bool]]:
    """Whether a shell script succeeds in a pod of its own."""
    made: list[str] = []

    def run(script: str) -> bool:
        name = f"client-{len(made)}"
        made.append(name)
        container = {
            "name": "client",
            "image": "kindling.local/busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/busybox", "sh", "-c", script],
        }
        spec = {"restartPolicy": "Never", "containers": [container]}
        cluster.request("POST", _PODS, {"metadata": {"name": name}, "spec": spec})

        def outcome() -> str:
            phase = str(cluster.request("GET", f"{_PODS}/{name}")["status"].get("phase"))
            return phase if phase in ("Succeeded", "Failed") else ""

        return wait_for("the pod ends", outcome, 40) == "Succeeded"

    yield run
    for name in made:
        cluster.request("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")


def _page(address: str) -> bytes:
    return fetch_page(f"http://{address}/")


def _card(machine: Machine) -> dict[str, Any]:
    (card,) = (machine.instance() or {})["status"]["interfaces"]
    return dict(card)


@pytest.mark.feature("NET-01", "NET-31")
def test_the_guest_has_its_pods_address_and_mac_by_dhcp(machine: Machine) -> None:
    spec = (machine.instance() or {})["spec"]
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert spec["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]
    address = machine.pod()["status"]["podIP"]
    with machine.console() as console:
        wait_for(
            "the guest has its address", lambda: f" {address}/" in console.run("ip -4 addr show eth0"), 20
        )
        assert console.run("cat /sys/class/net/eth0/address") == _card(machine)["mac"]
        assert "default via" in console.run("ip route")
        assert "Name:" in console.run("nslookup kubernetes.default.svc.cluster.local")
    wait_for("the agent tells", lambda: _card(machine)["infoSource"] == "domain, guest-agent", 40)
    card = _card(machine)
    assert (card["ipAddress"], card["interfaceName"]) == (address, "eth0")
    assert (card["podInterfaceName"], card["linkState"]) == ("eth0", "up")


@pytest.mark.feature("NET-13", "ACC-25")
def test_pods_node_and_services_reach_the_guest_and_it_reaches_them(
    machine: Machine, service: str, pod_succeeds: Callable[[str], bool]
) -> None:
    assert wait_for("the web server answers", partial(_page, machine.address()), 20) == PAGE
    assert wait_for("the service answers", partial(_page, service), 20) == PAGE
    look = f"{_GET} | busybox nc -w 5 {{}} 80 | busybox grep -q 'plain is up'"
    assert pod_succeeds(f"{look.format(machine.address())} && {look.format(service)}")
    with machine.console() as console:
        assert console.run(f"{_GET} | nc -w 5 {service} 80").endswith("plain is up")


def test_it_cannot_move_for_its_address_would_be_another(machine: Machine) -> None:
    conditions: list[Document] = (machine.instance() or {})["status"]["conditions"]
    found = next(item for item in conditions if item["type"] == "LiveMigratable")
    assert (found["status"], found["reason"]) == ("False", "InterfaceNotLiveMigratable")


def test_the_guest_feels_nothing_of_a_new_virt_handler(cluster: Cluster, machine: Machine) -> None:
    assert wait_for("the web server answers", partial(_page, machine.address()), 20) == PAGE
    before, card, qemu = cluster.component_pod("virt-handler"), _card(machine), machine.qemu()
    kill(cluster.component("virt-handler"))
    wait_for("another one is ready", partial(is_ready_again, cluster, "virt-handler", before), 60)
    assert _page(machine.address()) == PAGE
    with machine.console() as console:
        # The launcher gives the same lease as before.
        lease = console.run("udhcpc -i eth0 -n -q -f -s /etc/udhcpc.script 2>&1")
        assert f"lease of {card['ipAddress']} obtained" in lease
    assert _page(machine.address()) == PAGE
    wait_for("it is known again", lambda: _card(machine)["ipAddress"] == card["ipAddress"], 20)
    assert (machine.qemu(), machine.is_running()) == (qemu, True)
