"""A guest in a pod's place, in real network namespaces; the guest is whoever holds its tap."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface
from pathlib import Path
from typing import TypeVar

import pytest
from pyroute2 import IPRoute
from tests.support.network_plans import plan_network

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.launchers.netns import enter_and_run
from virtplane.compute.handler.network import bridge, links, setup
from virtplane.compute.handler.network.lease import Resolver, lease
from virtplane.compute.handler.network.plan import BridgePlan, Plan, PodInterface, Route, plan_wire
from virtplane.compute.handler.threads import in_thread
from virtplane.compute.launcher import dhcp
from virtplane.compute.podlinks import LinkNames, wires

pytestmark = pytest.mark.host

_Result = TypeVar("_Result")
MAC = "0a:58:0a:09:00:05"
GATEWAY = "10.9.0.1"
POD = PodInterface(
    MAC,
    1400,
    (IPv4Interface("10.9.0.5/24"), IPv6Interface("fd6b::1:5/64")),
    (
        Route(IPv4Network("0.0.0.0/0"), IPv4Address(GATEWAY)),
        Route(IPv4Network("192.168.7.0/24"), IPv4Address("169.254.1.1")),
        Route(IPv4Network("192.168.8.0/24")),
    ),
)
VMI = decode(
    VirtualMachineInstance,
    {
        "metadata": {"name": "vm"},
        "spec": {
            "networks": [{"name": "default", "pod": {}}],
            "domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}},
        },
    },
)
_SECONDS = 3.0


class Namespace:
    """A network namespace that lives as long as a process of ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def ip(self, *commands: str) -> None:
        batch = "\n".join(commands)
        entered = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", "-batch", "-"]
        subprocess.run(entered, input=batch, text=True, check=True)

    async def inside(self, function: Callable[[], _Result]) -> _Result:
        namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            return await in_thread("test", enter_and_run, namespace, function)
        finally:
            os.close(namespace)


@contextmanager
def namespace() -> Iterator[Namespace]:
    # It says something once it is inside, and ends with its input.
    command = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        try:
            yield Namespace(process.pid)
        finally:
            process.stdin.close()
            process.wait(5)


@pytest.fixture
def node() -> Iterator[Namespace]:
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("unshare", "nsenter", "ip")):
        pytest.skip("needs root, unshare, nsenter and ip")
    with namespace() as made:
        yield made


@pytest.fixture
def pod(node: Namespace) -> Iterator[Namespace]:
    """A pod whose interface leads to the node, with routes of every kind."""
    with namespace() as made:
        made.ip(
            "link set lo up",
            f"link add eth0 address {MAC} mtu 1400 type veth peer name pod",
            f"link set pod netns {node.pid}",
            "addr add 10.9.0.5/24 dev eth0",
            "addr add fd6b::1:5/64 dev eth0 nodad",
            "link set eth0 up",
            f"route add default via {GATEWAY}",
            "route add 192.168.7.0/24 via 169.254.1.1 dev eth0 onlink",
            "route add 192.168.8.0/24 dev eth0",
        )
        node.ip(f"addr add {GATEWAY}/24 dev pod", "link set pod mtu 1400 up")
        yield made


async def bridged(pod: Namespace) -> BridgePlan:
    found = await pod.inside(setup.read_pod_interface)
    assert found is not None
    plan = plan_network(VMI, found)
    assert isinstance(plan, BridgePlan)
    await pod.inside(lambda: setup.apply(plan))
    return plan


def state() -> bridge.NetworkState:
    with IPRoute() as route:
        return links.look(route)


@pytest.mark.feature("NET-01", "NET-10")
async def test_the_holder_has_what_the_pods_interface_had_also_for_a_later_virt_handler(
    pod: Namespace,
) -> None:
    plan = await bridged(pod)
    assert plan.pod == POD
    before = await pod.inside(state)
    assert await bridged(pod) == plan
    assert await pod.inside(state) == before
    assert before.links["eth0-nic"].master == before.links["tap0"].master == "k6t-eth0"
    assert before.links["eth0-nic"].interface == PodInterface(plan.bridge_mac, 1400)
    assert not before.links["eth0-nic"].learning
    assert set(before.links) == {"lo", "eth0", "eth0-nic", "k6t-eth0", "tap0"}


