"""A guest behind passt: an ordinary user of its pod makes and accepts its connections."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import program
from tests.e2e.failures import NotThere
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_SERVICES = f"{CORE}/namespaces/{NAMESPACE}/services"
_PAGE = b"behind is up\n"


@pytest.fixture(scope="module")
def machine(cluster: Cluster) -> Iterator[Machine]:
    """A guest whose web server and name server may be reached."""
    gates: dict[str, list[str] | None] = {"featureGates": ["PasstBinding"]}
    change = {"spec": {"configuration": {"developerConfiguration": gates}}}
    cluster.request("PATCH", _INSTALLATION, change)
    wanted = manifest("behind", grace=1)
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}]
    devices = wanted["spec"]["template"]["spec"]["domain"]["devices"]
    devices["interfaces"] = [{"name": "default", "passtBinding": {}, "ports": ports}]
    made = wait_for("the gate is open", partial(cluster.create, wanted), 30)
    try:
        made.wait_running()
        yield made
    finally:
        clean_up([made])
        gates["featureGates"] = None
        cluster.request("PATCH", _INSTALLATION, change)


@pytest.fixture
def service(cluster: Cluster, machine: Machine) -> Iterator[str]:
    """The cluster's address for the machine's web server."""
    spec = {"selector": {"app": machine.name}, "ports": [{"port": 80}]}
    made = cluster.request("POST", _SERVICES, {"metadata": {"name": machine.name}, "spec": spec})
    yield str(made["spec"]["clusterIP"])
    cluster.request("DELETE", f"{_SERVICES}/{machine.name}")


def _page(address: str, port: int = 80) -> bytes:
    return fetch_page(f"http://{address}:{port}/")


def _addresses(machine: Machine) -> list[str]:
    return [str(item["ip"]) for item in machine.pod()["status"]["podIPs"]]


def _passt(machine: Machine) -> int:
    """The process of passt, a child of the launcher. Raises NotThere."""
    launcher = machine.launcher()
    for task in Path("/proc", str(launcher), "task").iterdir():
        for child in (task / "children").read_text().split():
            if Path("/proc", child, "comm").read_text().startswith("passt"):
                return int(child)
    raise NotThere("passt does not run")


def test_the_guest_has_its_pods_address_and_a_mac_of_its_own(machine: Machine) -> None:
    address = _addresses(machine)[0]
    with machine.console() as console:
        wait_for(
            "the guest has its address", lambda: f" {address}/" in console.run("ip -4 addr show eth0"), 20
        )
        assert "default via" in console.run("ip route")
        (card,) = (machine.instance() or {})["status"]["interfaces"]
        assert console.run("cat /sys/class/net/eth0/address") == card["mac"]
        assert card["ipAddresses"][0] == address
        assert "Name:" in console.run("nslookup kubernetes.default.svc.cluster.local")


@pytest.mark.feature("NET-03", "NET-13")
def test_listed_ports_of_the_pod_are_the_guests_and_others_are_not(machine: Machine, service: str) -> None:
    assert wait_for("the web server answers", partial(_page, _addresses(machine)[0]), 60) == _PAGE
    assert wait_for("the service answers", partial(_page, service), 20) == _PAGE
    with pytest.raises(OSError, match="refused"):
        _page(_addresses(machine)[0], 81)


@pytest.mark.feature("ACC-25")
def test_virtctl_forwards_a_port_to_the_guest(cluster: Cluster, machine: Machine) -> None:
    command = [str(program("virtctl")), "port-forward", f"vm/{machine.name}", "18480:80"]
    with subprocess.Popen(command, env=cluster.environment) as forwarding:
        try:
            assert wait_for("the page is forwarded", partial(_page, "127.0.0.1", 18480), 30) == _PAGE
        finally:
            forwarding.terminate()


def test_passt_is_an_ordinary_user_and_replaced_when_it_fails(machine: Machine) -> None:
    first = _passt(machine)
    status = Path("/proc", str(first), "status").read_text()
    assert "\nUid:\t107\t" in status
    assert "\nCapEff:\t0000000000000000\n" in status
    assert "\nSeccomp:\t2\n" in status
    qemu = machine.qemu()
    os.kill(first, signal.SIGKILL)
    second = wait_for("another one runs", lambda: found if (found := _passt(machine)) != first else None, 30)
    assert wait_for("the web server answers", partial(_page, _addresses(machine)[0]), 60) == _PAGE
    assert (machine.qemu(), _passt(machine)) == (qemu, second)
