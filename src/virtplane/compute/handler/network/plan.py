"""What the pod's network must look like for a guest. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str

PRIMARY_BRIDGE = "k6t-eth0"
PRIMARY_TAP = "tap0"
POD_INTERFACE = "eth0"
BRIDGE_MAC = "02:00:00:00:00:00"
DEFAULT_NETWORK = "10.0.2.0/24"


class UnsupportedNetwork(Exception):
    """The instance asks for an interface that this node cannot wire."""

    def __init__(self, interface: str, why: str) -> None:
        super().__init__(f"interface {interface}: {why}")
        self.interface = interface


@dataclass(frozen=True, slots=True)
class PodInterface:
    """The pod's interface as the CNI plugin made it."""

    mac: str
    mtu: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resolver:
    """The pod's ``resolv.conf``."""

    servers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MasqueradePlan:
    """A guest behind the pod's address."""

    interface: str
    """The interface's name in the specification."""
    gateway: ipaddress.IPv4Interface
    guest: ipaddress.IPv4Address
    mac: str
    mtu: int
    ports: tuple[tuple[str, int], ...]
    """Protocol and number of each forwarded port; empty forwards everything."""


def primary_interface(vmi: JsonObject) -> JsonObject | None:
    """The interface on the pod network, or None for a guest without one."""
    networks = {get_str(network, "name") for network in get_list(vmi, "spec", "networks") if "pod" in network}
    interfaces = get_list(vmi, "spec", "domain", "devices", "interfaces")
    return next((item for item in interfaces if get_str(item, "name") in networks), None)


def plan_masquerade(vmi: JsonObject, pod: PodInterface) -> MasqueradePlan | None:
    """The plan for the primary interface. Raises UnsupportedNetwork for other bindings.

    The gateway is the first address of the network and the guest the second.
    """
    interface = primary_interface(vmi)
    if interface is None:
        return None
    name = get_str(interface, "name")
    if "masquerade" not in interface:
        raise UnsupportedNetwork(name, "only the masquerade binding is supported on the pod network")
    networks = get_list(vmi, "spec", "networks")
    network = next(item for item in networks if get_str(item, "name") == name)
    cidr = ipaddress.IPv4Network(get_str(network, "pod", "vmNetworkCIDR") or DEFAULT_NETWORK, strict=False)
    ports = tuple(
        ((get_str(port, "protocol") or "TCP").lower(), get_int(port, "port"))
        for port in get_list(interface, "ports")
    )
    return MasqueradePlan(
        interface=name,
        gateway=ipaddress.IPv4Interface(f"{cidr[1]}/{cidr.prefixlen}"),
        guest=cidr[2],
        mac=get_str(interface, "macAddress") or pod.mac,
        mtu=pod.mtu,
        ports=ports,
    )


def lease(plan: MasqueradePlan, vmi: JsonObject, resolver: Resolver) -> JsonObject:
    """The DHCP lease that the launcher gives the guest."""
    spec = get_object(vmi, "spec")
    interface = primary_interface(vmi) or {}
    options = get_object(interface, "dhcpOptions")
    subdomain = get_str(spec, "subdomain")
    search = list(resolver.search)
    if subdomain:
        # A guest with a subdomain finds its siblings by their host names.
        search[:0] = [f"{subdomain}.{domain}" for domain in search[:1]]
    private = {
        str(get_int(option, "option")): get_str(option, "value")
        for option in get_list(options, "privateOptions")
    }
    return {
        "mac": plan.mac,
        "address": str(plan.guest),
        "prefix": plan.gateway.network.prefixlen,
        "server": str(plan.gateway.ip),
        "routers": [str(plan.gateway.ip)],
        "dns": list(resolver.servers),
        "search": search,
        "mtu": plan.mtu,
        "hostname": get_str(spec, "hostname") or get_str(vmi, "metadata", "name"),
        "ntp": [str(server) for server in get_list(options, "ntpServers")],
        "tftp": get_str(options, "tftpServerName"),
        "bootfile": get_str(options, "bootFileName"),
        "private": private,
    }


def parse_resolver(text: str) -> Resolver:
    """Read a ``resolv.conf``."""
    servers: list[str] = []
    search: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            servers.append(words[1])
        elif len(words) > 1 and words[0] in ("search", "domain"):
            search = words[1:]
    usable = tuple(server for server in servers if ":" not in server)
    return Resolver(usable, tuple(search))
