"""A guest behind NAT, with both address families, in real network namespaces."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.namespaces import Namespace, connect, namespaces
from tests.support.network_plans import plan_network

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.launchers.netns import enter_and_run
from virtplane.compute.handler.network import setup
from virtplane.compute.handler.threads import in_thread
from virtplane.compute.launcher import dhcp6

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

_Result = TypeVar("_Result")
NODE, POD = ("10.9.0.1", "fd6b::1:1"), ("10.9.0.5", "fd6b::1:5")
GUEST, GATEWAY = ("10.0.2.2", "fd10:0:2::2"), ("10.0.2.1", "fd10:0:2::1")


async def inside(namespace: Namespace, function: Callable[[], _Result]) -> _Result:
    opened = os.open(Path("/run/netns", namespace.name), os.O_RDONLY)
    try:
        return await in_thread("test", enter_and_run, opened, function)
    finally:
        os.close(opened)


@dataclass
class Network:
    """A pod with a guest behind it, and the node before it."""

    node: Namespace
    pod: Namespace
    guest: Namespace

    async def prepare(self, **interface: object) -> None:
        """What virt-handler does, twice; then the guest's card instead of its tap."""
        spec = {
            "networks": [{"name": "default", "pod": {}}],
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}, **interface}]}},
        }
        vmi = decode(VirtualMachineInstance, {"metadata": {"name": "vm"}, "spec": spec})

        def act() -> None:
            pod = setup.read_pod_interface()
            assert pod is not None
            plan = plan_network(vmi, pod)
            assert plan is not None
            setup.apply(plan)

        for _ in range(2):
            await inside(self.pod, act)
        connect(self.pod, "guest", self.guest, "eth0")
        self.pod.run("ip", "link", "set", "guest", "master", "k6t-eth0")
        configure(self.guest, GUEST, ("24", "120"), GATEWAY)


def configure(
    namespace: Namespace, own: tuple[str, str], prefixes: tuple[str, str], gateways: tuple[str, str]
) -> None:
    for address, prefix, gateway in zip(own, prefixes, gateways, strict=True):
        nodad = ["nodad"] if ":" in address else []
        namespace.run("ip", "addr", "add", f"{address}/{prefix}", "dev", "eth0", *nodad)
        namespace.run("ip", "route", "add", "default", "via", gateway)


@pytest.fixture
def network() -> Iterator[Network]:
    with namespaces("node", "pod", "guest") as (node, pod, guest):
        connect(node, "pod", pod, "eth0")
        node.run("ip", "addr", "add", f"{NODE[0]}/24", "dev", "pod")
        node.run("ip", "addr", "add", f"{NODE[1]}/64", "dev", "pod", "nodad")
        configure(pod, POD, ("24", "64"), NODE)
        yield Network(node, pod, guest)


@pytest.mark.feature("NET-02", "NET-05")
async def test_a_guest_is_reached_and_speaks_by_both_addresses_of_its_pod(network: Network) -> None:
    await network.prepare()
    for node, pod, guest in zip(NODE, POD, GUEST, strict=True):
        network.guest.serve(guest, 80)
        network.node.serve(node, 81)
        assert network.node.seen_as(pod, 80) == node
        assert network.guest.seen_as(node, 81) == pod
    assert network.pod.seen_as("127.0.0.1", 80) == GATEWAY[0]


@pytest.mark.feature("NET-05")
async def test_a_list_of_ports_holds_for_both_families(network: Network) -> None:
    await network.prepare(ports=[{"port": 80}])
    for pod, guest in zip(POD, GUEST, strict=True):
        for port in (80, 82):
            network.guest.serve(guest, port)
        assert network.node.reaches(pod, 80)
        assert not network.node.reaches(pod, 82)


@pytest.mark.feature("NET-05")
async def test_the_launcher_gives_the_guest_its_ipv6_address(network: Network) -> None:
    await network.prepare()

    def client() -> socket.socket:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.settimeout(5)
        made.bind(("::", dhcp6.CLIENT_PORT))
        everybody = ("ff02::1:2", dhcp6.SERVER_PORT, 0, socket.if_nametoindex("eth0"))
        made.sendto(b"\1xid\0\1\0\4guid\0\3\0\x0c" + bytes(12), everybody)
        return made

    with await inside(network.pod, lambda: dhcp6.open_socket("k6t-eth0")) as server:
        server.setblocking(True)
        server.settimeout(5)
        with await inside(network.guest, client) as guest:
            request, peer = server.recvfrom(1000)
            reply = dhcp6.answer(request, GUEST[1])
            assert reply is not None
            server.sendto(reply, (peer[0], dhcp6.CLIENT_PORT, 0, peer[3]))
            heard = guest.recv(1000)
    assert heard[0] == 2
    assert socket.inet_pton(socket.AF_INET6, GUEST[1]) in heard


async def test_a_pod_without_ipv6_gives_its_guest_none(network: Network) -> None:
    network.pod.run("ip", "addr", "del", f"{POD[1]}/64", "dev", "eth0")
    await network.prepare()
    assert "table ip6" not in network.pod.run("nft", "list", "tables")
    assert GATEWAY[1] not in network.pod.run("ip", "addr")
