"""The networks of a running guest are followed, whatever goes wrong in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.interfaces import plugged_interfaces
from virtplane.compute.handler.launchers.control import LauncherLink
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.network import keeper, passt, setup
from virtplane.compute.handler.network.keeper import GuestNetworks, NotPlugged
from virtplane.compute.handler.network.plan import Plan, PodInterface
from virtplane.compute.handler.threads import Steps
from virtplane.compute.podlinks import LinkNames

BLUE = "pod16477688c0e"


def instance(state: str | None = None, **blue: Any) -> VirtualMachineInstance:
    """A guest on the pod network, and on `blue` unless its state is None."""
    interfaces: list[Any] = [{"name": "default", "masquerade": {}}]
    networks: list[Any] = [{"name": "default", "pod": {}}]
    if state is not None:
        interfaces.append({"name": "blue", **(blue or {"bridge": {}}), "state": state})
        networks.append({"name": "blue", "multus": {"networkName": "blue"}})
    spec = {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}
    return decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})


class Launcher:
    """A launcher and its pod's network, as far as the networks of its guest go."""

    def __init__(self) -> None:
        self.links = {"eth0": PodInterface("02:00:00:00:00:01", 1500)}
        self.bridges: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.process = self
        self.failure: Exception | None = None
        self.passt: list[list[str]] = []

    async def request(self, command: str, **given: Any) -> None:
        if command == "passt":
            self.passt.append([given["cable"], *given["arguments"]])
        else:
            self.asked.append((command, given["interface"]))

    def network(self) -> int:
        return os.open("/dev/null", os.O_RDONLY)

    def root(self) -> Launcher:
        return self

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def read(self, _path: str) -> bytes:
        return b"nameserver 10.0.0.1\n"

    # What ``setup`` does in the namespace.

    def read_pod_interface(self, names: LinkNames) -> PodInterface | None:
        return self.links.get(names.pod)

    def apply(self, plan: Plan) -> None:
        if self.failure is not None:
            raise self.failure
        self.bridges.add(plan.names.bridge)

    def remove(self, names: LinkNames) -> None:
        self.bridges.discard(names.bridge)


class Domain:
    """A domain in libvirt, whose guest lets a card go when it likes."""

    def __init__(self, *interfaces: str) -> None:
        self.devices = dict.fromkeys(interfaces, "")
        for name in interfaces:
            self.devices[name] = f'<interface><alias name="ua-{name}"/></interface>'
        self.leaving: set[str] = set()
        self.failure: HypervisorError | None = None
        self.looks = 0

    async def description(self, _name: str) -> str:
        self.looks += 1
        return f"<domain><devices>{''.join(self.devices.values())}</devices></domain>"

    async def attach_device(self, _name: str, xml: str) -> None:
        if self.failure is not None:
            raise self.failure
        (found,) = plugged_interfaces(f"<domain><devices>{xml}</devices></domain>")
        self.devices[found] = xml

    async def update_device(self, name: str, xml: str) -> None:
        await self.attach_device(name, xml)

    async def detach_interface(self, _name: str, interface: str) -> None:
        self.leaving.add(interface)

    def let_go(self) -> None:
        for name in self.leaving:
            self.devices.pop(name, None)


class Node:
    """A guest that has started, and its keeper."""

    def __init__(self, *plugged: str) -> None:
        self.launcher, self.domain = Launcher(), Domain("default", *plugged)
        self.networks = GuestNetworks("ns_vm", "ns/vm", Steps("ns/vm", lambda: None))

    async def start(self, vmi: VirtualMachineInstance) -> None:
        await self.networks.prepare(vmi, cast("LauncherLink", self.launcher))
        await self.recall(vmi)

    async def recall(self, vmi: VirtualMachineInstance) -> None:
        link, hypervisor = cast("LauncherLink", self.launcher), cast("Hypervisor", self.domain)
        await self.networks.recall(vmi, link, hypervisor)

    async def follow(self, vmi: VirtualMachineInstance) -> None:
        link, hypervisor = cast("LauncherLink", self.launcher), cast("Hypervisor", self.domain)
        await self.networks.follow(vmi, link, hypervisor, emulation=True)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()

    def run(_namespace: int, function: Callable[[], Any]) -> Any:
        return function()

    monkeypatch.setattr(keeper, "enter_and_run", run)
    monkeypatch.setattr(passt, "allow_in_pod", lambda: None)
    for name in ("read_pod_interface", "apply", "remove"):
        monkeypatch.setattr(setup, name, lambda *given, name=name: getattr(made.launcher, name)(*given))
    return made


@pytest.mark.feature("VML-38")
async def test_a_card_comes_once_the_pod_is_on_its_network_and_goes_before_the_pod_leaves(node: Node) -> None:
    await node.start(instance())
    await node.follow(instance("up"))
    assert "blue" not in node.domain.devices  # The pod is not there yet, and the next call tries again.
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    await node.follow(instance("up"))
    assert "blue" in node.domain.devices
    card = node.networks.cards["blue"]
    assert (card.mac, card.pod_interface) == ("02:00:00:00:00:02", BLUE)

    await node.follow(instance("absent"))
    assert "blue" in node.networks.cards and "k6t-16477688c0e" in node.launcher.bridges
    await node.follow(instance("absent"))
    assert "k6t-16477688c0e" in node.launcher.bridges  # The guest has it still.
    node.domain.let_go()
    await node.follow(instance("absent"))
    assert "blue" not in node.networks.cards and node.launcher.bridges == {"k6t-eth0"}
    assert node.launcher.asked[-1] == ("end-dhcp", "k6t-16477688c0e")


