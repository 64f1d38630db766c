"""The nftables ruleset that makes services reachable; pure, replaced as a whole.

A verdict map leads from (address, protocol, port) to a chain per service port, which chooses a chain per
backend, at random or by the client's address. Connections from a backend to itself, through a node port, or
from outside the cluster are masqueraded. Ports without backends are refused.

Node ports and host ports answer on every address of the place itself, 127.0.0.1 included; external addresses
never do. The kernel refuses a whole ruleset in which one key leads to two chains, so each key is taken once:
what one service says never keeps the others' rules from being loaded. Of what users write, only addresses
and protocols that were checked, and numbers, stand in the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kindling.network.services import Backend, ExternalKey, HostPort, ServicePort

_MASQUERADE_MARK = "0x4000"
_PORT = "meta l4proto . th dport"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ruleset is loaded. `subnet` is the cluster's: nodes, pods and services.

    `masquerade_local` also masquerades between pods of this place, which is needed where bridged packets
    pass nftables unseen and answers would go past the translation. `pod_gateway` is what others' packets are
    masqueraded as, in the place of the node's own address: the machine lets nodes in where it keeps pods
    out, whatever service they ask. `reserved` are ports of the place's own servers, which no host port takes
    over.
    """

    subnet: str
    masquerade_local: str = ""
    pod_gateway: str = ""
    reserved: tuple[int, ...] = ()


class _Verdicts:
    """The elements of one verdict map: each key has one chain, the first one it was given."""

    def __init__(self) -> None:
        self._chains: dict[tuple[str | int, ...], str] = {}

    def add(self, key: tuple[str | int, ...], chain: str) -> None:
        self._chains.setdefault(key, chain)

    def rules(self) -> list[str]:
        """The rule that looks a packet up by (address, protocol, port) or (protocol, port); none if empty."""
        if not self._chains:
            return []
        looked_up = f"ip daddr . {_PORT}" if len(next(iter(self._chains))) == 3 else _PORT
        elements = [f"{_concatenated(key)} : goto {chain}" for key, chain in self._chains.items()]
        return [f"{looked_up} vmap {{ {', '.join(elements)} }}"]


def ruleset(
    table: str,
    place: Place,
    ports: Sequence[ServicePort],
    hosts: Sequence[HostPort] = (),
    external: Mapping[ExternalKey, str] | None = None,
) -> str:
    """The commands that replace `table` by the rules for these ports.

    `external` says which port has which external address (`services.assign_external`).
    """
    builder = _Builder(table)
    cluster, outside, everywhere, bound = _Verdicts(), _Verdicts(), _Verdicts(), _Verdicts()
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
        chain = builder.service(item)
        for key in inner:
            cluster.add(key, chain)
        for key in outer:
            outside.add(key, chain)
        if item.node_port:
            everywhere.add((item.protocol, item.node_port), builder.node_port(item, chain))
    node_ports = {(item.protocol, item.node_port) for item in ports if item.node_port}
    for host in hosts:
        if host.port in place.reserved or (host.protocol, host.port) in node_ports:
            continue
        chain = builder.backend(host.backend, host.protocol)
        if host.address:
            bound.add((host.address, host.protocol, host.port), chain)
        else:
            everywhere.add((host.protocol, host.port), chain)
    builder.look_up(cluster, bound, everywhere, outside)
    if refused:
        keys = ", ".join(map(_concatenated, refused))
        builder.rule("refuse", f"ip daddr . {_PORT} {{ {keys} }} reject with icmp type port-unreachable")
    builder.masquerade(place)
    return builder.commands()


class _Builder:
    def __init__(self, table: str) -> None:
        self._table = table
        self._chains: dict[str, list[str]] = {
            "services": [],
            "local": [],
            "refuse": [],
            "guard": ["type filter hook prerouting priority -300; policy accept;"],
            "prerouting": ["type nat hook prerouting priority -100; policy accept;", "jump services"],
            "output": ["type nat hook output priority -100; policy accept;", "jump services"],
            "postrouting": ["type nat hook postrouting priority 90; policy accept;"],
            "filter-forward": ["type filter hook forward priority -10; policy accept;", "jump refuse"],
            "filter-output": ["type filter hook output priority -10; policy accept;", "jump refuse"],
        }
        # Answering on 127.0.0.1 needs route_localnet; packets of other hosts still never reach 127.0.0.1.
        self.rule("guard", 'iifname != "lo" ip daddr 127.0.0.0/8 drop')

    def rule(self, chain: str, *rules: str) -> None:
        self._chains[chain] += rules

    def look_up(
        self, cluster: _Verdicts, bound: _Verdicts, everywhere: _Verdicts, outside: _Verdicts
    ) -> None:
        """The order of the map lookups; maps of the place are used for its own addresses only."""
        self.rule("services", *cluster.rules(), "fib daddr type local goto local", *outside.rules())
        self.rule("local", *bound.rules(), *everywhere.rules())

    def service(self, port: ServicePort) -> str:
        chain = _chain_name("svc", f"{port.name}/{port.protocol}")
        chosen = [f"goto {self.backend(backend, port.protocol)}" for backend in port.backends]
        if len(chosen) == 1:
            self._chains[chain] = chosen
        else:
            spread = "jhash ip saddr" if port.sticky else "numgen random"
            choices = ", ".join(f"{index} : {verdict}" for index, verdict in enumerate(chosen))
            self._chains[chain] = [f"{spread} mod {len(chosen)} vmap {{ {choices} }}"]
        return chain

    def node_port(self, port: ServicePort, target: str) -> str:
        chain = _chain_name("ext", f"{port.name}/{port.protocol}")
        self._chains[chain] = [f"{_set_mark()} goto {target}"]
        return chain

    def backend(self, backend: Backend, protocol: str) -> str:
        chain = _chain_name("end", f"{backend.address}:{backend.port}/{protocol}")
        self._chains[chain] = [
            f"ip saddr {backend.address} {_set_mark()}",
            f"meta l4proto {protocol} dnat to {backend.address}:{backend.port}",
        ]
        return chain

    def masquerade(self, place: Place) -> None:
        marked = f"meta mark & {_MASQUERADE_MARK} == {_MASQUERADE_MARK}"
        subnet, local = place.subnet, place.masquerade_local
        if place.pod_gateway:
            ours = f"ip saddr {subnet} fib saddr type != local"
            self.rule("postrouting", f"{marked} {ours} snat to {place.pod_gateway}")
        self.rule("postrouting", f"{marked} masquerade")
        self.rule("postrouting", f"ct status dnat ip saddr != {subnet} ip daddr {subnet} masquerade")
        if local:
            self.rule("postrouting", f"ct status dnat ip saddr {local} ip daddr {local} masquerade")

    def commands(self) -> str:
        chains = [
            f"chain {name} {{\n" + "".join(f"{rule}\n" for rule in rules) + "}\n"
            for name, rules in self._chains.items()
        ]
        name = f"table ip {self._table}"
        return f"add {name}\ndelete {name}\n{name} {{\n{''.join(chains)}}}\n"


def _concatenated(key: tuple[str | int, ...]) -> str:
    return " . ".join(map(str, key))


def _set_mark() -> str:
    return f"meta mark set meta mark | {_MASQUERADE_MARK}"


def _chain_name(kind: str, name: str) -> str:
    return f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
