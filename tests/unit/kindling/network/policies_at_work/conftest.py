"""A node with pods on its bridge, a stranger beyond it, and the policies that the node enforces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.dialling import Call, answered, listening
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import bridge_ports, pod_filter, policies, policy_rules, tables
from kindling.network.policies import Member, World
from kindling.network.policy_objects import NetworkPolicy
from kubecore.objects import structs

WEB, ADMIN = 80, 8080
SERVICE, RESOLVER = "10.64.240.9", "10.64.240.10"
STRANGER = ("192.0.2.7", "2001:db8::7")
GATEWAY = ("10.64.1.1", "fd64:1::1")
NAMES = [f"{namespace}/{pod}" for namespace in "abc" for pod in "xyz"]
"""Three namespaces with three pods each, on one node; `d/far` is on another."""
FAR = "d/far"
BRIDGED, MASQUERADED = "e/bridged", "e/masqueraded"
"""Pods with a guest each: one that has its pod's address and MAC, one that is hidden behind it."""
ON_THE_NODE = [*NAMES, BRIDGED, MASQUERADED]


def addresses(name: str) -> tuple[str, str]:
    if name == FAR:
        return "10.64.2.2", "fd64:2::2"
    number = ON_THE_NODE.index(name) + 2
    return f"10.64.1.{number}", f"fd64:1::{number}"


def labelled(name: str) -> dict[str, str]:
    namespace, pod = name.split("/")
    return {"pod": pod, "team": namespace}


def member(name: str) -> Member:
    # Each pod calls another port "web".
    number = WEB if name.endswith("/x") else ADMIN
    labels = frozenset(labelled(name).items())
    ports = (policies.NamedPort("web", "tcp", number),)
    return Member(name, name.split("/", maxsplit=1)[0], labels, addresses(name), ports)


@dataclass
class Cluster:
    """A node with nine pods on its bridge, and a stranger beyond it who is another node's pod, too."""

    node: Namespace
    callers: dict[str, Namespace]
    loaded: tables.Table | None = None

    def enforce(self, *written: dict[str, Any], members: list[Member] | None = None) -> None:
        found = [member(name) for name in ON_THE_NODE] if members is None else members
        by_namespace: dict[str, list[Member]] = {}
        for item in [*found, member(FAR)]:
            by_namespace.setdefault(item.namespace, []).append(item)
        spaces = ("a", "b", "c", "d", "e", "kube-system")
        labels = {name: frozenset({("name", name), ("odd", str(name in "ac"))}) for name in spaces}
        read = [policies.read(structs.decode(NetworkPolicy, item)) for item in written]
        node = policy_rules.Node(found, (), policy_rules.resolver([RESOLVER]))
        wanted = policy_rules.table(World(by_namespace, labels), read, node)
        if self.loaded is None:
            self.node.nft(tables.replacement(tables.Existing(), wanted))
        else:
            self.node.nft(tables.changes(self.loaded, wanted))
        self.loaded = wanted

    def answered(self, calls: list[Call]) -> set[Call]:
        return answered(self.callers, calls)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    spaces = ["node", "stranger", *(name.replace("/", "") for name in NAMES)]
    with namespaces(*spaces) as (node, stranger, *pods), ExitStack() as stack:
        node.run("ip", "link", "add", pod_filter.BRIDGE, "type", "bridge")
        node.run("ip", "link", "set", pod_filter.BRIDGE, "up")
        for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            node.sysctl(name, "1")
        for version in ("iptables", "ip6tables"):
            node.sysctl(f"net.bridge.bridge-nf-call-{version}", "0")
        give(node, pod_filter.BRIDGE, [f"{GATEWAY[0]}/24", f"{GATEWAY[1]}/64"])
        connect(node, "lan", stranger, "eth0")
        give(node, "lan", ["192.0.2.1/24", "2001:db8::1/64"])
        give(stranger, "eth0", ["192.0.2.7/24", "2001:db8::7/64", "10.64.2.2/32", "fd64:2::2/128"])
        for version, whole, via in (("-4", "10.64.2.0/24", STRANGER[0]), ("-6", "fd64:2::/64", STRANGER[1])):
            node.run("ip", version, "route", "add", whole, "via", via)
        for version, via in (("-4", "192.0.2.1"), ("-6", "2001:db8::1")):
            stranger.run("ip", version, "route", "add", "default", "via", via)
        for name, pod in zip(NAMES, pods, strict=True):
            attach(node, pod, name)
            places = [(address, port) for address in addresses(name) for port in (WEB, ADMIN)]
            stack.enter_context(listening(pod, places))
        everywhere = [(address, WEB) for address in (*STRANGER, *addresses(FAR))]
        stack.enter_context(listening(stranger, everywhere))
        stack.enter_context(listening(node, [(address, WEB) for address in GATEWAY]))
        callers = dict(zip(NAMES, pods, strict=True)) | {"node": node, "stranger": stranger}
        yield Cluster(node, callers)


def give(where: Namespace, link: str, owned: list[str]) -> None:
    for address in owned:
        where.run("ip", "addr", "add", address, "dev", link, *(["nodad"] if ":" in address else []))


def attach(node: Namespace, pod: Namespace, name: str) -> None:
    link = f"veth{ON_THE_NODE.index(name)}"
    connect(node, link, pod, "eth0")
    node.run("ip", "link", "set", link, "master", pod_filter.BRIDGE)
    own = addresses(name)
    give(pod, "eth0", [f"{own[0]}/24", f"{own[1]}/64"])
    for version, gateway in zip(("-4", "-6"), GATEWAY, strict=True):
        pod.run("ip", version, "route", "add", "default", "via", gateway)
    whole = pod_filter.PodLink(link, pod.mac("eth0"), own)
    for setting in bridge_ports.SETTINGS:
        path, _, value = setting.partition("=")
        node.sysctl(f"net.{path.replace('/', '.')}", value)
    for command in bridge_ports.commands(whole):
        node.run("ip", *command.split())


def policy(name: str, pods: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    namespace, _, own = name.partition("/")
    types = [kind.capitalize() for kind in ("ingress", "egress") if kind in spec]
    whole = {"podSelector": pods or {}, "policyTypes": types, **spec}
    return {"metadata": {"name": own, "namespace": namespace}, "spec": whole}


def labels(**wanted: str) -> dict[str, Any]:
    return {"matchLabels": wanted}
