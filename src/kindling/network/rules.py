"""The nftables ruleset that makes services reachable; pure, replaced as a whole.

A verdict map leads from (address, protocol, port) to a chain per service port, which chooses a chain per
backend, at random or by the client's address. Connections from a backend to itself, through a node port, or
from outside the cluster are masqueraded. Ports without backends are refused.

Node ports and host ports answer on every address of the place itself, 127.0.0.1 included; external addresses
never do. The kernel refuses a whole ruleset in which one key leads to two chains, so each key is taken once:
what one service says never keeps the others' rules from being loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kindling.network.services import Backend, ExternalKey, HostPort, ServicePort

Rule = list[dict[str, Any]]

_MASQUERADE_MARK = 0x4000
_ADDRESS_TYPE = {"fib": {"result": "type", "flags": ["daddr"]}}
"""Whether the packet's destination is an address of this very place."""
_SENDER_TYPE = {"fib": {"result": "type", "flags": ["saddr"]}}


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

    def rule(self, *before: dict[str, Any]) -> list[Rule]:
        """The rule that looks a packet up in the map, after the matches in `before`; no rule for an empty
        map.
        """
        if not self._chains:
            return []
        elements: list[list[Any]] = [
            [{"concat": list(key)}, {"goto": {"target": chain}}] for key, chain in self._chains.items()
        ]
        width = len(next(iter(self._chains)))
        return [[*before, {"vmap": {"key": _lookup(width), "data": {"set": elements}}}]]


def ruleset(
    table: str,
    place: Place,
    ports: Sequence[ServicePort],
    hosts: Sequence[HostPort] = (),
    external: Mapping[ExternalKey, str] | None = None,
) -> dict[str, Any]:
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
        keys = [{"concat": list(key)} for key in refused]
        match = {"match": {"op": "==", "left": _lookup(3), "right": {"set": keys}}}
        builder.rule("refuse", [match, {"reject": {"type": "icmp", "expr": "port-unreachable"}}])
    builder.masquerade(place)
    return {"nftables": builder.commands()}