async def test_a_virt_handler_that_is_killed_after_every_step_comes_to_the_same_end(pod: Namespace) -> None:
    def take_one() -> bool:
        with IPRoute() as route:
            seen = links.look(route)
            found = bridge.pod_interface(seen)
            assert found == POD
            plan = plan_network(VMI, found)
            assert isinstance(plan, BridgePlan)
            todo = bridge.steps(seen, plan)
            if todo:
                links.take(route, todo[0])
            return bool(todo)

    taken = 0
    while await pod.inside(take_one):
        taken += 1
        assert taken < 60
    after = await pod.inside(state)
    await bridged(pod)
    assert await pod.inside(state) == after


BLUE = LinkNames("pod16477688c0e", "k6t-16477688c0e", "tap16477688c0e", "16477688c0e-nic", "16477688c0e-old")
SECONDARY = decode(
    VirtualMachineInstance,
    {
        "metadata": {"name": "vm"},
        "spec": {
            "networks": [
                {"name": "default", "pod": {}},
                {"name": "blue", "multus": {"networkName": "blue"}},
            ],
            "domain": {
                "cpu": {"cores": 2},
                "devices": {
                    "networkInterfaceMultiqueue": True,
                    "interfaces": [{"name": "default", "masquerade": {}}, {"name": "blue", "bridge": {}}],
                },
            },
        },
    },
)


@pytest.mark.feature("NET-14", "NET-15")
async def test_a_secondary_interface_is_bridged_beside_the_pods_and_given_back(
    node: Namespace, pod: Namespace
) -> None:
    pod.ip(
        f"link add {BLUE.pod} address 02:11:22:33:44:55 mtu 1300 type veth peer name blue",
        f"link set blue netns {node.pid}",
        f"link set {BLUE.pod} up",
    )
    node.ip("link set blue up")

    def wire() -> list[Plan]:
        plans = []
        for each in wires(SECONDARY):
            found = setup.read_pod_interface(each.names)
            assert found is not None
            plans.append(plan_wire(SECONDARY, each, found))
            setup.apply(plans[-1])
        return plans

    for _ in range(2):
        _, secondary = await pod.inside(wire)
    assert isinstance(secondary, BridgePlan)
    assert (secondary.mac, secondary.names, secondary.queues) == ("02:11:22:33:44:55", BLUE, 2)
    assert lease(secondary, SECONDARY, Resolver()) is None  # The network has no IPAM, so nothing is told.
    seen = (await pod.inside(state)).links
    assert seen[BLUE.card].master == seen[BLUE.tap].master == BLUE.bridge
    assert seen["tap0"].master == "k6t-eth0" and seen[BLUE.tap].interface.mtu == 1300

    def queues() -> list[int]:
        # As QEMU opens it: once for each queue. Another descriptor than the tap has queues for fails.
        opened = [open_tap(BLUE.tap) for _ in range(2)]
        for descriptor in opened:
            os.close(descriptor)
        return opened

    assert len(await pod.inside(queues)) == 2
    for _ in range(2):
        await pod.inside(lambda: setup.remove(BLUE))
    left = (await pod.inside(state)).links
    assert left[BLUE.pod].interface.mac == "02:11:22:33:44:55"
    assert not {BLUE.bridge, BLUE.tap, BLUE.card, BLUE.first_holder} & set(left)
    assert seen["tap0"] == left["tap0"]  # The other interface feels nothing.


async def test_the_pod_is_not_itself_on_the_network_of_its_guest(pod: Namespace) -> None:
    await bridged(pod)

    def settings() -> list[str]:
        names = ("k6t-eth0", "eth0-nic", "tap0")
        return [Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6").read_text() for name in names]

    assert await pod.inside(settings) == ["1\n"] * 3


def open_tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    flags = 0x0002 | 0x1000 | 0x0100  # a tap, no packet information, one queue of several
    fcntl.ioctl(descriptor, 0x400454CA, struct.pack("16sH22x", name.encode(), flags))
    return descriptor


async def test_a_failing_step_says_what_failed(pod: Namespace) -> None:
    plan = await bridged(pod)
    pod.ip("link del eth0-nic")
    with pytest.raises(setup.NetworkSetupError, match="eth0-nic"):
        await pod.inside(lambda: setup.apply(plan))


class Tap:
    """The guest's card: whole Ethernet frames."""

    def __init__(self) -> None:
        self.descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.descriptor, 0x400454CA, struct.pack("16sH14x", b"tap0", 0x1002))

    def send(self, kind: int, payload: bytes, *, to: bytes = b"\xff" * 6) -> None:
        os.write(self.descriptor, to + mac(MAC) + struct.pack("!H", kind) + payload)

    def expect(self, wanted: Callable[[bytes], bool]) -> bytes:
        deadline = time.monotonic() + _SECONDS
        while True:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the guest heard nothing of that kind"
            frame = os.read(self.descriptor, 2048)
            if wanted(frame):
                return frame


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~(total + (total >> 16)) & 0xFFFF