async def test_libvirt_is_not_asked_while_everything_is_as_it_should_be(node: Node) -> None:
    await node.start(instance())
    for _ in range(3):
        await node.follow(instance())
    looks = node.domain.looks
    await node.follow(instance())
    assert node.domain.looks == looks


async def test_a_link_is_switched_and_told(node: Node) -> None:
    await node.start(instance())
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    for _ in range(2):
        await node.follow(instance("up"))
    for state, is_up in (("down", False), ("up", True)):
        await node.follow(instance(state))
        assert node.networks.cards["blue"].is_up is is_up
        assert plugged_interfaces(await node.domain.description(""))["blue"].is_up is is_up


async def test_a_card_that_libvirt_refuses_is_not_told_as_the_guests(node: Node) -> None:
    await node.start(instance())
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    node.domain.failure = HypervisorError("attach", "no free port")
    with pytest.raises(HypervisorError, match="no free port"):
        await node.follow(instance("up"))
    assert "blue" not in node.networks.cards
    node.domain.failure = None
    await node.follow(instance("up"))
    assert "blue" in node.networks.cards


async def test_a_pod_whose_links_cannot_be_made_does_not_end_its_running_guest(node: Node) -> None:
    await node.start(instance())
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    node.launcher.failure = setup.NetworkSetupError("no room")
    with pytest.raises(NotPlugged, match="blue is not plugged in: no room"):
        await node.follow(instance("up"))


async def test_a_new_virt_handler_finds_the_cards_that_the_guest_has(node: Node) -> None:
    node.domain = Domain("default", "blue")
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    await node.recall(instance("up"))
    assert set(node.networks.cards) == {"default", "blue"}
    other = GuestNetworks("ns_vm", "ns/vm", Steps("ns/vm", lambda: None))
    node.networks, node.domain = other, Domain("default")
    await node.recall(instance("absent"))
    assert set(node.networks.cards) == {"default"}  # It was leaving; its links are cleared away.
    await node.follow(instance("absent"))
    assert ("end-dhcp", "k6t-16477688c0e") in node.launcher.asked


async def test_a_card_whose_interface_left_the_instance_too_soon_leaves_the_guest(node: Node) -> None:
    await node.start(instance())
    node.launcher.links[BLUE] = PodInterface("02:00:00:00:00:02", 1400)
    await node.follow(instance("up"))
    await node.follow(instance())
    node.domain.let_go()
    await node.follow(instance())
    assert set(node.networks.cards) == {"default"} and node.launcher.bridges == {"k6t-eth0"}


async def test_a_launcher_that_claims_cards_which_nobody_made_gains_nothing(node: Node) -> None:
    await node.start(instance())
    node.domain.devices["blue"] = '<interface><alias name="ua-blue"/></interface>'
    node.domain.devices["eth7"] = '<interface><alias name="ua-eth7"/></interface>'
    for state in ("down", "up", "absent"):
        with suppress(HypervisorError):
            await node.follow(instance(state))
    assert set(node.networks.cards) <= {"default", "blue"}
    assert node.launcher.bridges == {"k6t-eth0"}


async def test_the_card_of_a_binding_plugin_has_the_mac_that_its_sidecar_gave(node: Node) -> None:
    xml = '<interface><alias name="ua-blue"/><mac address="02:00:00:00:00:09"/></interface>'
    node.domain.devices["blue"] = xml
    await node.start(instance("up", binding={"name": "plugin"}))
    assert node.networks.cards["blue"].mac == "02:00:00:00:00:09"


async def test_the_launcher_serves_a_guest_behind_passt_also_after_virt_handler_restarted(node: Node) -> None:
    networks = [{"name": "default", "pod": {}}]
    card = {"name": "default", "passtBinding": {}, "ports": [{"port": 80}]}
    spec = {"domain": {"devices": {"interfaces": [card]}}, "networks": networks}
    vmi = decode(VirtualMachineInstance, {"metadata": {"name": "vm", "uid": "u-1"}, "spec": spec})
    links = await node.networks.prepare(vmi, cast("LauncherLink", node.launcher))
    assert links["default"].socket == "/var/run/kubevirt-private/u-1/virt-passt" == node.launcher.passt[0][0]
    assert node.networks.cards["default"].mac == "02:00:00:00:00:01" == links["default"].mac
    assert node.launcher.passt[0][-2:] == ["--tcp-ports", "80"]
    node.networks = GuestNetworks("ns_vm", "ns/vm", Steps("ns/vm", lambda: None))
    await node.recall(vmi)
    assert node.launcher.passt[1] == node.launcher.passt[0]
    assert set(node.networks.cards) == {"default"} and not node.launcher.bridges
