"""What NetworkPolicies say: whom they select and allow; pure.

A policy is read once (`read`). Selectors are matched through a `Matcher`, which remembers the answers: pods
of one workload have equal labels, so a change costs little where hundreds of pods and policies are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kindling.network import ranges
from kindling.network.policy_objects import EgressRule, IngressRule, NetworkPolicy, Pod, PolicyPort, Selector
from kubecore.objects.selectors import (
    EVERYTHING,
    NOTHING,
    LabelSelector,
    SelectorError,
    from_label_selector_object,
)

_log = logging.getLogger(__name__)

PROTOCOLS = ("tcp", "udp", "sctp")
ALL_PORTS = (0, 65535)
_FINISHED = ("Succeeded", "Failed")
_REMEMBERED = 200_000

Labels = frozenset[tuple[str, str]]
"""Labels as a key: a frozenset remembers its hash."""


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A port that a pod names."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class Member:
    """A pod with addresses of its own, as policies select it."""

    uid: str
    namespace: str
    labels: Labels
    addresses: tuple[str, ...]
    ports: tuple[NamedPort, ...] = ()


@dataclass(frozen=True, slots=True)
class PeerPods:
    """Pods that a rule allows: in the namespaces that `namespaces` selects, or in the policy's own."""

    pods: LabelSelector
    namespaces: LabelSelector | None

    def __str__(self) -> str:
        own = "own" if self.namespaces is None else f"{self.namespaces} {self.namespaces.is_nothing}"
        return f"{self.pods} {self.pods.is_nothing} {own}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `pods` and `blocks` (ranges of addresses by family) are peers, unless it allows all.

    `ports` are ranges by protocol and `named` (protocol, name), unless it allows every port and protocol.
    """

    all_peers: bool
    pods: tuple[PeerPods, ...]
    blocks: Mapping[int, tuple[ranges.Range, ...]]
    all_ports: bool
    ports: Mapping[str, tuple[ranges.Range, ...]]
    named: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that was read. `rules` has the directions in which it isolates the pods it selects."""

    namespace: str
    name: str
    pods: LabelSelector
    rules: Mapping[str, tuple[Rule, ...]]


class Matcher:
    """Matches selectors with labels, and remembers the answers."""

    def __init__(self) -> None:
        # By identity: to hash a selector takes longer than to match it. The kept selector keeps its identity.
        self._known: dict[tuple[int, Labels], tuple[LabelSelector, bool]] = {}

    def matches(self, selector: LabelSelector, labels: Labels) -> bool:
        """Whether a selector matches."""
        if selector.is_everything:
            return True
        known = self._known.get((id(selector), labels))
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = (selector, selector.matches(dict(labels)))
            self._known[id(selector), labels] = known
        return known[1]


@dataclass(frozen=True)
class World:
    """What policies are about: all pods (by namespace), and the labels of namespaces."""

    members: Mapping[str, Sequence[Member]]
    namespaces: Mapping[str, Labels]
    matcher: Matcher = field(default_factory=Matcher)

    def selects(self, policy: Policy, member: Member) -> bool:
        """Whether a policy selects a pod."""
        return policy.namespace == member.namespace and self.matcher.matches(policy.pods, member.labels)

    def allows(self, policy: Policy, peers: PeerPods, member: Member) -> bool:
        """Whether a peer of a policy's rule is this pod."""
        return self._reaches(policy, peers, member.namespace) and self.matcher.matches(
            peers.pods, member.labels
        )

    def peers(self, policy: Policy, rule: Rule) -> list[Member]:
        """The pods that a rule's selectors allow."""
        found: dict[str, Member] = {}
        for item in rule.pods:
            spaces = [policy.namespace] if item.namespaces is None else self.members
            for namespace in spaces:
                if self._reaches(policy, item, namespace):
                    for labels, members in self._by_labels.get(namespace, {}).items():
                        if self.matcher.matches(item.pods, labels):
                            found |= {each.uid: each for each in members}
        return list(found.values())

    def naming(self, ports: Iterable[tuple[str, str]]) -> list[Member]:
        """The pods that name one of these ports (protocol, name)."""
        found = {member.uid: member for port in ports for member in self._by_port.get(port, ())}
        return list(found.values())

    @cached_property
    def _by_labels(self) -> Mapping[str, Mapping[Labels, Sequence[Member]]]:
        """The pods of each namespace: those of one workload are matched once."""
        found: dict[str, dict[Labels, list[Member]]] = {}
        for namespace, members in self.members.items():
            alike = found.setdefault(namespace, {})
            for member in members:
                alike.setdefault(member.labels, []).append(member)
        return found

    @cached_property
    def _by_port(self) -> Mapping[tuple[str, str], Sequence[Member]]:
        found: dict[tuple[str, str], list[Member]] = {}
        for members in self.members.values():
            for member in members:
                for port in member.ports:
                    found.setdefault((port.protocol, port.name), []).append(member)
        return found

    def _reaches(self, policy: Policy, peers: PeerPods, namespace: str) -> bool:
        if peers.namespaces is None:
            return namespace == policy.namespace
        labels = self.namespaces.get(namespace)
        return labels is not None and self.matcher.matches(peers.namespaces, labels)


