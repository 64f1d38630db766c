"""The steps of the bridge binding: the guest takes over the network of the pod that the CNI plugin made.
Pure.

In the end the pod's card is called ``eth0-nic`` and is, with the guest's tap, a port of the bridge; a link
that is connected to nothing is called ``eth0`` and holds what the card had: MAC, MTU, addresses and routes.
So programs that read the pod's interface later see it unchanged. The same happens to the interface of each
secondary network, whose links have other names; ``removal`` is the way back, for an interface that leaves.
The kernel is the only memory; it goes with the pod.

virt-handler may end between any two steps, so they follow from nothing but what there is. A card that goes
down, as it must before it is renamed, loses its routes; hence a first holder, under a name of its own, takes
over while the card still has everything. A holder counts from the moment on that it carries ``HOLDING``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from virtplane.compute.handler.network.plan import DHCP_ADDRESS, BridgePlan, PodInterface, Route
from virtplane.compute.podlinks import PRIMARY, LinkNames

HOLDING = "holds what the pod's interface had before the guest took its place"


class CardGone(Exception):
    """The pod's network interface, which the guest needs, is not in the namespace any more."""


@dataclass(frozen=True, slots=True)
class Link:
    """One network interface; `master` is the bridge that it is a port of."""

    name: str
    interface: PodInterface
    is_up: bool = False
    alias: str = ""
    master: str = ""
    learning: bool = True
    """Whether the bridge learns from this port who is behind it."""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The links, addresses and routes in a network namespace."""

    links: Mapping[str, Link] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddLink:
    """Make a link; the kinds are ``bridge``, ``tap`` and ``holder``."""

    name: str
    kind: str
    mtu: int = 0
    mac: str = ""
    queues: int = 1
    """Of a tap."""


@dataclass(frozen=True, slots=True)
class SetLink:
    """Change the attributes of a link that are not None."""

    name: str
    rename: str | None = None
    is_up: bool | None = None
    mac: str | None = None
    mtu: int | None = None
    master: str | None = None
    learning: bool | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteLink:
    """Remove a link."""

    name: str


@dataclass(frozen=True, slots=True)
class AddAddress:
    """Give a link an address with its prefix length."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class RemoveAddress:
    """Take an address from a link."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class AddRoute:
    """Add a route through a link, even if others lead to the same destination."""

    name: str
    route: Route


Step = AddLink | SetLink | DeleteLink | AddAddress | RemoveAddress | AddRoute


def pod_interface(state: NetworkState, names: LinkNames = PRIMARY) -> PodInterface | None:
    """The pod's interface as the CNI plugin made it, whatever link has its attributes now; None if there is
    none.
    """
    for name in (names.pod, names.first_holder):
        link = state.links.get(name)
        if link is not None and link.alias == HOLDING:
            return link.interface
    original = state.links.get(names.pod)
    return original.interface if original is not None else None


def steps(state: NetworkState, plan: BridgePlan) -> list[Step]:
    """The remaining steps, in order; none when the guest has taken over. Raises CardGone."""
    found, names = state.links, plan.names
    todo: list[Step] = []
    if names.card not in found:
        if names.pod not in found or found[names.pod].alias == HOLDING:
            raise CardGone(f"neither {names.pod} nor {names.card} is the pod's card")
        todo += _hold(found.get(names.first_holder), names.first_holder, plan.pod)
        if found[names.pod].is_up:
            todo.append(SetLink(names.pod, is_up=False))
        todo.append(SetLink(names.pod, rename=names.card))
        todo += _hold(None, names.pod, plan.pod)
        card = replace(found[names.pod], name=names.card, is_up=False)
    else:
        todo += _hold(found.get(names.pod), names.pod, plan.pod)
        card = found[names.card]
    if names.card not in found or names.first_holder in found:
        todo.append(DeleteLink(names.first_holder))
    todo += _bridge(found.get(names.bridge), plan)
    todo += _card(card, plan)
    todo += _tap(found.get(names.tap), plan)
    return todo


def removal(state: NetworkState, names: LinkNames) -> list[Step]:
    """The remaining steps that give the pod its interface back, which its CNI plugin can then remove; none
    when that is done.

    A guest must not use the tap any more. Addresses and routes are not put back: the interface is to go.
    """
    found = state.links
    todo: list[Step] = [DeleteLink(name) for name in (names.tap, names.bridge) if name in found]
    pod, card = pod_interface(state, names), found.get(names.card)
    if card is not None:
        if card.is_up:
            todo.append(SetLink(names.card, is_up=False))
        # Only the holder knows the first MAC, so it stays until the card has it.
        if pod is not None and card.interface.mac != pod.mac:
            todo.append(SetLink(names.card, mac=pod.mac))
    # Holders that are not complete go too; a link of the pod's name that is not one is the card itself.
    original = found.get(names.pod)
    if names.first_holder in found:
        todo.append(DeleteLink(names.first_holder))
    if original is not None and (card is not None or original.alias == HOLDING):
        todo.append(DeleteLink(names.pod))
    if card is not None:
        todo.append(SetLink(names.card, rename=names.pod))
    return todo


def _hold(link: Link | None, name: str, pod: PodInterface) -> Iterator[Step]:
    """Make `name` a placeholder link with the attributes of the pod's interface."""
    if link is not None and link.alias == HOLDING:
        return
    if link is None:
        yield AddLink(name, "holder", pod.mtu, pod.mac)
    has = link.interface if link is not None else PodInterface("", 0)
    # The kernel removes the routes of a link that is down.
    if link is None or not link.is_up:
        yield SetLink(name, is_up=True)
    for address in pod.addresses:
        if address not in has.addresses:
            yield AddAddress(name, str(address))
    for route in pod.routes:
        if route not in has.routes:
            yield AddRoute(name, route)
    yield SetLink(name, alias=HOLDING)


