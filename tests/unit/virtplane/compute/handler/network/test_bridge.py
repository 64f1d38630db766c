"""The way to a guest in the pod's place, interrupted wherever it can be."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface, ip_interface
from itertools import product
from typing import Any

import pytest
from tests.support.network_plans import plan_network

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.networks import MultusNetwork, Network
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.network.bridge import (
    HOLDING,
    AddAddress,
    AddLink,
    AddRoute,
    CardGone,
    DeleteLink,
    Link,
    NetworkState,
    RemoveAddress,
    SetLink,
    Step,
    pod_interface,
    removal,
    steps,
)
from virtplane.compute.handler.network.plan import (
    DHCP_ADDRESS,
    BridgePlan,
    PodInterface,
    Route,
)
from virtplane.compute.podlinks import PRIMARY, LinkNames, link_names

CARD, FIRST_HOLDER = PRIMARY.card, PRIMARY.first_holder
POD = PodInterface(
    "0a:58:0a:01:00:05",
    1450,
    (IPv4Interface("10.1.0.5/24"), IPv6Interface("fd00::5/64")),
    (Route(IPv4Network("0.0.0.0/0"), IPv4Address("10.1.0.1")), Route(IPv4Network("10.8.0.0/16"))),
)
VMI = decode(
    VirtualMachineInstance,
    {
        "spec": {
            "networks": [{"name": "default", "pod": {}}],
            "domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}},
        }
    },
)


class Kernel:
    """Links that behave as Linux' do, as far as it matters here."""

    def __init__(self, pod: PodInterface = POD) -> None:
        self.links = {"eth0": Link("eth0", pod, is_up=True)}

    def look(self) -> NetworkState:
        return NetworkState(dict(self.links))

    def take(self, step: Step) -> None:
        match step:
            case AddLink(name, _, mtu, mac):
                assert name not in self.links, "the link exists"
                self.links[name] = Link(name, PodInterface(mac or "fe:00:00:00:00:01", mtu or 1500))
            case DeleteLink(name):
                del self.links[name]
            case SetLink():
                self._set(step)
            case AddAddress(name, address):
                has = self.links[name].interface
                assert ip_interface(address) not in has.addresses, "the address exists"
                self._change(name, addresses=(*has.addresses, ip_interface(address)))
            case RemoveAddress(name, address):
                rest = [item for item in self.links[name].interface.addresses if str(item) != address]
                self._change(name, addresses=tuple(rest))
            case AddRoute(name, route):
                assert self.links[name].is_up, "no routes lead through links that are down"
                assert route not in self.links[name].interface.routes, "the route exists"
                self._change(name, routes=(*self.links[name].interface.routes, route))

    def _set(self, step: SetLink) -> None:
        link = self.links[step.name]
        if step.rename is not None:
            assert not link.is_up, "busy"
            assert step.rename not in self.links, "the name is taken"
            del self.links[step.name]
            self.links[step.rename] = replace(link, name=step.rename)
            return
        if step.is_up is not None:
            routes = link.interface.routes if step.is_up else ()
            link = replace(link, is_up=step.is_up, interface=replace(link.interface, routes=routes))
        if step.mac is not None:
            assert not link.is_up, "not every card changes its MAC while it is up"
            link = replace(link, interface=replace(link.interface, mac=step.mac))
        if step.mtu is not None:
            link = replace(link, interface=replace(link.interface, mtu=step.mtu))
        if step.master is not None:
            assert step.master in self.links
            link = replace(link, master=step.master, learning=True)
        if step.learning is not None:
            assert link.master
            link = replace(link, learning=step.learning)
        if step.alias is not None:
            link = replace(link, alias=step.alias)
        self.links[step.name] = link

    def _change(self, name: str, **changes: Any) -> None:
        link = self.links[name]
        self.links[name] = replace(link, interface=replace(link.interface, **changes))


def handler(kernel: Kernel, patience: int | None = None) -> bool:
    """One virt-handler, which is killed after `patience` steps; whether it came to the end."""
    todo = steps(kernel.look(), plan_of(kernel))
    for step in todo[:patience]:
        kernel.take(step)
    return patience is None or patience >= len(todo)


def plan_of(kernel: Kernel) -> BridgePlan:
    pod = pod_interface(kernel.look())
    assert pod is not None
    plan = plan_network(VMI, pod)
    assert isinstance(plan, BridgePlan)
    return plan


def finished() -> Kernel:
    kernel = Kernel()
    handler(kernel)
    return kernel


@pytest.mark.feature("NET-01", "NET-10")
def test_in_the_end_card_and_tap_are_ports_and_eth0_holds_what_the_card_had() -> None:
    kernel = finished()
    bridge_mac = plan_of(kernel).bridge_mac
    assert kernel.links == {
        CARD: Link(CARD, PodInterface(bridge_mac, 1450), True, "", "k6t-eth0", False),
        "eth0": Link("eth0", POD, True, HOLDING),
        "k6t-eth0": Link("k6t-eth0", PodInterface(bridge_mac, 1450, (DHCP_ADDRESS,)), True),
        "tap0": Link("tap0", PodInterface("fe:00:00:00:00:01", 1450), True, "", "k6t-eth0"),
    }


