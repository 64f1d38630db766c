"""The nftables table that makes services reachable; pure.

A verdict map leads from (address, protocol, port) to a chain per service port, which chooses a chain per
backend: the one that the client had before, where the service has an affinity, or one at random. Connections
from a backend to itself, through a node port, or from outside the cluster are masqueraded, unless a traffic
policy keeps the client's address. Ports without backends are refused.

Where a policy is Local, a node has its own backends alone, and what asks for others is dropped, so that a
load balancer goes elsewhere. The machine has no backends of its own: it is what stands before the nodes, and
balances between all of them, leaving the client's address as it is.

There is a table for each address family. Node ports and host ports answer on every address of the place
itself, 127.0.0.1 included; ::1 is not, since IPv6 has no route_localnet. External addresses never do. The
kernel refuses a table in which one key leads to two chains, so each key is taken once: what one service says
never keeps the others' rules from being loaded. Of what users write, only addresses, networks and protocols
that were checked, and numbers, stand in the text.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kindling.network import ranges
from kindling.network.services import Backend, ExternalKey, HostPort, ServicePort
from kindling.network.tables import Collection, Table, short_name

IPV4, IPV6 = "ip", "ip6"
"""The families of tables, and what their expressions begin with."""
_MASQUERADE_MARK = "0x4000"
_KEEP_MARK = "0x8000"
"""Of connections from outside whose client's address stays."""
_PORT = "meta l4proto . th dport"
_ADDRESS = {IPV4: "ipv4_addr", IPV6: "ipv6_addr"}
_UNREACHABLE = {IPV4: "icmp", IPV6: "icmpv6"}
_EVERYWHERE = "everywhere"
_BY_ADDRESS = ("cluster", "bound", "outside")
"""The verdict maps: of the cluster's services, of the place's own addresses and of external ones."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is loaded. `subnet` is the cluster's, of the `family`: nodes, pods and services.

    `node` names the node, and is empty for the machine; `pod_cidr` are the node's pods. `pod_gateway` is what
    others' packets are masqueraded as, in the place of the node's own address: the machine lets nodes in
    where it keeps pods out, whatever service they ask. `reserved` are ports of the place's own servers, which
    no host port takes over.
    """

    subnet: str
    node: str = ""
    pod_cidr: str = ""
    pod_gateway: str = ""
    reserved: tuple[int, ...] = ()
    family: str = IPV4


def table(
    name: str,
    place: Place,
    ports: Sequence[ServicePort],
    hosts: Sequence[HostPort] = (),
    external: Mapping[ExternalKey, str] | None = None,
) -> Table:
    """The table `name` for these ports.

    `external` says which port has which external address (`services.assign_external`).
    """
    builder = _Builder(name, place)
    refused: dict[tuple[str, str, int], None] = {}
    for item in ports:
        inner = [(address, item.protocol, item.port) for address in item.addresses]
        # The first that claims an address has it, with or without backends; the resolver has none while it
        # starts.
        inner = [key for key in inner if key not in refused]
        outer = [
            key
            for address in item.external
            if (external or {}).get(key := (address, item.protocol, item.port)) == item.name
        ]
        if not item.backends:
            refused |= dict.fromkeys(inner + outer)
            continue
        for key in inner:
            builder.lead("cluster", key, builder.internal(item))
        for key in outer:
            restricted = item.sources is not None and key[0] in item.balanced
            builder.lead("outside", key, builder.restricted(item) if restricted else builder.outer(item))
        if item.node_port:
            builder.lead("everywhere", (item.protocol, item.node_port), builder.node_port(item))
    node_ports = {(item.protocol, item.node_port) for item in ports if item.node_port}
    for host in hosts:
        if host.port in place.reserved or (host.protocol, host.port) in node_ports:
            continue
        chain = builder.backend(host.backend, host.protocol)
        if host.address:
            builder.lead("bound", (host.address, host.protocol, host.port), chain)
        else:
            builder.lead("everywhere", (host.protocol, host.port), chain)
    return builder.table(refused)