def _bridge(link: Link | None, plan: BridgePlan) -> Iterator[Step]:
    name = plan.names.bridge
    if link is None:
        yield AddLink(name, "bridge", plan.pod.mtu, plan.bridge_mac)
    if plan.serves_dhcp and (link is None or DHCP_ADDRESS not in link.interface.addresses):
        yield AddAddress(name, str(DHCP_ADDRESS))
    if link is None or not link.is_up:
        yield SetLink(name, is_up=True)


def _card(card: Link, plan: BridgePlan) -> Iterator[Step]:
    name, bridge = plan.names.card, plan.names.bridge
    for address in card.interface.addresses:
        yield RemoveAddress(name, str(address))
    if card.interface.mac != plan.bridge_mac:
        # A bridge keeps to itself what is sent to a port's own MAC, and the guest has this one now. Not every
        # kind of card can change it while it is up.
        if card.is_up:
            yield SetLink(name, is_up=False)
            card = replace(card, is_up=False)
        yield SetLink(name, mac=plan.bridge_mac)
    if card.master != bridge:
        yield SetLink(name, master=bridge)
    if card.learning or card.master != bridge:
        # Otherwise a frame of the guest that comes back from the node's network would make the bridge learn
        # the wrong port.
        yield SetLink(name, learning=False)
    if not card.is_up:
        yield SetLink(name, is_up=True)


def _tap(tap: Link | None, plan: BridgePlan) -> Iterator[Step]:
    name, bridge = plan.names.tap, plan.names.bridge
    if tap is None:
        yield AddLink(name, "tap", queues=plan.queues)
    if tap is None or tap.interface.mtu != plan.pod.mtu:
        yield SetLink(name, mtu=plan.pod.mtu)
    if tap is None or tap.master != bridge:
        yield SetLink(name, master=bridge)
    if tap is None or not tap.is_up:
        yield SetLink(name, is_up=True)