def test_nothing_is_left_to_do_then_so_a_running_guest_feels_nothing_of_a_new_virt_handler() -> None:
    kernel = finished()
    assert steps(kernel.look(), plan_of(kernel)) == []


def test_a_virt_handler_that_is_killed_anywhere_twice_is_picked_up() -> None:
    wanted = finished().links
    count = len(steps(Kernel().look(), plan_of(Kernel())))
    for first, second in product(range(count + 1), repeat=2):
        kernel = Kernel()
        for patience in (first, second):
            handler(kernel, patience)
            assert pod_interface(kernel.look()) == POD, (first, second)
        assert handler(kernel)
        assert kernel.links == wanted, (first, second)


def test_the_card_keeps_its_address_until_a_holder_has_everything() -> None:
    todo = steps(Kernel().look(), plan_of(Kernel()))
    assert todo.index(SetLink(FIRST_HOLDER, alias=HOLDING)) < todo.index(SetLink("eth0", is_up=False))
    assert todo.index(SetLink("eth0", alias=HOLDING)) < todo.index(DeleteLink(FIRST_HOLDER))


def test_a_pod_without_addresses_is_bridged_too() -> None:
    kernel = Kernel(PodInterface("0a:58:0a:01:00:05", 1500))
    assert handler(kernel)
    assert kernel.links[CARD].master == "k6t-eth0"
    assert pod_interface(kernel.look()) == PodInterface("0a:58:0a:01:00:05", 1500)


def test_what_others_changed_is_put_right() -> None:
    kernel = finished()
    wanted = dict(kernel.links)
    kernel.links[CARD] = replace(kernel.links[CARD], master="", is_up=False, learning=True)
    del kernel.links["tap0"]
    assert handler(kernel)
    assert kernel.links == wanted


def test_a_holder_is_not_taken_for_the_card_that_is_gone() -> None:
    kernel = finished()
    del kernel.links[CARD]
    with pytest.raises(CardGone, match="eth0-nic"):
        handler(kernel)
    del kernel.links["eth0"]
    with pytest.raises(CardGone, match="eth0-nic"):
        steps(kernel.look(), plan_of(finished()))


def test_the_way_back_gives_the_pod_its_card_with_its_mac() -> None:
    kernel = finished()
    back(kernel)
    assert set(kernel.links) == {"eth0"}
    assert kernel.links["eth0"].interface.mac == POD.mac
    assert kernel.links["eth0"].alias == ""
    assert removal(kernel.look(), PRIMARY) == []


def test_a_virt_handler_that_is_killed_on_the_way_there_or_back_leaves_nothing() -> None:
    there, whole = len(steps(Kernel().look(), plan_of(Kernel()))), finished()
    for first, second in product(range(there + 1), range(len(removal(whole.look(), PRIMARY)) + 1)):
        kernel = Kernel()
        handler(kernel, first)
        back(kernel, second)
        back(kernel)
        assert set(kernel.links) == {"eth0"}, (first, second)
        assert kernel.links["eth0"].interface.mac == POD.mac, (first, second)


def back(kernel: Kernel, patience: int | None = None) -> None:
    for step in removal(kernel.look(), PRIMARY)[:patience]:
        kernel.take(step)


def test_names_of_all_links_fit_the_kernel_and_differ() -> None:
    for network in ("blue", "a-very-long-name-of-a-network-that-no-kernel-takes"):
        names = link_names(Network(name=network, multus=MultusNetwork(network_name="x")))
        made = [names.pod, names.bridge, names.tap, names.card, names.first_holder]
        assert len(set(made)) == 5 and all(len(name) <= 15 for name in made)
    assert link_names(Network(name="blue", multus=MultusNetwork(network_name="x"))) == LinkNames(
        "pod16477688c0e", "k6t-16477688c0e", "tap16477688c0e", "16477688c0e-nic", "16477688c0e-old"
    )


@pytest.mark.parametrize("name", ["net1", "net12"])
def test_an_instance_of_an_older_release_keeps_its_numbered_names(name: str) -> None:
    names = link_names(Network(name="blue", multus=MultusNetwork(network_name="x")), name)
    assert (names.pod, names.bridge, names.card) == (name, f"k6t-{name}", f"{name}-nic")
    assert names.tap == f"tap{name[3:]}"


@pytest.mark.parametrize("name", ["eth0", "lo", "net", "net0", "net1/../x", "k6t-eth0", "pod123"])
def test_no_other_name_in_the_status_chooses_links(name: str) -> None:
    blue = Network(name="blue", multus=MultusNetwork(network_name="x"))
    assert link_names(blue, name) == link_names(blue)


def test_a_namespace_without_the_pods_interface_has_none() -> None:
    assert pod_interface(NetworkState({})) is None
