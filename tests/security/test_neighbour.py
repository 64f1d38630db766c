"""A hostile pod on the pod network: what it can forge, and what of node and machine it reaches."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.commands import run
from tests.e2e.support import wait_for
from tests.support.frames import (
    ADVERTISEMENT,
    ARP,
    IPV4,
    IPV6,
    LAST,
    ROUTER,
    SOLICITATION,
    UDP,
    arp,
    frame,
    icmp6,
    ip,
    ip6,
    is_heard,
    link_option,
    neighbour,
    udp6,
)
from tests.support.namespaces import packets_in
from tests.support.shellpods import ShellPod, shell_pod

from kindling.network.pod_filter import BRIDGE

pytestmark = pytest.mark.host


@pytest.fixture(scope="module")
def hostile(cluster: Cluster) -> Iterator[ShellPod]:
    with shell_pod(cluster, "hostile") as pod:
        yield pod


@pytest.fixture(scope="module")
def victim(cluster: Cluster) -> Iterator[ShellPod]:
    with shell_pod(cluster, "victim") as pod:
        pod.serve("victim")
        yield pod


def gateway(pod: ShellPod) -> str:
    """The node's address on the pod network."""
    return pod.run("ip route").stdout.split("via ")[1].split()[0]


def own_mac(pod: ShellPod) -> str:
    return pod.run("cat /sys/class/net/eth0/address").stdout.strip()


def second_address(pod: ShellPod) -> str:
    """The pod's IPv6 address."""
    found = [str(entry["ip"]) for entry in pod.document()["status"]["podIPs"]]
    if len(found) < 2:
        pytest.skip("the machine has no IPv6")
    return found[1]


def node_network(pod: ShellPod) -> Path:
    """The network namespace of the pod's node."""
    return pod.cluster.state / "nodes" / str(pod.document()["spec"]["nodeName"]) / "ns/net"


def layout(cluster: Cluster) -> dict[str, str]:
    """Subnet, port and names of the cluster."""
    made: dict[str, str] = json.loads((cluster.state / "instance.json").read_text())
    return made


def test_what_a_neighbour_forges_does_not_arrive(hostile: ShellPod, victim: ShellPod) -> None:
    mac, address = own_mac(hostile), hostile.address
    last = frame(mac, IPV4, ip(address, content=LAST))
    theirs = own_mac(victim)
    forged = {
        "the gateway's ARP": frame(mac, ARP, arp(mac, gateway(hostile))),
        "a neighbour's ARP": frame(mac, ARP, arp(mac, victim.address)),
        "a neighbour's card": frame(theirs, IPV4, ip(address)),
        "a neighbour's address": frame(mac, IPV4, ip(victim.address)),
        "an address of elsewhere": frame(mac, IPV4, ip("192.0.2.1")),
        "a DHCP answer": frame(mac, IPV4, ip(address, ports=(67, 68))),
        "a router of IPv6": frame(mac, IPV6, ROUTER),
    }
    # Neighbours do not hear each other's frames at all, so the ear is the node's.
    with packets_in(node_network(hostile), BRIDGE) as ear, packets_in(hostile.network, "eth0") as mouth:
        arrived = {what for what, sent in forged.items() if is_heard(ear, mouth, sent, last)}
        assert is_heard(ear, mouth, frame(mac, ARP, arp(mac, address)), last)
    assert arrived == set()


def test_what_a_neighbour_forges_of_ipv6_does_not_arrive(hostile: ShellPod, victim: ShellPod) -> None:
    mac, own, theirs = own_mac(hostile), second_address(hostile), second_address(victim)
    last = frame(mac, IPV4, ip(hostile.address, content=LAST))
    router = hostile.run("ip -6 route show default").stdout.split("via ")[1].split()[0]
    link = link_option(2, mac)
    forged = {
        "the gateway's advertisement": ip6(own, neighbour(ADVERTISEMENT, router, link)),
        "a neighbour's advertisement": ip6(theirs, neighbour(ADVERTISEMENT, theirs, link)),
        "an objection to a new address": ip6("::", neighbour(SOLICITATION, theirs)),
        "a router's advertisement": ip6(own, icmp6(134)),
        "a redirect": ip6(own, icmp6(137)),
        "a neighbour's address": ip6(theirs, udp6((5000, 5000)), header=UDP),
        "an address of elsewhere": ip6("2001:db8::1", udp6((5000, 5000)), header=UDP),
        "a DHCPv6 answer": ip6(own, udp6((547, 546)), header=UDP),
    }
    with packets_in(node_network(hostile), BRIDGE) as ear, packets_in(hostile.network, "eth0") as mouth:
        arrived = {
            what for what, sent in forged.items() if is_heard(ear, mouth, frame(mac, IPV6, sent), last, sent)
        }
        honest = ip6(own, neighbour(SOLICITATION, theirs, link_option(1, mac)))
        assert is_heard(ear, mouth, frame(mac, IPV6, honest), last, honest)
    assert arrived == set()


