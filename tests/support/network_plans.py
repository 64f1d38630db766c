"""Plans for the interface of a guest on its pod's network."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.network.plan import Plan, PodInterface, is_tapped, plan_wire
from virtplane.compute.podlinks import wires


def plan_network(vmi: VirtualMachineInstance, pod: PodInterface) -> Plan | None:
    """The plan for the primary interface; None without one that is tapped."""
    found = [wire for wire in wires(vmi) if wire.is_primary and is_tapped(wire)]
    return plan_wire(vmi, found[0], pod) if found else None