def datagram(source: str, destination: str, ports: tuple[int, int], data: bytes) -> bytes:
    udp = struct.pack("!HHHH", *ports, 8 + len(data), 0) + data
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + addresses
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + udp


def ask(tap: Tap, server: socket.socket, request: bytes) -> bytes:
    """Send until the server hears it, as clients do: a tap's carrier takes the kernel up to a second."""
    server.settimeout(_SECONDS / 10)
    for _ in range(10):
        tap.send(0x0800, request)
        with suppress(TimeoutError):
            return server.recv(2048)
    raise AssertionError("the server heard nothing")


@pytest.mark.feature("NET-01")
async def test_the_guest_gets_the_pods_address_by_dhcp(pod: Namespace) -> None:
    plan = await bridged(pod)
    offer = lease(plan, VMI, Resolver(("10.96.0.10",)))
    assert offer is not None
    tap = await pod.inside(Tap)
    server = await pod.inside(lambda: dhcp.open_socket("k6t-eth0"))
    discover = struct.pack("!BBBBIHH16s16s192s", 1, 1, 6, 0, 7, 0, 0x8000, b"", mac(MAC), b"")
    discover += b"\x63\x82\x53\x63" + bytes([53, 1, 1, 255])
    with server:
        request = datagram("0.0.0.0", "255.255.255.255", (68, 67), discover)
        reply = dhcp.answer(await asyncio.to_thread(ask, tap, server, request), offer)
        assert reply is not None
        server.sendto(reply, ("255.255.255.255", dhcp.CLIENT_PORT))
    frame = tap.expect(lambda frame: frame[12:14] == b"\x08\x00" and frame[36:38] == struct.pack("!H", 68))
    os.close(tap.descriptor)
    assert socket.inet_ntoa(frame[26:30]) == "169.254.75.10"
    message = frame[42:]
    assert socket.inet_ntoa(message[16:20]) == "10.9.0.5"
    routes = bytes.fromhex("20a9fe0101 00000000 18c0a808 00000000 18c0a807 a9fe0101 00 0a090001")
    assert bytes([121, len(routes)]) + routes in message


@pytest.mark.feature("NET-01", "NET-13")
async def test_only_the_guest_answers_for_its_address_and_it_is_reached_and_reaches_others(
    node: Namespace, pod: Namespace
) -> None:
    await bridged(pod)
    tap = await pod.inside(Tap)
    outside = await node.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with outside:
        outside.settimeout(_SECONDS)
        outside.bind((GATEWAY, 5000))
        outside.sendto(b"hello", ("10.9.0.5", 7))
        request = tap.expect(lambda frame: frame[12:14] == b"\x08\x06")
        neighbours = await node.inside(_neighbours)
        assert neighbours.get("10.9.0.5") is None, "somebody else answered for the guest's address"
        router, own = request[6:12], socket.inet_aton("10.9.0.5")
        answer = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + mac(MAC) + own + router
        tap.send(0x0806, answer + socket.inet_aton(GATEWAY), to=router)
        heard = tap.expect(lambda frame: frame[12:14] == b"\x08\x00" and frame.endswith(b"hello"))
        assert heard[:6] == mac(MAC)
        tap.send(0x0800, datagram("10.9.0.5", GATEWAY, (7, 5000), b"welcome"), to=router)
        assert (await asyncio.to_thread(outside.recvfrom, 100)) == (b"welcome", ("10.9.0.5", 7))
    os.close(tap.descriptor)


def _neighbours() -> dict[str, str | None]:
    with IPRoute() as route:
        return {
            item.get_attr("NDA_DST"): item.get_attr("NDA_LLADDR")
            for item in route.get_neighbours(family=socket.AF_INET)
        }
