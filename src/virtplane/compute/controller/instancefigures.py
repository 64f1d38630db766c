"""What metrics tell of an instance besides what they tell of its VM (pure).

Names and labels are KubeVirt's.
"""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute import amounts
from virtplane.compute.controller.machinefigures import MOST_DEVICES, Figure
from virtplane.compute.launcherpod import resources
from virtplane.compute.launcherpod.inputs import Images, RenderInputs


def addresses(vmi: VirtualMachineInstance) -> Iterator[Figure]:
    """The addresses of a guest's cards; cards without one are told, too.

    The guest's agent has a part in what they are: of the first `MOST_DEVICES` cards, none is told twice.
    """
    told: set[tuple[str, str, str]] = set()
    for card in vmi.status.interfaces[:MOST_DEVICES]:
        names = (card.name or "", card.interface_name or "", card.ip_address or "")
        if not any(names) or names in told:
            continue
        told.add(names)
        vnic, interface, address = names
        kind = "ExternalInterface" if address else "SystemInterface"
        yield {"vnic_name": vnic, "interface_name": interface, "address": address, "type": kind}, 1


def memory_overhead(vmi: VirtualMachineInstance, settings: ClusterConfig, images: Images) -> Iterator[Figure]:
    """The memory that the launcher needs besides the guest's, as its pod was given it, or would be now."""
    reported = vmi.status.memory.memory_overhead if vmi.status.memory is not None else None
    try:
        if reported is not None:
            yield {}, amounts.to_bytes(reported)
        else:
            yield {}, resources.memory_overhead(RenderInputs(vmi, settings, images))
    except ValueError:
        return  # an amount of the spec is none, so that the instance has no pod either