def has_network(pod: Pod) -> bool:
    """Whether a pod is one that policies are about: it has not ended, and has a network of its own."""
    return not pod.spec.host_network and pod.status.phase not in _FINISHED


def member(pod: Pod, addresses: Iterable[str] = ()) -> Member:
    """A pod as policies see it, with `addresses` or those of its status."""
    lasting = [item for item in pod.spec.init_containers if item.restart_policy == "Always"]
    ports = tuple(
        NamedPort(port.name, port.protocol.lower(), port.container_port)
        for container in (*pod.spec.containers, *lasting)
        for port in container.ports
        if port.name and port.protocol.lower() in PROTOCOLS
    )
    metadata = pod.metadata
    own = tuple(addresses) or status_addresses(pod)
    return Member(metadata.uid, metadata.namespace, frozenset(metadata.labels.items()), own, ports)


def status_addresses(pod: Pod) -> tuple[str, ...]:
    """The usable addresses of a pod's status: those of one host, as text that rules may contain."""
    written = [item.ip for item in pod.status.addresses] or [pod.status.first]
    found = [ranges.address(text) for text in written]
    return tuple(
        str(item)
        for item in found
        if item is not None and not (item.is_multicast or item.is_loopback or item.is_unspecified)
    )


def read(policy: NetworkPolicy) -> Policy:
    """A policy as rules are made of it."""
    spec, metadata = policy.spec, policy.metadata
    where = f"{metadata.namespace}/{metadata.name}"
    types = directions(policy)
    rules: dict[str, tuple[Rule, ...]] = {}
    if "Ingress" in types:
        rules["ingress"] = tuple(_rule(item, where) for item in spec.ingress)
    if "Egress" in types:
        rules["egress"] = tuple(_rule(item, where) for item in spec.egress)
    # What cannot be read isolates more rather than less.
    pods = selector(spec.pod_selector, where, unread=EVERYTHING)
    return Policy(metadata.namespace, metadata.name, pods, rules)


def directions(policy: NetworkPolicy) -> tuple[str, ...]:
    """The policy types: those written, or what follows from the rules."""
    spec = policy.spec
    return spec.policy_types or (("Ingress", "Egress") if spec.egress else ("Ingress",))


def _rule(rule: IngressRule | EgressRule, where: str) -> Rule:
    pods = tuple(
        PeerPods(
            EVERYTHING if item.pod_selector is None else selector(item.pod_selector, where, unread=NOTHING),
            None
            if item.namespace_selector is None
            else selector(item.namespace_selector, where, unread=NOTHING),
        )
        for item in rule.peers
        if item.pod_selector is not None or item.namespace_selector is not None
    )
    blocks: dict[int, list[ranges.Range]] = {}
    for item in rule.peers:
        if item.ip_block is not None and (whole := ranges.network(item.ip_block.cidr)) is not None:
            parts = [ranges.network(text) for text in item.ip_block.excluded]
            excluded = [ranges.of_network(part) for part in parts if part and part.version == whole.version]
            left = ranges.without(ranges.of_network(whole), excluded)
            blocks.setdefault(whole.version, []).extend(left)
    numbers: dict[str, list[ranges.Range]] = {}
    for port in rule.ports:
        if not isinstance(port.port, str) and port.protocol.lower() in PROTOCOLS:
            numbers.setdefault(port.protocol.lower(), []).append(_range(port))
    named = ((port.protocol.lower(), port.port) for port in rule.ports if isinstance(port.port, str))
    return Rule(
        all_peers=not rule.peers,
        pods=pods,
        blocks={version: tuple(ranges.joined(found)) for version, found in blocks.items()},
        all_ports=not rule.ports,
        ports={protocol: tuple(ranges.joined(found)) for protocol, found in numbers.items()},
        named=tuple(dict.fromkeys(named)),
    )


def _range(port: PolicyPort) -> ranges.Range:
    if not isinstance(port.port, int):
        return ALL_PORTS
    return port.port, max(port.port, port.end_port or 0)


def selector(written: Selector, where: str, *, unread: LabelSelector) -> LabelSelector:
    """A selector as it is matched, or `unread`, with an error in the log, where it cannot be read."""
    try:
        return from_label_selector_object(written)
    except (SelectorError, TypeError, AttributeError) as error:
        _log.error("a selector of network policy %s cannot be read, correct it: %s", where, error)
        return unread
