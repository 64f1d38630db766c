"""What a guest has of its networks, and what differs from its instance. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from virtplane.compute.domain.interfaces import PluggedInterface
from virtplane.compute.handler.network.plan import is_tapped
from virtplane.compute.podlinks import Wire

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Card:
    """An interface of a guest, for its status."""

    mac: str
    pod_interface: str
    queues: int = 1
    addresses: tuple[str, ...] = ()
    """Addresses by which the cluster knows the guest here."""
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class Differences:
    """What a running guest lacks or has too much of."""

    plug: tuple[Wire, ...] = ()
    """Interfaces to attach to the domain."""
    unplug: tuple[Wire, ...] = ()
    """Interfaces to detach from the domain."""
    clear: tuple[Wire, ...] = ()
    """Networks whose links the guest has left, and that may still be there."""
    switch: tuple[Wire, ...] = ()
    """Interfaces whose link is to be set up or down."""

    def __bool__(self) -> bool:
        return bool(self.plug or self.unplug or self.clear or self.switch)


def is_wanted_up(wire: Wire) -> bool:
    """Whether the link of an interface is to be up."""
    return wire.interface.state != "down"


def differences(
    wires: Iterable[Wire], plugged: Mapping[str, PluggedInterface], cleared: frozenset[str]
) -> Differences:
    """How the domain differs. `cleared` names the interfaces whose links were removed already.

    Only bridged interfaces of secondary networks come and go; other changes wait for the next start.
    """
    plug, unplug, clear, switch = [], [], [], []
    for wire in wires:
        name, present = wire.interface.name, plugged.get(wire.interface.name)
        comes_and_goes = wire.interface.bridge is not None and not wire.is_primary
        if wire.interface.state == ABSENT:
            if comes_and_goes and present is not None:
                unplug.append(wire)
            elif comes_and_goes and name not in cleared:
                clear.append(wire)
        elif present is None:
            if comes_and_goes:
                plug.append(wire)
        elif is_tapped(wire) and present.is_up != is_wanted_up(wire):
            switch.append(wire)
    return Differences(tuple(plug), tuple(unplug), tuple(clear), tuple(switch))
