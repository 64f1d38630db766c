"""The wanted state of the pod's network for a guest. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass
from typing import TypeVar

from virtplane.api.kubevirt_v1.networks import PodNetwork
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.addresses import without_leading_zeros
from virtplane.compute.domain.processor import vcpu_count
from virtplane.compute.podlinks import MANAGED_TAP, PRIMARY, LinkNames, Wire

MASQUERADE_MAC = "02:00:00:00:00:00"
DEFAULT_NETWORK = "10.0.2.0/24"
DEFAULT_NETWORK6 = "fd10:0:2::/120"
_FEWEST_ADDRESSES = 4
_MOST_QUEUES = 256
_Network = TypeVar("_Network", ipaddress.IPv4Network, ipaddress.IPv6Network)
DHCP_ADDRESS = ipaddress.IPv4Interface("169.254.75.10/32")
"""Where a bridged guest's DHCP server answers: none of the addresses of the pod's network is free for it."""


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """A route to `destination`; without `gateway` the destination is on the link."""

    destination: ipaddress.IPv4Network
    gateway: ipaddress.IPv4Address | None = None


@dataclass(frozen=True, slots=True)
class PodInterface:
    """The pod's interface as the CNI plugin made it."""

    mac: str
    mtu: int
    addresses: tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...] = ()
    routes: tuple[Route, ...] = ()
    """Without those that follow from the addresses."""

    @property
    def ipv4(self) -> ipaddress.IPv4Interface | None:
        """The first IPv4 address; None if the network has none."""
        return next((item for item in self.addresses if isinstance(item, ipaddress.IPv4Interface)), None)

    @property
    def has_ipv6(self) -> bool:
        """Whether the network has IPv6 addresses that others reach."""
        return any(item.version == 6 and not item.is_link_local for item in self.addresses)


class UnusableNetwork(Exception):
    """The network that the specification wants for guests behind NAT is none, or has no room for them."""


@dataclass(frozen=True, slots=True)
class GuestNetwork6:
    """The IPv6 of a guest behind NAT. DHCPv6 gives it the address. No router announces the gateway: the
    guest's own configuration (cloud-init) names it.
    """

    gateway: ipaddress.IPv6Interface
    guest: ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class MasqueradePlan:
    """Masquerade binding: NAT hides the guest behind the pod's addresses."""

    interface: str
    """The interface's name in the specification."""
    gateway: ipaddress.IPv4Interface
    guest: ipaddress.IPv4Address
    ipv6: GuestNetwork6 | None
    """None if the pod has no IPv6."""
    mac: str
    mtu: int
    ports: tuple[tuple[str, int, int], ...]
    """Protocol, first and last number of the forwarded ports; empty forwards everything."""
    queues: int = 1
    """Queues of the tap."""
    names: LinkNames = PRIMARY


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """Bridge binding: the guest has the pod's address, and the pod's MAC unless its spec names one."""

    interface: str
    mac: str
    bridge_mac: str
    """Of the bridge and of the pod's own card, whose MAC the guest has."""
    pod: PodInterface
    queues: int = 1
    names: LinkNames = PRIMARY
    serves_dhcp: bool = True
    """Whether the launcher tells the guest the pod's address."""


Plan = MasqueradePlan | BridgePlan


def is_tapped(wire: Wire) -> bool:
    """Whether the guest's side of an interface is a tap that virt-handler makes."""
    interface = wire.interface
    is_bridged = interface.bridge is not None or wire.attachment == MANAGED_TAP
    return is_bridged or (interface.masquerade is not None and wire.is_primary)


def plan_wire(vmi: VirtualMachineInstance, wire: Wire, pod: PodInterface) -> Plan:
    """The plan for an interface that is tapped. Raises UnusableNetwork."""
    interface = wire.interface
    mac = (interface.mac_address or "").replace("-", ":").lower() or pod.mac
    queues = tap_queues(vmi, wire)
    if interface.masquerade is not None:
        return _masquerade(wire, mac, pod, queues)
    return BridgePlan(
        interface.name,
        mac,
        stable_mac(pod.mac),
        pod,
        queues,
        wire.names,
        serves_dhcp=interface.bridge is not None,
    )


def tap_queues(vmi: VirtualMachineInstance, wire: Wire) -> int:
    """The queues of an interface: one for each processor where multiqueue is asked for and the model has
    queues.
    """
    devices = vmi.spec.domain.devices
    if not devices.network_interface_multiqueue or (wire.interface.model or "virtio") != "virtio":
        return 1
    return min(vcpu_count(vmi.spec.domain), _MOST_QUEUES)


def stable_mac(mac: str) -> str:
    """A stable MAC for the other end of a guest's cable, of which the node has no second."""
    digest = hashlib.sha256(mac.lower().encode()).hexdigest()
    return ":".join(["02", *(digest[index : index + 2] for index in range(0, 10, 2))])


def _masquerade(wire: Wire, mac: str, pod: PodInterface, queues: int) -> MasqueradePlan:
    """The gateway gets the first address of the network, and the guest the second."""
    interface, wanted = wire.interface, wire.network.pod or PodNetwork()
    cidr = _room(ipaddress.IPv4Network, without_leading_zeros(wanted.vm_network_cidr or DEFAULT_NETWORK))
    ipv6 = None
    if pod.has_ipv6:
        cidr6 = _room(ipaddress.IPv6Network, wanted.vm_i_pv6_network_cidr or DEFAULT_NETWORK6)
        ipv6 = GuestNetwork6(ipaddress.IPv6Interface(f"{cidr6[1]}/{cidr6.prefixlen}"), cidr6[2])
    ports = [((port.protocol or "TCP").lower(), port.port, port.port) for port in interface.ports]
    ports += [(item.protocol.lower(), item.start, item.end) for item in interface.port_ranges]
    return MasqueradePlan(
        interface=interface.name,
        gateway=ipaddress.IPv4Interface(f"{cidr[1]}/{cidr.prefixlen}"),
        guest=cidr[2],
        ipv6=ipv6,
        mac=mac,
        mtu=pod.mtu,
        ports=tuple(ports),
        queues=queues,
    )


def _room(kind: type[_Network], text: str) -> _Network:
    """The network, which must have an address for a gateway and one for a guest. Raises UnusableNetwork."""
    try:
        network = kind(text, strict=False)
    except ValueError as error:
        raise UnusableNetwork(f"{text} is not a network: {error}") from error
    if network.num_addresses < _FEWEST_ADDRESSES:
        raise UnusableNetwork(f"{text} has no room for a gateway and a guest")
    return network