class _Builder:
    def __init__(self, table: str) -> None:
        self._table = table
        self._chains: dict[str, dict[str, Any]] = {
            "services": {},
            "local": {},
            "refuse": {},
            "guard": {"type": "filter", "hook": "prerouting", "prio": -300, "policy": "accept"},
            "prerouting": {"type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"},
            "output": {"type": "nat", "hook": "output", "prio": -100, "policy": "accept"},
            "postrouting": {"type": "nat", "hook": "postrouting", "prio": 90, "policy": "accept"},
            "filter-forward": {"type": "filter", "hook": "forward", "prio": -10, "policy": "accept"},
            "filter-output": {"type": "filter", "hook": "output", "prio": -10, "policy": "accept"},
        }
        # Answering on 127.0.0.1 needs route_localnet; packets of other hosts still never reach 127.0.0.1.
        strangers = {"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}
        loopback = {"match": {"op": "==", "left": _payload("ip", "daddr"), "right": _prefix("127.0.0.0/8")}}
        self._rules: list[tuple[str, Rule]] = [
            ("guard", [strangers, loopback, {"drop": None}]),
            ("prerouting", [{"jump": {"target": "services"}}]),
            ("output", [{"jump": {"target": "services"}}]),
            ("filter-forward", [{"jump": {"target": "refuse"}}]),
            ("filter-output", [{"jump": {"target": "refuse"}}]),
        ]

    def rule(self, chain: str, expressions: Rule) -> None:
        self._rules.append((chain, expressions))

    def look_up(
        self, cluster: _Verdicts, bound: _Verdicts, everywhere: _Verdicts, outside: _Verdicts
    ) -> None:
        """The order of the map lookups; maps of the place are used for its own addresses only."""
        for rule in cluster.rule():
            self.rule("services", rule)
        local = {"match": {"op": "==", "left": _ADDRESS_TYPE, "right": "local"}}
        self.rule("services", [local, {"goto": {"target": "local"}}])
        for rule in (*bound.rule(), *everywhere.rule()):
            self.rule("local", rule)
        for rule in outside.rule():
            self.rule("services", rule)

    def service(self, port: ServicePort) -> str:
        chain = _chain_name("svc", f"{port.name}/{port.protocol}")
        self._chains[chain] = {}
        count = len(port.backends)
        spread: dict[str, Any] = {"numgen": {"mode": "random", "mod": count, "offset": 0}}
        if port.sticky:
            spread = {"jhash": {"mod": count, "offset": 0, "expr": _payload("ip", "saddr")}}
        choices: list[list[Any]] = [
            [index, {"goto": {"target": self.backend(backend, port.protocol)}}]
            for index, backend in enumerate(port.backends)
        ]
        if count == 1:
            self.rule(chain, [choices[0][1]])
        else:
            self.rule(chain, [{"vmap": {"key": spread, "data": {"set": choices}}}])
        return chain

    def node_port(self, port: ServicePort, target: str) -> str:
        chain = _chain_name("ext", f"{port.name}/{port.protocol}")
        self._chains[chain] = {}
        self.rule(chain, [_set_mark(), {"goto": {"target": target}}])
        return chain

    def backend(self, backend: Backend, protocol: str) -> str:
        chain = _chain_name("end", f"{backend.address}:{backend.port}/{protocol}")
        if chain not in self._chains:
            self._chains[chain] = {}
            own = {"match": {"op": "==", "left": _payload("ip", "saddr"), "right": backend.address}}
            self.rule(chain, [own, _set_mark()])
            transport = {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": protocol}}
            self.rule(chain, [transport, {"dnat": {"addr": backend.address, "port": backend.port}}])
        return chain

    def masquerade(self, place: Place) -> None:
        marked = {
            "match": {
                "op": "==",
                "left": {"&": [{"meta": {"key": "mark"}}, _MASQUERADE_MARK]},
                "right": _MASQUERADE_MARK,
            }
        }
        translated = {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}
        outside = {"match": {"op": "!=", "left": _payload("ip", "saddr"), "right": _prefix(place.subnet)}}
        inside = {"match": {"op": "==", "left": _payload("ip", "daddr"), "right": _prefix(place.subnet)}}
        if place.pod_gateway:
            ours = {"match": {"op": "==", "left": _payload("ip", "saddr"), "right": _prefix(place.subnet)}}
            foreign = {"match": {"op": "!=", "left": _SENDER_TYPE, "right": "local"}}
            self.rule("postrouting", [marked, ours, foreign, {"snat": {"addr": place.pod_gateway}}])
        self.rule("postrouting", [marked, {"masquerade": None}])
        self.rule("postrouting", [translated, outside, inside, {"masquerade": None}])
        if place.masquerade_local:
            local = _prefix(place.masquerade_local)
            both = [
                {"match": {"op": "==", "left": _payload("ip", field), "right": local}}
                for field in ("saddr", "daddr")
            ]
            self.rule("postrouting", [translated, *both, {"masquerade": None}])

    def commands(self) -> list[dict[str, Any]]:
        table = {"family": "ip", "name": self._table}
        commands: list[dict[str, Any]] = [
            {"add": {"table": table}},
            {"delete": {"table": table}},
            {"add": {"table": table}},
        ]
        commands += [
            {"add": {"chain": {"family": "ip", "table": self._table, "name": name, **chain}}}
            for name, chain in self._chains.items()
        ]
        # Verdicts name chains, so all chains come before all rules.
        commands += [
            {"add": {"rule": {"family": "ip", "table": self._table, "chain": chain, "expr": expressions}}}
            for chain, expressions in self._rules
        ]
        return commands


def _lookup(width: int) -> dict[str, Any]:
    """(address, protocol, port), or without the address for a width of two."""
    parts = [_payload("ip", "daddr"), {"meta": {"key": "l4proto"}}, _payload("th", "dport")]
    return {"concat": parts[-width:]}


def _payload(protocol: str, field: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


def _prefix(cidr: str) -> dict[str, Any]:
    address, length = cidr.split("/")
    return {"prefix": {"addr": address, "len": int(length)}}


def _set_mark() -> dict[str, Any]:
    mark = {"|": [{"meta": {"key": "mark"}}, _MASQUERADE_MARK]}
    return {"mangle": {"key": {"meta": {"key": "mark"}}, "value": mark}}


def _chain_name(kind: str, name: str) -> str:
    return f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
