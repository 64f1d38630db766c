"""Pods on secondary networks, with the distribution's CNI plugins in network namespaces."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.namespaces import Namespace, connect, namespaces
from tests.support.network_nodes import PLUGINS, TestNode, addresses, links

from kindling.node.networks import network_status, policy
from kindling.node.networks.claims import CLAIMS
from kindling.node.networks.definitions import DEFINITIONS
from kindling.node.networks.problems import NetworkProblem
from kubecore.resources import PODS

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not (PLUGINS / "bridge").exists(), reason="needs containernetworking-plugins"),
    pytest.mark.skipif(shutil.which("nsenter") is None, reason="needs nsenter"),
]

LAN: dict[str, Any] = {
    "cniVersion": "0.3.1",
    "name": "lan",
    "type": "bridge",
    "bridge": "br1",
    "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"},
}
FLAT: dict[str, Any] = {"cniVersion": "0.3.1", "name": "flat", "type": "bridge", "bridge": "br2", "ipam": {}}
STATIC: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "static",
    "plugins": [
        {
            "type": "macvlan",
            "master": "eth1",
            "mode": "bridge",
            "capabilities": {"ips": True, "mac": True},
            "ipam": {"type": "static"},
        }
    ],
}


@dataclass
class Place:
    """A node and two sandboxes."""

    node: TestNode
    one: Namespace
    other: Namespace


@contextmanager
def _place(directory: Path, name: str) -> Iterator[Place]:
    with namespaces(f"{name}-node", f"{name}-one", f"{name}-other") as (node, one, other):
        for sandbox in (one, other):
            connect(node, f"up-{sandbox.name[-5:]}", sandbox, "eth0")
        (directory / name).mkdir()
        yield Place(TestNode(node, directory / name), one, other)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(policy, "STATE", str(tmp_path))
    with _place(tmp_path, "a") as made:
        yield made


def test_pods_on_one_bridge_reach_each_other(place: Place) -> None:
    node = place.node
    node.define("lan", LAN)
    node.attach(node.pod("one", "lan"), place.one)
    node.attach(node.pod("other", "ns/lan@data"), place.other)
    assert addresses(place.one, "net1") == ["10.9.0.2/24"]
    assert addresses(place.other, "data") == ["10.9.0.3/24"]
    place.other.serve("10.9.0.3", 80)
    assert place.one.reaches("10.9.0.3", 80)
    entry = {"name": "ns/lan", "interface": "net1", "ips": ["10.9.0.2"], "mac": place.one.mac("net1")}
    default = {
        "name": "kindling",
        "interface": "eth0",
        "ips": ["10.64.1.2"],
        "mac": "9a:00:00:00:00:02",
        "default": True,
        "dns": {},
        "gateway": ["10.64.1.1"],
    }
    assert node.status("one") == [default, {**entry, "dns": {}}]
    assert ("Normal", "AddedInterface", "Add net1 [10.9.0.2/24] from ns/lan") in node.events


def test_macvlan_with_the_macs_and_addresses_that_pods_ask_for(place: Place) -> None:
    node = place.node
    node.namespace.run("ip", "link", "add", "eth1", "type", "bridge")
    node.namespace.run("ip", "link", "set", "eth1", "up")
    node.define("static", STATIC)
    for name, sandbox, last in (("one", place.one, 5), ("other", place.other, 6)):
        wanted = {"name": "static", "ips": [f"10.8.0.{last}/24"], "mac": f"02:00:00:00:00:0{last}"}
        node.attach(node.pod(name, [wanted]), sandbox)
    assert place.one.mac("net1") == "02:00:00:00:00:05"
    assert addresses(place.one, "net1") == ["10.8.0.5/24"]
    place.other.serve("10.8.0.6", 80)
    assert place.one.reaches("10.8.0.6", 80)


@pytest.mark.skipif(shutil.which("iptables") is None, reason="needs iptables")
def test_ports_of_the_node_lead_to_a_pod(place: Place) -> None:
    node = place.node
    node.namespace.sysctl("net.ipv4.ip_forward", "1")
    plugins = [{**LAN, "isDefaultGateway": True}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    node.define("lan", {"cniVersion": "1.0.0", "name": "lan", "plugins": plugins})
    mapping = {"hostPort": 8080, "containerPort": 80}
    node.attach(node.pod("one", [{"name": "lan", "portMappings": [mapping]}]), place.one)
    place.one.serve("10.9.0.2", 80)
    node.namespace.run("ip", "addr", "add", "10.64.0.1/24", "dev", "up-other")
    place.other.run("ip", "addr", "add", "10.64.0.2/24", "dev", "eth0")
    assert place.other.reaches("10.64.0.1", 8080)
    node.detach(place.one)
    assert "8080" not in node.namespace.run("nft", "list", "ruleset")


def test_a_network_without_addresses_and_a_mac_by_arguments(place: Place) -> None:
    node = place.node
    node.define("flat", {**FLAT, "type": "cnv-bridge"})
    shutil.copytree(PLUGINS, node.directory / "plugins")
    node.settings["plugins"] = node.directory / "plugins"
    wanted = {"name": "flat", "mac": "02:00:00:00:00:07", "interface": "pod37a8eec1ce1"}
    node.attach(node.pod("one", [wanted]), place.one)
    assert place.one.mac("pod37a8eec1ce1") == "02:00:00:00:00:07"
    assert addresses(place.one, "pod37a8eec1ce1") == []
    told = {"name": "ns/flat", "interface": "pod37a8eec1ce1", "mac": "02:00:00:00:00:07", "dns": {}}
    assert node.status("one")[1:] == [told]


def test_attachments_are_undone_also_when_definition_pod_and_namespace_are_gone(place: Place) -> None:
    node = place.node
    node.define("lan", LAN)
    node.attach(node.pod("one", "lan,lan"), place.one)
    taken = Path(policy.STATE) / "addresses" / "lan"
    assert {"10.9.0.2", "10.9.0.3"} <= {path.name for path in taken.iterdir()}
    node.api.remove(DEFINITIONS, "lan", "ns")
    node.api.remove(PODS, "one", "ns")
    place.one.run("ip", "link", "del", "net2")
    node.run(lambda networks: networks.sweep([]))
    assert node.records() == []
    assert not {"10.9.0.2", "10.9.0.3"} & {path.name for path in taken.iterdir()}
    assert links(place.one) == {"lo", "eth0"}
    node.detach(place.one)


@pytest.mark.parametrize("kind", ["tuning", "sbr"])
def test_a_namespace_that_is_gone_is_no_obstacle(place: Place, kind: str) -> None:
    node = place.node
    node.define("lan", {"name": "lan", "plugins": [{**LAN}, {"type": kind}]})
    node.attach(node.pod("one", "lan"), place.one)
    place.one.close()
    node.detach(place.one)
    assert node.records() == []


def test_what_a_killed_agent_began_is_undone_and_made_anew(place: Place) -> None:
    """The agent is killed while a plugin runs: the record is there, and the link or the address, or not."""
    node = place.node
    node.define("lan", LAN)
    pod = node.pod("one", "lan")
    node.attach(pod, place.one)
    [record] = (node.directory / "records").iterdir()
    made = record.read_text()
    assert '"result":{' in made
    record.write_text(made[: made.index('"result":')] + '"result":null}')
    node.attach(pod, place.one)
    assert addresses(place.one, "net1") == ["10.9.0.3/24"]
    taken = {path.name for path in (Path(policy.STATE) / "addresses" / "lan").iterdir()}
    assert "10.9.0.2" not in taken
    begun = record.read_text()
    assert '"result":{' in begun
    node.detach(place.one)
    record.with_suffix(".new").write_text("half a rec")
    record.write_text(begun[: begun.index('"result":')] + '"result":null}')
    node.attach(pod, place.one)
    assert addresses(place.one, "net1") == ["10.9.0.4/24"]
    assert node.records() == [record.name]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_agent_is_killed_while_a_plugin_runs(place: Place, moment: str) -> None:
    node = place.node
    plugins = node.directory / "plugins"
    shutil.copytree(PLUGINS, plugins)
    (plugins / "bridge").rename(plugins / "real")
    kill, real = "kill -9 $PPID; exec sleep 5", f"{plugins}/real"
    work = f"{kill}; exec {real}" if moment == "before" else f"{real}; {kill}"
    (plugins / "bridge").write_text(f"#!/bin/sh\n{work}\n")
    (plugins / "bridge").chmod(0o755)
    node.settings["plugins"] = plugins
    node.define("lan", LAN)
    pod = node.pod("one", "lan")
    agent = multiprocessing.get_context("fork").Process(target=node.attach, args=(pod, place.one))
    agent.start()
    agent.join(20)
    assert agent.exitcode == -9
    assert ("net1" in links(place.one)) == (moment == "after")
    assert len(node.records()) == 1
    (plugins / "real").rename(plugins / "bridge")
    node.attach(pod, place.one)
    assert len(addresses(place.one, "net1")) == 1
    node.detach(place.one)
    assert links(place.one) == {"lo", "eth0"}
    taken = {path.name for path in (Path(policy.STATE) / "addresses" / "lan").iterdir()}
    assert not {"10.9.0.2", "10.9.0.3"} & taken


def test_only_one_mac_leaves_a_pod_where_the_definition_says_so(place: Place) -> None:
    node = place.node
    node.define("flat", {**FLAT, "macspoofchk": True})
    node.attach(node.pod("one", "flat"), place.one)
    node.attach(node.pod("other", "flat"), place.other)
    for sandbox, last in ((place.one, 1), (place.other, 2)):
        sandbox.run("ip", "addr", "add", f"192.168.9.{last}/24", "dev", "net1")
    place.other.serve("192.168.9.2", 80)
    own = place.one.mac("net1")
    assert place.one.reaches("192.168.9.2", 80)
    place.one.run("ip", "link", "set", "net1", "address", "02:00:00:00:00:66")
    assert not place.one.reaches("192.168.9.2", 80, 1)
    place.one.run("ip", "link", "set", "net1", "address", own)
    assert place.one.reaches("192.168.9.2", 80)
    node.detach(place.one)
    assert own not in node.namespace.run("nft", "list", "ruleset")


def test_networks_come_and_go_while_a_pod_runs(place: Place) -> None:
    node = place.node
    node.define("lan", LAN)
    node.define("flat", FLAT)
    node.attach(node.pod("one", "lan"), place.one)
    before = place.one.mac("net1")
    node.attach(
        node.pod("one", [{"name": "flat", "interface": "hot"}, {"name": "lan"}]), place.one, is_live=True
    )
    assert links(place.one) == {"lo", "eth0", "net1", "hot"}
    assert place.one.mac("net1") == before, "what stays is left alone"
    assert [item["interface"] for item in node.status("one")] == ["eth0", "hot", "net1"]
    node.attach(node.pod("one", "flat@hot"), place.one, is_live=True)
    assert links(place.one) == {"lo", "eth0", "hot"}
    assert [item["interface"] for item in node.status("one")] == ["eth0", "hot"]
    assert [event[1:] for event in node.events[1:]] == [
        ("AddedInterface", "pod [ns/one]: added interface hot to network: flat"),
        ("RemovedInterface", "pod [ns/one]: removed interface net1 from network: lan"),
    ]
    node.attach(node.pod("one", "[]"), place.one, is_live=True)
    assert links(place.one) == {"lo", "eth0"}
    assert len(node.status("one")) == 1


def test_a_network_that_cannot_be_added_to_a_running_pod_leaves_the_others(place: Place) -> None:
    node = place.node
    node.define("flat", FLAT)
    node.attach(node.pod("one", "flat"), place.one)
    pod = node.pod("one", "flat,missing@hot")
    with pytest.raises(NetworkProblem, match=r"cannot find a network-attachment-definition \(missing\)"):
        node.attach(pod, place.one, is_live=True)
    assert ("Warning", "FailedAddingInterface") in {event[:2] for event in node.events}
    assert "net1" in links(place.one)
    node.define("missing", FLAT)
    node.attach(pod, place.one, is_live=True)
    assert "hot" in links(place.one)


def test_a_missing_definition_is_named_before_there_is_a_sandbox(place: Place) -> None:
    node = place.node
    pod = node.pod("one", "other/lan")
    with pytest.raises(NetworkProblem) as raised:
        node.run(lambda networks: networks.check(pod))
    missing = (
        "cannot find a network-attachment-definition (lan) in namespace (other): "
        'network-attachment-definitions.k8s.cni.cncf.io "lan" not found'
    )
    assert str(raised.value) == (
        f"Multus: [ns/one/{pod['metadata']['uid']}]: error loading k8s delegates k8s args: "
        f"GetNetworkDelegates: failed getting the delegate: getKubernetesDelegate: {missing}"
    )
    assert node.events == [("Warning", "NoNetworkFound", missing)]


def test_a_pod_keeps_to_its_namespace_where_administrators_say_so(place: Place) -> None:
    node = place.node
    node.settings["is_isolated"] = True
    node.define("lan", LAN, "other")
    node.define("lan", LAN, "default")
    with pytest.raises(NetworkProblem, match="namespace isolation enabled, annotation violates permission"):
        node.attach(node.pod("one", "other/lan"), place.one)
    node.attach(node.pod("other", "default/lan"), place.other)


def test_a_plugin_that_fails_is_named_and_leaves_nothing(place: Place) -> None:
    node = place.node
    node.define("lan", {**LAN, "plugins": [{**LAN}, {"type": "vrf"}], "type": ""})
    with pytest.raises(
        NetworkProblem, match='error adding container to network "lan": plugin type="vrf" failed'
    ):
        node.attach(node.pod("one", "lan"), place.one)
    assert links(place.one) == {"lo", "eth0"}
    assert node.records() == []
    node.define("lan", {**LAN, "type": "tap"})
    with pytest.raises(NetworkProblem, match=r'failed to find plugin "tap" in path \[/usr/lib/cni\]'):
        node.attach(node.pod("one", "lan"), place.one)


def test_a_pod_cannot_have_its_own_links_replaced(place: Place) -> None:
    """To undo the attachment would remove the link that the pod network's filter is on."""
    node = place.node
    node.define("flat", FLAT)
    with pytest.raises(NetworkProblem, match="validateIfName: interface name eth0 already exists"):
        node.attach(node.pod("one", "flat@eth0"), place.one)
    assert "eth0" in links(place.one)


