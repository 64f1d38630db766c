"""NetworkPolicies as an nftables table of one node; pure.

All packets of pods pass the node's forward hook, those between pods of one node included (`bridge_ports`).
There both ends are real: services were translated before, and nothing is masqueraded yet. Two base chains,
one for each direction, let replies pass and look the pod up by its address. A pod that policies select leads
to a chain that it shares with all pods of the same policies: it jumps to each policy's rules, which accept,
and drops what is left. To accept in the first base chain leads to the second.

What a node itself sends to its pods, and they to it, is not forwarded: probes always get through, as
Kubernetes wants it. So does what a pod sends itself through a service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kindling.network import ranges
from kindling.network.pod_filter import BRIDGE
from kindling.network.policies import ALL_PORTS, Member, NamedPort, Policy, Rule, World
from kindling.network.tables import Collection, Table, short_name

NAME = "kindling-policies"
FAMILY = "inet"
_ADDRESS = {4: "ipv4_addr", 6: "ipv6_addr"}
_FAMILY = {4: "ip", 6: "ip6"}
_FIELD = {"ingress": ("saddr", "daddr"), "egress": ("daddr", "saddr")}
"""Of each direction: where the peer is, and where the pod is."""
_PRIORITY = {"egress": -8, "ingress": -7}
_PORT = "meta l4proto . th dport"
_CUT_OFF = "cut-off"
_KNOWN = "ct state established,related accept"


@dataclass(frozen=True, slots=True)
class Node:
    """The pods of one node: those that policies may select, and addresses of pods of which nothing is known
    any more, which reach nobody.

    `resolver` is the cluster's resolver as a pod would be: rules that allow it, by selectors, ports or its
    service's address, allow asking it, wherever it really runs.
    """

    members: Sequence[Member]
    cut_off: Sequence[str] = ()
    resolver: Member | None = None


@dataclass(slots=True)
class _Parts:
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    collections: dict[str, Collection] = field(default_factory=dict)

    def set_of(self, kind: str, declaration: str, elements: Iterable[str], *parts: str) -> str:
        name = short_name(kind, declaration, *parts)
        unique = dict.fromkeys(elements, "")
        self.collections[name] = Collection("set", declaration, unique)
        return name


def resolver(addresses: Sequence[str]) -> Member:
    """The resolver as policies name it, with the labels of Kubernetes' own."""
    labels = frozenset({("k8s-app", "kube-dns")})
    ports = (NamedPort("dns", "udp", 53), NamedPort("dns-tcp", "tcp", 53))
    return Member("resolver", "kube-system", labels, tuple(addresses), ports)


def table(world: World, policies: Sequence[Policy], node: Node) -> Table:
    """The table that enforces `policies` for the pods of a node."""
    parts = _Parts()
    by_namespace: dict[str, list[Policy]] = {}
    for policy in policies:
        by_namespace.setdefault(policy.namespace, []).append(policy)
    verdicts: dict[tuple[str, int], dict[str, str]] = {
        (direction, version): {} for direction in _FIELD for version in _FAMILY
    }
    own: dict[int, dict[str, str]] = {version: {} for version in _FAMILY}
    selected: dict[tuple[str, str, str], tuple[str, Policy, list[Member]]] = {}
    for member in node.members:
        chosen = [item for item in by_namespace.get(member.namespace, ()) if world.selects(item, member)]
        for direction in _FIELD:
            isolating = [item for item in chosen if direction in item.rules]
            if not isolating:
                continue
            for item in isolating:
                entry = selected.setdefault((direction, item.namespace, item.name), (direction, item, []))
                entry[2].append(member)
            chain = _shared_chain(parts, direction, isolating)
            for address in member.addresses:
                verdicts[direction, _version(address)][address] = f"goto {chain}"
                own[_version(address)][f"{address} . {address}"] = ""
    for address in node.cut_off:
        for direction in _FIELD:
            verdicts[direction, _version(address)][address] = f"goto {_CUT_OFF}"
    for direction, policy, members in selected.values():
        rules = [
            text
            for position, rule in enumerate(policy.rules[direction])
            for text in _RuleTexts(world, parts, policy, direction, position, members, node).of(rule)
        ]
        parts.chains[_policy_chain(direction, policy)] = tuple(dict.fromkeys(rules))
    return _assembled(parts, verdicts, own)


def _assembled(
    parts: _Parts, verdicts: dict[tuple[str, int], dict[str, str]], own: dict[int, dict[str, str]]
) -> Table:
    hooks: dict[str, str] = {}
    chains: dict[str, tuple[str, ...]] = {_CUT_OFF: ("drop",), **parts.chains}
    collections = dict(parts.collections)
    for version, address in _ADDRESS.items():
        collections[f"own{version}"] = Collection("set", f"type {address} . {address};", own[version])
    for direction, (_, pod) in _FIELD.items():
        rules = [_KNOWN]
        rules += [f"{name} saddr . {name} daddr @own{version} accept" for version, name in _FAMILY.items()]
        for version, family in _FAMILY.items():
            name = f"{direction}{version}"
            declaration = f"type {_ADDRESS[version]} : verdict;"
            collections[name] = Collection("map", declaration, verdicts[direction, version])
            rules.append(f"{family} {pod} vmap @{name}")
        hooks[direction] = f"type filter hook forward priority {_PRIORITY[direction]}; policy accept;"
        chains[direction] = tuple(rules)
    # A pod that is told a shorter way to a neighbour would lose it: only the node connects the two.
    hooks["redirects"] = "type filter hook output priority 0; policy accept;"
    chains["redirects"] = tuple(
        f'oifname "{BRIDGE}" {kind} drop' for kind in ("icmp type redirect", "icmpv6 type nd-redirect")
    )
    return Table(FAMILY, NAME, hooks, chains, collections)


