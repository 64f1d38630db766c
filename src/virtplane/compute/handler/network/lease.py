"""The DHCP lease that the launcher gives a guest. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.networks import DHCPOptions
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.addresses import without_leading_zeros
from virtplane.compute.handler.network.plan import (
    DHCP_ADDRESS,
    BridgePlan,
    MasqueradePlan,
    Plan,
    Route,
)

_EVERYWHERE = ipaddress.IPv4Network("0.0.0.0/0")


@dataclass(frozen=True, slots=True)
class Resolver:
    """The pod's ``resolv.conf``."""

    servers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


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


def lease(plan: Plan, vmi: VirtualMachineInstance, resolver: Resolver) -> JsonObject | None:
    """The lease in the form of ``launcher.dhcp.answer``; None if there is no IPv4 address to tell."""
    found = _masqueraded(plan) if isinstance(plan, MasqueradePlan) else _bridged(plan)
    if found is None:
        return None
    interfaces = vmi.spec.domain.devices.interfaces
    interface = next((item for item in interfaces if item.name == plan.interface), None)
    options = (interface.dhcp_options if interface is not None else None) or DHCPOptions()
    search = [*_neighbours(vmi.spec.subdomain, resolver.search), *resolver.search]
    return found | {
        "mac": plan.mac,
        "dns": list(resolver.servers),
        "search": search,
        "hostname": vmi.spec.hostname or vmi.metadata.name,
        "ntp": [without_leading_zeros(server) for server in options.ntp_servers],
        "tftp": options.tftp_server_name or "",
        "bootfile": options.boot_file_name or "",
        "private": {str(option.option): option.value for option in options.private_options},
    }


def _neighbours(subdomain: str | None, search: Sequence[str]) -> list[str]:
    """The domain in which guests of a subdomain have their names: below that of the namespace's services.

    None where the pod does not search among services, or searches there already.
    """
    services = max((domain for domain in search if ".svc." in domain), key=len, default="")
    if not subdomain or not services or services.startswith(f"{subdomain}."):
        return []
    return [f"{subdomain}.{services}"]


def _masqueraded(plan: MasqueradePlan) -> JsonObject:
    gateway = plan.gateway
    return {
        "address": str(plan.guest),
        "prefix": gateway.network.prefixlen,
        "server": str(gateway.ip),
        "routers": [str(gateway.ip)],
        "routes": _written([Route(_EVERYWHERE, gateway.ip)]),
        "mtu": plan.mtu,
    } | ({"ipv6": str(plan.ipv6.guest)} if plan.ipv6 is not None else {})


def _bridged(plan: BridgePlan) -> JsonObject | None:
    address = plan.pod.ipv4
    if address is None or not plan.serves_dhcp:
        return None
    default = next((route for route in plan.pod.routes if route.destination == _EVERYWHERE), None)
    router = default.gateway if default is not None else None
    return {
        "address": str(address.ip),
        "prefix": address.network.prefixlen,
        "server": str(DHCP_ADDRESS.ip),
        "routers": [str(router)] if router is not None else [],
        "routes": _written(guest_routes(address, plan.pod.routes)),
        "mtu": plan.pod.mtu,
    }


def guest_routes(address: ipaddress.IPv4Interface, routes: Iterable[Route]) -> list[Route]:
    """The pod's routes for the guest, with additional routes to gateways outside its subnet. The most
    specific routes come first and the default route last, so that a client can add them in this order.
    """
    wanted = set(routes)
    on_link = [address.network, *(route.destination for route in wanted if route.gateway is None)]
    for route in list(wanted):
        gateway = route.gateway
        if gateway is not None and not any(gateway in network for network in on_link):
            wanted.add(Route(ipaddress.IPv4Network(gateway)))
    return sorted(
        wanted,
        key=lambda route: (
            route.destination == _EVERYWHERE,
            route.gateway is not None,
            -route.destination.prefixlen,
            route.destination,
        ),
    )


def _written(routes: Iterable[Route]) -> list[list[str]]:
    return [[str(route.destination), str(route.gateway or "0.0.0.0")] for route in routes]