def test_a_pod_that_takes_a_neighbours_place_is_cut_off(cluster: Cluster, victim: ShellPod) -> None:
    powers = {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}
    with shell_pod(cluster, "impostor", securityContext=powers) as impostor:
        assert impostor.fetches(victim.address, 8080) == "victim"
        stolen = f"ip link set eth0 down && ip link set eth0 address {own_mac(victim)} && ip link set eth0 up"
        assert impostor.run(f"{stolen} && ip route add default via {gateway(victim)}").returncode == 0
        assert not impostor.connects(victim.address, 8080, 2)


def test_no_filter_outlives_its_pod(cluster: Cluster) -> None:
    node = cluster.state / "nodes/node01/ns/net"
    with shell_pod(cluster, "short") as pod:
        here = pod.address
        assert (
            here in run("nsenter", f"--net={node}", "nft", "list", "table", "netdev", "kindling-pods").stdout
        )
    links = run("nsenter", f"--net={node}", "ip", "-o", "link").stdout

    # Where the kernel keeps a filter without its link, the next round of housekeeping removes it.
    def only_living() -> bool:
        listed = run("nsenter", f"--net={node}", "nft", "-j", "list", "chains", "netdev").stdout
        chains = [item["chain"]["name"] for item in json.loads(listed)["nftables"] if "chain" in item]
        return bool(chains) and all(f" {chain}@" in links for chain in chains)

    wait_for("the filter is gone", only_living, 30)


@contextmanager
def listening(address: str) -> Iterator[int]:
    """A server of the machine that says hello; its port."""
    with socket.create_server((address, 0)) as server:

        def answer() -> None:
            while True:
                try:
                    made, _ = server.accept()
                except OSError:
                    return
                made.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_of_the_machine_pods_reach_the_api_and_the_resolver_alone(
    cluster: Cluster, hostile: ShellPod
) -> None:
    made = layout(cluster)
    address = made["subnet"].replace(".0.0/16", ".0.1")
    with listening("0.0.0.0") as port:
        with socket.create_connection((address, port), timeout=5):
            pass
        assert not hostile.connects(address, port)
        outside = run("ip", "-4", "-o", "addr", "show", "scope", "global").stdout.splitlines()
        for line in outside:
            own = line.split()[3].split("/")[0]
            assert not hostile.connects(own, port), own
    assert hostile.connects(address, int(made["api_port"]))
    assert hostile.connects(address.replace(".0.1", ".240.1"), 443)
    assert hostile.run("nslookup kubernetes.default.svc.cluster.local").returncode == 0


def test_a_service_is_no_way_to_the_machines_servers(cluster: Cluster, hostile: ShellPod) -> None:
    """One whose endpoints are the machine: by its address, and by node ports, which are masqueraded."""
    made = layout(cluster)
    machine = made["subnet"].replace(".0.0/16", ".0.1")
    node = str(hostile.document()["status"]["hostIP"])
    services = f"{CORE}/namespaces/default/services"
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    with listening(machine) as port:
        ports = [{"name": "open", "port": int(made["api_port"])}, {"name": "shut", "port": port}]
        body = {"metadata": {"name": "way-in"}, "spec": {"type": "NodePort", "ports": ports}}
        service = cluster.request("POST", services, body)
        endpoints = {
            "metadata": {"name": "way-in", "labels": {"kubernetes.io/service-name": "way-in"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [machine], "conditions": {"ready": True}}],
            "ports": [{**item, "protocol": "TCP"} for item in ports],
        }
        cluster.request("POST", slices, endpoints)
        try:
            opened, shut = (item["nodePort"] for item in service["spec"]["ports"])
            # The API server is open to pods: when this one answers, the rules are there.
            wait_for("the way to the API", lambda: hostile.connects(node, opened, 2), 20)
            assert not hostile.connects(node, shut)
            assert not hostile.connects(machine, shut)
            assert not hostile.connects(str(service["spec"]["clusterIP"]), port)
        finally:
            cluster.request("DELETE", f"{services}/way-in")


def test_pods_reach_the_kubelet_and_each_other(hostile: ShellPod, victim: ShellPod) -> None:
    node = str(hostile.document()["status"]["hostIP"])
    assert hostile.connects(node, 10250)
    assert hostile.connects(gateway(hostile), 10250) is False, "the kubelet listens on the node's address"
    assert hostile.fetches(victim.address, 8080) == "victim"


def test_a_pod_has_a_limit_of_processes(cluster: Cluster) -> None:
    with shell_pod(cluster, "many") as pod:
        assert process_limit(pod) == "4096"


def process_limit(pod: ShellPod) -> str:
    """The limit of processes in the pod's own cgroup."""
    for line in Path(f"/proc/{pod.pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "pids":
            return Path(f"/sys/fs/cgroup/pids{path}").parent.joinpath("pids.max").read_text().strip()
        if controllers == "" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path(f"/sys/fs/cgroup{path}").parent.joinpath("pids.max").read_text().strip()
    raise AssertionError("nobody counts its processes")