def test_the_links_of_the_pod_network_are_out_of_reach(place: Place) -> None:
    node = place.node
    node.namespace.run("ip", "link", "add", "cni0", "type", "bridge")
    node.namespace.run("ip", "link", "set", "up-a-one", "master", "cni0")
    for link in ("cni0", "eth0", "up-a-one"):
        node.define("steal", {"name": "steal", "type": "macvlan", "master": link, "ipam": {}})
        with pytest.raises(NetworkProblem, match=f'"{link}" belongs to the pod network'):
            node.attach(node.pod("other", "steal"), place.other)
    node.define("steal", {"name": "steal", "type": "host-device", "device": "up-a-one"})
    with pytest.raises(NetworkProblem, match="belongs to the pod network"):
        node.attach(node.pod("other", "steal"), place.other)
    assert links(place.other) == {"lo", "eth0"}


def test_the_default_route_goes_where_the_pod_says(place: Place) -> None:
    node = place.node
    for command in ("addr add 10.64.1.2/24 dev eth0", "route add default via 10.64.1.1"):
        place.one.run("ip", *command.split())
    node.define("lan", LAN)
    node.attach(node.pod("one", [{"name": "lan", "default-route": ["10.9.0.1"]}]), place.one)
    assert place.one.run("ip", "route", "show", "default").startswith("default via 10.9.0.1 dev net1")