class _Builder:
    def __init__(self, name: str, place: Place) -> None:
        self._name = name
        self._place = place
        self._source, self._target = f"{place.family} saddr", f"{place.family} daddr"
        self._verdicts: dict[str, dict[str, str]] = {kind: {} for kind in (*_BY_ADDRESS, _EVERYWHERE)}
        self._affinities: dict[str, Collection] = {}
        self._hooks = {
            "guard": "type filter hook prerouting priority -300; policy accept;",
            "prerouting": "type nat hook prerouting priority -100; policy accept;",
            "output": "type nat hook output priority -100; policy accept;",
            "postrouting": "type nat hook postrouting priority 90; policy accept;",
            "filter-forward": "type filter hook forward priority -10; policy accept;",
            "filter-output": "type filter hook output priority -10; policy accept;",
        }
        looked_up, is_ipv4 = f"{self._target} . {_PORT}", place.family == IPV4
        self._chains: dict[str, tuple[str, ...]] = {
            # The order of the lookups; maps of the place are used for its own addresses only.
            "services": (
                f"{looked_up} vmap @cluster",
                "fib daddr type local goto local",
                f"{looked_up} vmap @outside",
            ),
            "local": (
                *(() if is_ipv4 else ("ip6 daddr ::1 return",)),
                f"{looked_up} vmap @bound",
                f"{_PORT} vmap @everywhere",
            ),
            "refuse": (
                f"{looked_up} @refused reject with {_UNREACHABLE[place.family]} type port-unreachable",
            ),
            # Answering on 127.0.0.1 needs route_localnet; packets of other hosts still never reach 127.0.0.1.
            "guard": ('iifname != "lo" ip daddr 127.0.0.0/8 drop',) if is_ipv4 else (),
            "prerouting": ("jump services",),
            "output": ("jump services",),
            "postrouting": self._masquerade(),
            "filter-forward": ("jump refuse",),
            "filter-output": ("jump refuse",),
        }

    def lead(self, name: str, key: tuple[str | int, ...], chain: str) -> None:
        """Add to a verdict map: each key has one chain, the first one it was given."""
        self._verdicts[name].setdefault(_concatenated(key), f"goto {chain}")

    def internal(self, port: ServicePort) -> str:
        """The chain for clients of the cluster."""
        return self._own(port) if port.is_internal_local else self._whole(port)

    def outer(self, port: ServicePort) -> str:
        """The chain for an external address."""
        return self._keeping(port) if port.is_external_local else self._whole(port)

    def restricted(self, port: ServicePort) -> str:
        """The chain for an address of a load balancer that not everybody may use."""
        found = [ranges.network(text) for text in port.sources or ()]
        allowed = ", ".join(_joined(found, self._place.family))
        passing = [f"{self._source} {{ {allowed} }} goto {self.outer(port)}"] if allowed else []
        return self._add("fw", _identity(port), *passing, "drop")

    def node_port(self, port: ServicePort) -> str:
        """The chain for a node port."""
        if port.is_external_local:
            return self._keeping(port)
        return self._add("ext", _identity(port), f"{_set_mark(_MASQUERADE_MARK)} goto {self._whole(port)}")

    def backend(self, backend: Backend, protocol: str) -> str:
        """The chain that leads to a backend."""
        host = f"[{backend.address}]" if self._place.family == IPV6 else backend.address
        return self._add(
            "end",
            f"{backend.address}:{backend.port}/{protocol}",
            f"{self._source} {backend.address} {_set_mark(_MASQUERADE_MARK)}",
            f"meta l4proto {protocol} dnat to {host}:{backend.port}",
        )

    def table(self, refused: Mapping[tuple[str, str, int], None]) -> Table:
        """All that was added."""
        by_port = "inet_proto . inet_service"
        by_address = f"{_ADDRESS[self._place.family]} . {by_port}"
        collections = {
            name: Collection(
                "map", f"type {by_address if name in _BY_ADDRESS else by_port} : verdict;", elements
            )
            for name, elements in self._verdicts.items()
        }
        keys = dict.fromkeys(map(_concatenated, refused), "")
        collections["refused"] = Collection("set", f"type {by_address};", keys)
        return Table(
            self._place.family, self._name, self._hooks, self._chains, collections | self._affinities
        )

    def _whole(self, port: ServicePort) -> str:
        """The chain that chooses of all backends."""
        own = port.nearby.get(self._place.node, ()) if port.prefers_own_node else ()
        return self._choice("svc", port, own or port.backends)

    def _own(self, port: ServicePort) -> str:
        """The chain that chooses of the place's own backends."""
        if not self._place.node:
            return self._whole(port)
        return self._choice("own", port, port.nearby.get(self._place.node, ()))

    def _keeping(self, port: ServicePort) -> str:
        """The chain for clients from outside whose address stays.

        Clients of the cluster are not outside: for them it is as if they had gone to a load balancer, which
        may choose any backend. Whose answers would not come back this way is masqueraded.
        """
        whole, place = self._whole(port), self._place
        if place.node:
            insiders = [f"{self._source} {place.pod_cidr} goto {whole}"] if place.pod_cidr else []
        else:
            insiders = [f"{self._source} {place.subnet} {_set_mark(_MASQUERADE_MARK)} goto {whole}"]
        return self._add(
            "out",
            _identity(port),
            f"fib saddr type local {_set_mark(_MASQUERADE_MARK)} goto {whole}",
            *insiders,
            f"{_set_mark(_KEEP_MARK)} goto {self._own(port)}",
        )

    def _choice(self, kind: str, port: ServicePort, backends: Sequence[Backend]) -> str:
        if not backends:
            return self._add(kind, _identity(port), "drop")
        known = []
        if port.affinity_seconds:
            chosen = [f"goto {self._remembering(port, backend)}" for backend in backends]
            known = [
                f"{self._source} @{_clients_of(port, backend)} {verdict}"
                for backend, verdict in zip(backends, chosen, strict=True)
            ]
        else:
            chosen = [f"goto {self.backend(backend, port.protocol)}" for backend in backends]
        if len(chosen) == 1:
            return self._add(kind, _identity(port), *chosen)
        choices = ", ".join(f"{index} : {verdict}" for index, verdict in enumerate(chosen))
        return self._add(
            kind, _identity(port), *known, f"numgen random mod {len(chosen)} vmap {{ {choices} }}"
        )

    def _remembering(self, port: ServicePort, backend: Backend) -> str:
        """The chain that notes which clients have a backend; the time counts from their last connection."""
        clients = _clients_of(port, backend)
        declared = f"type {_ADDRESS[self._place.family]}; size 65536; flags dynamic,timeout;"
        self._affinities[clients] = Collection("set", declared, is_dynamic=True)
        return self._add(
            "had",
            f"{_identity(port)} {backend.address}:{backend.port}",
            f"update @{clients} {{ {self._source} timeout {port.affinity_seconds}s }}",
            f"goto {self.backend(backend, port.protocol)}",
        )

    def _add(self, kind: str, name: str, *rules: str) -> str:
        chain = short_name(kind, name)
        self._chains[chain] = rules
        return chain

    def _masquerade(self) -> tuple[str, ...]:
        marked = f"meta mark & {_MASQUERADE_MARK} == {_MASQUERADE_MARK}"
        subnet, gateway = self._place.subnet, self._place.pod_gateway
        ours = f"{marked} {self._source} {subnet} fib saddr type != local snat to {gateway}"
        strangers = f"meta mark & {_KEEP_MARK} == 0 ct status dnat"
        strangers += f" {self._source} != {subnet} {self._target} {subnet}"
        return (*([ours] if gateway else []), f"{marked} masquerade", f"{strangers} masquerade")


def _joined(networks: Iterable[ranges.Network | None], family: str) -> list[str]:
    """The networks of a family as few as possible."""
    if family == IPV6:
        found6 = [item for item in networks if isinstance(item, ipaddress.IPv6Network)]
        return list(map(str, ipaddress.collapse_addresses(found6)))
    found = [item for item in networks if isinstance(item, ipaddress.IPv4Network)]
    return list(map(str, ipaddress.collapse_addresses(found)))


def _identity(port: ServicePort) -> str:
    return f"{port.name}/{port.protocol}"


def _clients_of(port: ServicePort, backend: Backend) -> str:
    return short_name("clients", _identity(port), f"{backend.address}:{backend.port}")


def _concatenated(key: tuple[str | int, ...]) -> str:
    return " . ".join(map(str, key))


def _set_mark(mark: str) -> str:
    return f"meta mark set meta mark | {mark}"
