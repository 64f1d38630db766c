"""The nftables ruleset that makes services reachable; pure, replaced as a whole.

A verdict map leads from (address, protocol, port) to a chain per service port, which chooses a chain per
backend, at random or by the client's address. Connections from a backend to itself, and such as come by node
port or from outside the cluster, are masqueraded. Ports without backends are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kindling.network.services import Backend, HostPort, ServicePort

Rule = list[dict[str, Any]]

_MASQUERADE_MARK = 0x4000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ruleset is loaded: `address` is where node ports are served, `subnet` the cluster's own.

    `masquerade_local` also masquerades between pods of this place, which is needed where bridged packets
    pass nftables unseen and answers would go past the translation.
    """

    address: str
    subnet: str
    masquerade_local: str = ""


def ruleset(
    table: str, place: Place, ports: Sequence[ServicePort], hosts: Sequence[HostPort] = ()
) -> dict[str, Any]:
    """The commands that replace `table` by the rules for these ports."""
    builder = _Builder(table)
    elements: list[list[Any]] = []
    nodes: list[list[Any]] = []
    refused: list[dict[str, Any]] = []
    for item in ports:
        keys = [_key(address, item.protocol, item.port) for address in item.addresses]
        if not item.backends:
            refused += keys
            continue
        chain = builder.service(item)
        elements += [[key, {"goto": {"target": chain}}] for key in keys]
        if item.node_port:
            chain = builder.node_port(item, chain)
            nodes.append([_key(place.address, item.protocol, item.node_port), {"goto": {"target": chain}}])
    taken: set[tuple[str, str, int]] = {
        (place.address, item.protocol, item.node_port) for item in ports if item.node_port and item.backends
    }
    for host in hosts:
        key = (host.address or place.address, host.protocol, host.port)
        # Two verdicts for one key would be refused together with all other rules.
        if key not in taken:
            taken.add(key)
            chain = builder.backend(host.backend, host.protocol)
            nodes.append([_key(*key), {"goto": {"target": chain}}])
    if elements or nodes:
        builder.rule("services", [{"vmap": {"key": _lookup(), "data": {"set": elements + nodes}}}])
    if refused:
        match = {"match": {"op": "==", "left": _lookup(), "right": {"set": refused}}}
        builder.rule("refuse", [match, {"reject": {"type": "icmp", "expr": "port-unreachable"}}])
    builder.masquerade(place)
    return {"nftables": builder.commands()}


class _Builder:
    def __init__(self, table: str) -> None:
        self._table = table
        self._chains: dict[str, dict[str, Any]] = {
            "services": {},
            "refuse": {},
            "prerouting": {"type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"},
            "output": {"type": "nat", "hook": "output", "prio": -100, "policy": "accept"},
            "postrouting": {"type": "nat", "hook": "postrouting", "prio": 90, "policy": "accept"},
            "filter-forward": {"type": "filter", "hook": "forward", "prio": -10, "policy": "accept"},
            "filter-output": {"type": "filter", "hook": "output", "prio": -10, "policy": "accept"},
        }
        self._rules: list[tuple[str, Rule]] = [
            ("prerouting", [{"jump": {"target": "services"}}]),
            ("output", [{"jump": {"target": "services"}}]),
            ("filter-forward", [{"jump": {"target": "refuse"}}]),
            ("filter-output", [{"jump": {"target": "refuse"}}]),
        ]

    def rule(self, chain: str, expressions: Rule) -> None:
        self._rules.append((chain, expressions))

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


def _lookup() -> dict[str, Any]:
    return {
        "concat": [
            _payload("ip", "daddr"),
            {"meta": {"key": "l4proto"}},
            _payload("th", "dport"),
        ]
    }


def _key(address: str, protocol: str, port: int) -> dict[str, Any]:
    return {"concat": [address, protocol, port]}


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