def test_a_claim_keeps_the_address_for_the_next_pod(place: Place) -> None:
    node = place.node
    node.define("lan", {**LAN, "allowPersistentIPs": True})
    claim = {
        "metadata": {"name": "vm.lan", "namespace": "ns"},
        "spec": {"network": "lan", "interface": "net1"},
    }
    node.api.put(CLAIMS, {"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", **claim})
    wanted = [{"name": "lan", "ipam-claim-reference": "vm.lan"}]
    node.attach(node.pod("one", wanted), place.one)
    held = node.api.get(CLAIMS, "vm.lan", "ns")
    assert held is not None
    assert held["status"] == {"ips": ["10.9.0.2/24"], "ownerPod": "one"}
    node.detach(place.one)
    node.attach(node.pod("other", wanted), place.other)
    assert addresses(place.other, "net1") == ["10.9.0.2/24"], "host-local would go on to the next by itself"
    held = node.api.get(CLAIMS, "vm.lan", "ns")
    assert held is not None
    assert held["status"]["ownerPod"] == "other"


def test_a_claim_of_another_network_is_refused(place: Place) -> None:
    node = place.node
    node.define("lan", {**LAN, "allowPersistentIPs": True})
    claim = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"network": "blue", "interface": "net1"}}
    node.api.put(CLAIMS, {"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", **claim})
    with pytest.raises(NetworkProblem, match="is for network 'blue', not 'lan'"):
        node.attach(node.pod("one", [{"name": "lan", "ipam-claim-reference": "c"}]), place.one)