def _shared_chain(parts: _Parts, direction: str, isolating: Sequence[Policy]) -> str:
    jumps = tuple(f"jump {_policy_chain(direction, item)}" for item in isolating)
    name = short_name(f"pods-{direction}", *jumps)
    parts.chains[name] = (*jumps, "drop")
    return name


def _policy_chain(direction: str, policy: Policy) -> str:
    return short_name(direction, policy.namespace, policy.name)


@dataclass(frozen=True, slots=True)
class _RuleTexts:
    """The rules that one rule of a policy becomes: each of its peers with each of its ports."""

    world: World
    parts: _Parts
    policy: Policy
    direction: str
    position: int
    members: Sequence[Member]
    """The node's pods that the policy selects."""
    node: Node

    def of(self, rule: Rule) -> list[str]:
        """The texts of a rule."""
        allowed = self.world.peers(self.policy, rule) if rule.pods else []
        peers = [""] if rule.all_peers else [*self._pods(rule, allowed), *self._blocks(rule)]
        ports = [""] if rule.all_ports else _numbers(rule)
        found = [_joined(peer, port) for peer in peers for port in ports]
        if rule.named:
            found += self._named(rule, peers, allowed)
        if self.direction == "egress":
            found += self._resolver(rule)
        return found

    def _key(self) -> tuple[str, ...]:
        return (self.direction, self.policy.namespace, self.policy.name, str(self.position))

    def _pods(self, rule: Rule, allowed: Sequence[Member]) -> list[str]:
        if not rule.pods:
            return []
        addresses = [each for member in allowed for each in member.addresses]
        # Policies with equal peers share the sets.
        scope = "" if all(item.namespaces is not None for item in rule.pods) else self.policy.namespace
        key = [str(item) for item in rule.pods]
        found = []
        for version, family in _FAMILY.items():
            mine = [each for each in addresses if _version(each) == version]
            name = self.parts.set_of("pods", f"type {_ADDRESS[version]};", mine, scope, *key)
            found.append(f"{family} {_FIELD[self.direction][0]} @{name}")
        return found

    def _blocks(self, rule: Rule) -> list[str]:
        return [
            f"{_FAMILY[version]} {_FIELD[self.direction][0]} "
            f"{{ {', '.join(ranges.text(item, version) for item in found)} }}"
            for version, found in rule.blocks.items()
            if found
        ]

    def _named(self, rule: Rule, peers: Sequence[str], allowed: Sequence[Member]) -> list[str]:
        """Named ports are those of the pod that is connected to: each pod may have another number."""
        targets = self.members
        if self.direction == "egress":
            targets = self.world.naming(rule.named)
            if not rule.all_peers:
                names = {item.uid for item in allowed}
                targets = [item for item in targets if item.uid in names or _in_blocks(item, rule)]
        found = []
        for version, family in _FAMILY.items():
            elements = [
                f"{address} . {port.protocol} . {port.number}"
                for item in targets
                for port in item.ports
                if (port.protocol, port.name) in rule.named
                for address in item.addresses
                if _version(address) == version
            ]
            declaration = f"type {_ADDRESS[version]} . inet_proto . inet_service;"
            name = self.parts.set_of("ports", declaration, elements, *self._key())
            match = f"{family} daddr . {_PORT} @{name}"
            # The elements of egress are peers already.
            of_family = [item for item in peers if not item or item.startswith(f"{family} ")]
            found += [_joined(peer, match) for peer in (of_family if self.direction == "ingress" else [""])]
        return found

    def _resolver(self, rule: Rule) -> list[str]:
        """Packets for the resolver's service, which lead to wherever it listens."""
        target = self.node.resolver
        if target is None or (rule.all_peers and rule.all_ports):
            return []
        if not (
            rule.all_peers
            or _in_blocks(target, rule)
            or any(self.world.allows(self.policy, item, target) for item in rule.pods)
        ):
            return []
        protocols = [port.protocol for port in target.ports if _admits(rule, port)]
        return [
            f"meta l4proto {protocol} ct original {_FAMILY[_version(address)]} daddr {address} "
            "ct original proto-dst 53 accept"
            for address in target.addresses
            for protocol in protocols
        ]


def _numbers(rule: Rule) -> list[str]:
    found = []
    for protocol, numbers in rule.ports.items():
        if numbers == (ALL_PORTS,):
            found.append(f"meta l4proto {protocol}")
        else:
            texts = [str(first) if first == last else f"{first}-{last}" for first, last in numbers]
            found.append(f"{protocol} dport {{ {', '.join(texts)} }}")
    return found


def _admits(rule: Rule, port: NamedPort) -> bool:
    if rule.all_ports or (port.protocol, port.name) in rule.named:
        return True
    return any(first <= port.number <= last for first, last in rule.ports.get(port.protocol, ()))


def _in_blocks(member: Member, rule: Rule) -> bool:
    found = [ranges.address(text) for text in member.addresses]
    return any(
        first <= int(item) <= last
        for item in found
        if item is not None
        for first, last in rule.blocks.get(item.version, ())
    )


def _joined(*matches: str) -> str:
    return " ".join([*filter(None, matches), "accept"])


def _version(address: str) -> int:
    return 6 if ":" in address else 4
