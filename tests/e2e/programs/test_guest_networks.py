"""Guests of two nodes on a secondary network, and a network card that comes and goes while a guest runs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(240)]

NODES = ("node01", "node02")
LAN, SPARE, SECONDARY = "lan", "spare", "secondary"
_DEFINITIONS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
_MACS = {"lan-a": "02:00:5e:00:00:0a", "lan-b": "02:00:5e:00:00:0b"}
_ADDRESSES = {"lan-a": "192.168.77.1", "lan-b": "192.168.77.2"}
_OVERLAY_ADDRESSES = ("192.168.79.1", "192.168.79.2")
_CONFIGS: dict[str, Document] = {
    LAN: {"type": "bridge", "bridge": "br-lan", "mtu": 1400, "macspoofchk": True, "ipam": {}},
    SPARE: {
        "type": "bridge",
        "bridge": "br-spare",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "192.168.78.0/24"}]]},
    },
    SECONDARY: {
        "cniVersion": "0.3.1",
        "type": "ovn-k8s-cni-overlay",
        "topology": "layer2",
        "netAttachDefName": f"{NAMESPACE}/{SECONDARY}",
    },
}
_CARD = "grep -l {mac} /sys/class/net/*/address | grep -v '/lo/' | cut -d/ -f5"


@dataclass(frozen=True)
class Pair:
    """Two machines on two nodes, and the network that both are on."""

    cluster: Cluster
    asks: Machine
    answers: Machine

    def interface(self, name: str, machine: Machine | None = None) -> Document:
        """The entry of an interface in the status of the machine that asks, or another; empty where there is
        none.
        """
        listed = (((machine or self.asks).instance() or {}).get("status") or {}).get("interfaces", ())
        return next((dict(item) for item in listed if item.get("name") == name), {})

    def template(self) -> Document:
        """The spec in the template of the machine that asks."""
        found: Document = self.asks.vm()["spec"]["template"]["spec"]
        return found

    def change(self, **parts: object) -> None:
        """Replace interfaces or networks in the template of the machine that asks."""
        spec: Document = {"networks": parts["networks"]} if "networks" in parts else {}
        spec["domain"] = {"devices": {"interfaces": parts["interfaces"]}}
        path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines/{self.asks.name}"
        self.cluster.request("PATCH", path, {"spec": {"template": {"spec": spec}}})


def _machine(cluster: Cluster, name: str, node: str, *more: str) -> Machine:
    wanted = manifest(name, grace=1)
    spec = wanted["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["domain"]["devices"]["interfaces"].append(
        {"name": LAN, "bridge": {}, "macAddress": _MACS[name], "model": "virtio"}
    )
    spec["domain"]["devices"]["interfaces"] += [{"name": each, "bridge": {}} for each in more]
    spec["networks"] += [{"name": each, "multus": {"networkName": each}} for each in (LAN, *more)]
    return cluster.create(wanted)


def _join(cluster: Cluster, node: str) -> None:
    """What an administrator does on a node: make its second card a port of the bridge of the definition."""
    namespace = cluster.state / "nodes" / node / "ns/net"
    command = ["nsenter", f"--net={namespace}", "ip", "link", "set", "lan0", "master", "br-lan"]
    subprocess.run(command, check=True, timeout=20)


@pytest.fixture(scope="module")
def pair(three_nodes: Cluster, guest_archive: Path) -> Iterator[Pair]:
    """The guests, running, each with an address on the network."""
    cluster = three_nodes
    cluster.load(guest_archive)
    for name, config in _CONFIGS.items():
        spec = {"config": json.dumps({"cniVersion": "1.0.0", "name": name, **config})}
        made = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        cluster.request("POST", _DEFINITIONS, {**made, "metadata": {"name": name}, "spec": spec})
    machines = [_machine(cluster, "lan-a", NODES[0]), _machine(cluster, "lan-b", NODES[1], SECONDARY)]
    try:
        for machine in machines:
            machine.wait_running(120)
        for node in NODES:
            _join(cluster, node)
        yield Pair(cluster, *machines)
    finally:
        clean_up(machines)
        for name in _CONFIGS:
            cluster.request("DELETE", f"{_DEFINITIONS}/{name}")


def _card(console: Console, mac: str) -> str:
    return console.run(_CARD.format(mac=mac)).strip()


def _configured(console: Console, name: str) -> str:
    card = wait_for("the guest sees its card", partial(_card, console, _MACS[name]), 20)
    console.run(f"ip addr add {_ADDRESSES[name]}/24 dev {card}; ip link set {card} up")
    return card


@pytest.mark.feature("NET-14", "NET-15", "NET-19", "NET-21", "NET-11", "NET-31")
def test_guests_of_two_nodes_reach_each_other_and_their_links_are_switched(pair: Pair) -> None:
    with pair.answers.console() as console:
        _configured(console, "lan-b")
    with pair.asks.console() as console:
        card = _configured(console, "lan-a")
        ping = f"ping -c 1 -W 2 {_ADDRESSES['lan-b']}"
        wait_for("the other guest answers", lambda: "1 packets received" in console.run(ping), 30)
        assert console.run(f"cat /sys/class/net/{card}/mtu") == "1400"
        status = pair.interface(LAN)
        assert (status["mac"], status["linkState"]) == (_MACS["lan-a"], "up")
        assert re.fullmatch("pod[0-9a-f]{11}", status["podInterfaceName"])
        wait_for("all sources say so", lambda: "multus-status" in pair.interface(LAN)["infoSource"], 20)

        def switched(state: str, carrier: str) -> None:
            interfaces = pair.template()["domain"]["devices"]["interfaces"]
            pair.change(
                interfaces=[{**each, "state": state} if each["name"] == LAN else each for each in interfaces]
            )
            look = f"cat /sys/class/net/{card}/carrier"
            wait_for(f"the link is {state}", lambda: console.run(look) == carrier, 20)
            wait_for("it is told", lambda: pair.interface(LAN)["linkState"] == state, 20)

        switched("down", "0")
        assert "1 packets received" not in console.run(ping)
        switched("up", "1")
        wait_for("the other guest answers again", lambda: "1 packets received" in console.run(ping), 30)
    assert pair.asks.condition("RestartRequired") == ""


@pytest.mark.feature("NET-22")
def test_a_guest_sends_with_its_own_mac_alone(pair: Pair) -> None:
    with pair.answers.console() as console:
        _configured(console, "lan-b")
    with pair.asks.console() as console:
        card = _configured(console, "lan-a")
        ping = f"ping -c 1 -W 2 {_ADDRESSES['lan-b']}"

        def reaches_as(mac: str) -> bool:
            console.run(f"ip link set {card} down; ip link set {card} address {mac}; ip link set {card} up")
            assert console.run(f"cat /sys/class/net/{card}/address") == mac
            return "1 packets received" in console.run(ping)

        wait_for("the other guest answers", lambda: reaches_as(_MACS["lan-a"]), 30)
        assert not any(reaches_as("02:00:5e:00:00:66") for _ in range(3))
        wait_for("the other guest answers again", lambda: reaches_as(_MACS["lan-a"]), 30)


@pytest.mark.feature("VML-38", "VML-22")
def test_a_card_comes_to_a_running_guest_with_an_address_and_leaves_it(pair: Pair) -> None:
    uid, before = pair.asks.uid(), pair.template()
    pair.change(
        interfaces=[*before["domain"]["devices"]["interfaces"], {"name": SPARE, "bridge": {}}],
        networks=[*before["networks"], {"name": SPARE, "multus": {"networkName": SPARE}}],
    )
    with pair.asks.console() as console:
        mac = wait_for("the status has the card", lambda: pair.interface(SPARE).get("mac"), 40)
        card = wait_for("the guest has the card", partial(_card, console, str(mac)), 20)
        console.run(f"ip link set {card} up")
        lease = console.run(f"udhcpc -i {card} -n -q -f -s /etc/udhcpc.script 2>&1")
        assert re.search(r"lease of 192\.168\.78\.\d+ obtained", lease)
        joined = json.loads(pair.asks.pod()["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"])
        assert [item["name"] for item in joined] == [each["name"] for each in pair.template()["networks"][1:]]

        interfaces = pair.template()["domain"]["devices"]["interfaces"]
        pair.change(
            interfaces=[{**each, "state": "absent"} if each["name"] == SPARE else each for each in interfaces]
        )
        wait_for("the guest has lost the card", lambda: not _card(console, str(mac)), 40)
    wait_for("the template is as before", lambda: pair.template() == before, 60)
    instance = pair.asks.instance() or {}
    assert SPARE not in json.dumps([instance["spec"], instance["status"]["interfaces"]])

    def joined_again() -> bool:
        told = json.loads(pair.asks.pod()["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
        return [item["name"] for item in told[1:]] == [
            f"{NAMESPACE}/{each['name']}" for each in before["networks"][1:]
        ]

    wait_for("the pod has left the network", joined_again, 40)
    assert (pair.asks.uid(), pair.asks.is_running()) == (uid, True)
    assert "RestartRequired" not in json.dumps(pair.asks.vm()["status"]["conditions"])


@pytest.mark.feature("NET-26")
def test_guests_of_two_nodes_are_on_one_network_of_ovn_kubernetes(pair: Pair) -> None:
    """One has it from the start, the other gets it while it runs; nobody prepares the nodes."""
    uid, before = pair.asks.uid(), pair.template()
    pair.change(
        interfaces=[*before["domain"]["devices"]["interfaces"], {"name": SECONDARY, "bridge": {}}],
        networks=[*before["networks"], {"name": SECONDARY, "multus": {"networkName": SECONDARY}}],
    )
    for machine, address in zip((pair.answers, pair.asks), _OVERLAY_ADDRESSES, strict=True):
        find_mac = partial(_mac_of, pair, machine)
        mac = wait_for("the status has the card", find_mac, 40)
        with machine.console() as console:
            card = wait_for("the guest has the card", partial(_card, console, mac), 20)
            console.run(f"ip addr add {address}/24 dev {card}; ip link set {card} up")
            assert int(console.run(f"cat /sys/class/net/{card}/mtu")) == _mtu_of_node(pair.cluster) - 50
    with pair.asks.console() as console:
        ping = f"ping -c 1 -W 2 -s 1300 {_OVERLAY_ADDRESSES[0]}"
        wait_for("the other guest answers", lambda: "1 packets received" in console.run(ping), 30)
    assert pair.asks.uid() == uid


def _mac_of(pair: Pair, machine: Machine) -> str:
    return str(pair.interface(SECONDARY, machine).get("mac") or "")


def _mtu_of_node(cluster: Cluster) -> int:
    namespace = cluster.state / "nodes" / NODES[0] / "ns/net"
    command = ["nsenter", f"--net={namespace}", "ip", "-j", "link", "show", "dev", "eth0"]
    found = subprocess.run(command, check=True, capture_output=True, timeout=20)
    return int(json.loads(found.stdout)[0]["mtu"])
