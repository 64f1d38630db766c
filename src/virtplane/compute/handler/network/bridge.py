"""The steps of the bridge binding: the guest takes over the network of the pod that the CNI plugin made.
Pure.

In the end the pod's card is called ``eth0-nic`` and is, with the guest's tap, a port of the bridge; a link
that is connected to nothing is called ``eth0`` and holds what the card had: MAC, MTU, addresses and routes.
So programs that read the pod's interface later see it unchanged. The kernel is the only memory; it goes with
the pod.

virt-handler may end between any two steps, so they follow from nothing but what there is. A card that goes
down, as it must before it is renamed, loses its routes; hence a first holder, under a name of its own, takes
over while the card still has everything. A holder counts from the moment on that it carries ``HOLDING``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from virtplane.compute.handler.network.plan import (
    DHCP_ADDRESS,
    POD_INTERFACE,
    PRIMARY_BRIDGE,
    PRIMARY_TAP,
    BridgePlan,
    PodInterface,
    Route,
)

CARD = f"{POD_INTERFACE}-nic"
FIRST_HOLDER = f"{POD_INTERFACE}-held"
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


def pod_interface(state: NetworkState) -> PodInterface | None:
    """The pod's interface as the CNI plugin made it, whatever link has its attributes now; None if there is
    none.
    """
    for name in (POD_INTERFACE, FIRST_HOLDER):
        link = state.links.get(name)
        if link is not None and link.alias == HOLDING:
            return link.interface
    original = state.links.get(POD_INTERFACE)
    return original.interface if original is not None else None


def steps(state: NetworkState, plan: BridgePlan) -> list[Step]:
    """The remaining steps, in order; none when the guest has taken over. Raises CardGone."""
    found = state.links
    todo: list[Step] = []
    if CARD not in found:
        if POD_INTERFACE not in found or found[POD_INTERFACE].alias == HOLDING:
            raise CardGone(f"neither {POD_INTERFACE} nor {CARD} is the pod's card")
        todo += _hold(found.get(FIRST_HOLDER), FIRST_HOLDER, plan.pod)
        if found[POD_INTERFACE].is_up:
            todo.append(SetLink(POD_INTERFACE, is_up=False))
        todo.append(SetLink(POD_INTERFACE, rename=CARD))
        todo += _hold(None, POD_INTERFACE, plan.pod)
        card = replace(found[POD_INTERFACE], name=CARD, is_up=False)
    else:
        todo += _hold(found.get(POD_INTERFACE), POD_INTERFACE, plan.pod)
        card = found[CARD]
    if CARD not in found or FIRST_HOLDER in found:
        todo.append(DeleteLink(FIRST_HOLDER))
    todo += _bridge(found.get(PRIMARY_BRIDGE), plan)
    todo += _card(card, plan)
    todo += _tap(found.get(PRIMARY_TAP), plan)
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
    if link is None:
        yield AddLink(PRIMARY_BRIDGE, "bridge", plan.pod.mtu, plan.bridge_mac)
    if link is None or DHCP_ADDRESS not in link.interface.addresses:
        yield AddAddress(PRIMARY_BRIDGE, str(DHCP_ADDRESS))
    if link is None or not link.is_up:
        yield SetLink(PRIMARY_BRIDGE, is_up=True)


def _card(card: Link, plan: BridgePlan) -> Iterator[Step]:
    for address in card.interface.addresses:
        yield RemoveAddress(CARD, str(address))
    if card.interface.mac != plan.bridge_mac:
        # A bridge keeps to itself what is sent to a port's own MAC, and the guest has this one now. Not every
        # kind of card can change it while it is up.
        if card.is_up:
            yield SetLink(CARD, is_up=False)
            card = replace(card, is_up=False)
        yield SetLink(CARD, mac=plan.bridge_mac)
    if card.master != PRIMARY_BRIDGE:
        yield SetLink(CARD, master=PRIMARY_BRIDGE)
    if card.learning or card.master != PRIMARY_BRIDGE:
        # Otherwise a frame of the guest that comes back from the node's network would make the bridge learn
        # the wrong port.
        yield SetLink(CARD, learning=False)
    if not card.is_up:
        yield SetLink(CARD, is_up=True)


def _tap(tap: Link | None, plan: BridgePlan) -> Iterator[Step]:
    if tap is None:
        yield AddLink(PRIMARY_TAP, "tap")
    if tap is None or tap.interface.mtu != plan.pod.mtu:
        yield SetLink(PRIMARY_TAP, mtu=plan.pod.mtu)
    if tap is None or tap.master != PRIMARY_BRIDGE:
        yield SetLink(PRIMARY_TAP, master=PRIMARY_BRIDGE)
    if tap is None or not tap.is_up:
        yield SetLink(PRIMARY_TAP, is_up=True)