def test_a_definition_without_configuration_names_a_file_of_the_administrator(place: Place) -> None:
    node = place.node
    node.define("lan", "")
    with pytest.raises(NetworkProblem, match="No networks found in"):
        node.attach(node.pod("one", "lan"), place.one)
    (node.directory / "files").mkdir()
    (node.directory / "files" / "10-lan.conf").write_text(
        '{"name": "lan", "type": "bridge", "bridge": "br9"}'
    )
    node.attach(node.pod("one", "lan"), place.one)
    assert "br9" in links(node.namespace)


def test_a_plugin_that_hangs_or_never_stops_writing_is_killed(place: Place) -> None:
    node = place.node
    plugins = node.directory / "plugins"
    plugins.mkdir()
    node.settings |= {"plugins": plugins, "plugin_seconds": 0.2}
    node.define("lan", LAN)
    for script, said in (("sleep 60", "has not ended within"), ("cat /dev/zero", "wrote more than")):
        (plugins / "bridge").write_text(f"#!/bin/sh\n{script}\n")
        (plugins / "bridge").chmod(0o755)
        with pytest.raises(NetworkProblem, match=said):
            node.attach(node.pod("one", "lan"), place.one)


def test_the_status_is_not_written_again(place: Place) -> None:
    node = place.node
    node.define("flat", FLAT)
    node.attach(node.pod("one", "flat"), place.one)
    pod = node.api.get(PODS, "one", "ns")
    assert pod is not None
    assert pod["metadata"]["annotations"][network_status.ANNOTATION].startswith('[{\n    "name": "kindling"')
    node.api.requests.clear()
    node.attach(pod, place.one)
    assert node.api.requests == []


def test_pods_of_the_hosts_network_have_no_others(place: Place) -> None:
    node = place.node
    pod = node.pod("one", "lan")
    pod["spec"]["hostNetwork"] = True
    node.run(lambda networks: networks.check(pod))
    node.attach(pod, place.one)
    assert node.records() == []
