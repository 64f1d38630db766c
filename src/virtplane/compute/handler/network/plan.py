"""The wanted state of the pod's network for a guest. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import TypeVar

from virtplane.api.kubevirt_v1.networks import Interface, PodNetwork
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

PRIMARY_BRIDGE = "k6t-eth0"
PRIMARY_TAP = "tap0"
POD_INTERFACE = "eth0"
MASQUERADE_MAC = "02:00:00:00:00:00"
DEFAULT_NETWORK = "10.0.2.0/24"
DEFAULT_NETWORK6 = "fd10:0:2::/120"
_FEWEST_ADDRESSES = 4
_Network = TypeVar("_Network", ipaddress.IPv4Network, ipaddress.IPv6Network)
_LEADING_ZEROS = re.compile(r"\b0+(?=[0-9])", re.ASCII)
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
    ports: tuple[tuple[str, int], ...]
    """Protocol and number of each forwarded port; empty forwards everything."""


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """Bridge binding: the guest has the pod's address, and the pod's MAC unless its spec names one."""

    interface: str
    mac: str
    bridge_mac: str
    """Of the bridge and of the pod's own card, whose MAC the guest has."""
    pod: PodInterface


def primary_interface(vmi: VirtualMachineInstance) -> Interface | None:
    """The interface on the pod network, or None for a guest without one."""
    networks = {network.name for network in vmi.spec.networks if network.pod is not None}
    interfaces = vmi.spec.domain.devices.interfaces
    return next((item for item in interfaces if item.name in networks), None)


def plan_network(vmi: VirtualMachineInstance, pod: PodInterface) -> MasqueradePlan | BridgePlan | None:
    """The plan for the primary interface.

    None for a guest without one, and for bindings that are not supported, of which admission warns. Raises
    UnusableNetwork.
    """
    interface = primary_interface(vmi)
    if interface is None:
        return None
    mac = (interface.mac_address or "").replace("-", ":").lower() or pod.mac
    if interface.bridge is not None:
        return BridgePlan(interface.name, mac, _bridge_mac(pod.mac), pod)
    if interface.masquerade is not None:
        return _masquerade(vmi, interface, mac, pod)
    return None


def _bridge_mac(mac: str) -> str:
    """A stable MAC for the bridge of a pod, which no other interface of the node's network has."""
    digest = hashlib.sha256(mac.lower().encode()).hexdigest()
    return ":".join(["02", *(digest[index : index + 2] for index in range(0, 10, 2))])


def _masquerade(
    vmi: VirtualMachineInstance, interface: Interface, mac: str, pod: PodInterface
) -> MasqueradePlan:
    """The gateway gets the first address of the network, and the guest the second."""
    network = next(item for item in vmi.spec.networks if item.name == interface.name)
    wanted = network.pod or PodNetwork()
    # Kubernetes has always read 010 as ten, whatever other systems make of it.
    cidr = _room(ipaddress.IPv4Network, _LEADING_ZEROS.sub("", wanted.vm_network_cidr or DEFAULT_NETWORK))
    ipv6 = None
    if pod.has_ipv6:
        cidr6 = _room(ipaddress.IPv6Network, wanted.vm_i_pv6_network_cidr or DEFAULT_NETWORK6)
        ipv6 = GuestNetwork6(ipaddress.IPv6Interface(f"{cidr6[1]}/{cidr6.prefixlen}"), cidr6[2])
    ports = tuple(((port.protocol or "TCP").lower(), port.port) for port in interface.ports)
    return MasqueradePlan(
        interface=interface.name,
        gateway=ipaddress.IPv4Interface(f"{cidr[1]}/{cidr.prefixlen}"),
        guest=cidr[2],
        ipv6=ipv6,
        mac=mac,
        mtu=pod.mtu,
        ports=ports,
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
