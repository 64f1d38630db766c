"""NetworkPolicies tried with TCP connections between pods of two nodes, the node and a stranger."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.dialling import Call, answered, family_of, listening
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import bridge_ports, pod_filter, policies, policy_rules, rules, services, tables
from kindling.network.policies import Member, World
from kindling.network.policy_objects import NetworkPolicy
from kubecore.objects import structs

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

WEB, ADMIN = 80, 8080
SERVICE, RESOLVER = "10.64.240.9", "10.64.240.10"
STRANGER = ("192.0.2.7", "2001:db8::7")
GATEWAY = ("10.64.1.1", "fd64:1::1")
NAMES = [f"{namespace}/{pod}" for namespace in "abc" for pod in "xyz"]
"""Three namespaces with three pods each, on one node; `d/far` is on another."""
FAR = "d/far"
BRIDGED, MASQUERADED = "e/bridged", "e/masqueraded"
"""Pods with a guest each: one that has its pod's address and MAC, one that is hidden behind it."""
_ON_THE_NODE = [*NAMES, BRIDGED, MASQUERADED]


def addresses(name: str) -> tuple[str, str]:
    if name == FAR:
        return "10.64.2.2", "fd64:2::2"
    number = _ON_THE_NODE.index(name) + 2
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
        found = [member(name) for name in _ON_THE_NODE] if members is None else members
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
    link = f"veth{_ON_THE_NODE.index(name)}"
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


def every_call() -> list[Call]:
    """Each pod to each other, by both families and ports."""
    return [
        Call(caller, address, port)
        for caller in NAMES
        for target in NAMES
        if target != caller
        for address in addresses(target)
        for port in (WEB, ADMIN)
    ]


def target_of(call: Call) -> str:
    return next(name for name in NAMES if call.address in addresses(name))


def space(name: str) -> str:
    return name.split("/", maxsplit=1)[0]


MATRIX: dict[str, tuple[list[dict[str, Any]], Callable[[str, str, int], bool]]] = {
    "no policy isolates nobody": ([], lambda _c, _t, _p: True),
    "a policy of no rules": (
        [policy("a/deny", ingress=[])],
        lambda _c, t, _p: space(t) != "a",
    ),
    "egress alone leaves ingress open": (
        [policy("a/deny", egress=[])],
        lambda c, _t, _p: space(c) != "a",
    ),
    "an empty rule allows all": ([policy("a/all", ingress=[{}])], lambda _c, _t, _p: True),
    "pods of the own namespace": (
        [policy("b/own", ingress=[{"from": [{"podSelector": {}}]}])],
        lambda c, t, _p: space(t) != "b" or space(c) == "b",
    ),
    "pods by label, and a port": (
        [policy("a/x", labels(pod="x"), ingress=[{"from": [{"podSelector": labels(pod="y")}],
                                                  "ports": [{"protocol": "TCP", "port": WEB}]}])],
        lambda c, t, p: t != "a/x" or (c == "a/y" and p == WEB),
    ),
    "namespaces by label": (
        [policy("a/in", ingress=[{"from": [{"namespaceSelector": labels(odd="True")}]}])],
        lambda c, t, _p: space(t) != "a" or space(c) in "ac",
    ),
    "namespace and pod in one peer are both wanted": (
        [policy("a/in", ingress=[{"from": [{"namespaceSelector": labels(name="b"),
                                            "podSelector": labels(pod="z")}]}])],
        lambda c, t, _p: space(t) != "a" or c == "b/z",
    ),
    "namespace and pod in two peers are alternatives": (
        [policy("a/in", ingress=[{"from": [{"namespaceSelector": labels(name="b")},
                                           {"podSelector": labels(pod="z")}]}])],
        lambda c, t, _p: space(t) != "a" or space(c) == "b" or c == "a/z",
    ),
    "policies add up": (
        [policy("a/one", ingress=[{"from": [{"namespaceSelector": labels(name="b")}]}]),
         policy("a/two", labels(pod="x"), ingress=[{"from": [{"podSelector": labels(pod="z")}]}])],
        lambda c, t, _p: space(t) != "a" or space(c) == "b" or (t == "a/x" and c == "a/z"),
    ),
    "both ends have to agree": (
        [policy("a/out", egress=[{"to": [{"namespaceSelector": labels(name="b")}]}]),
         policy("b/in", labels(pod="x"), ingress=[{"from": [{"namespaceSelector": labels(name="c")}]}])],
        lambda c, t, _p: (space(c) != "a" or space(t) == "b") and (t != "b/x" or space(c) == "c"),
    ),
    "a range of ports": (
        [policy("c/in", ingress=[{"ports": [{"protocol": "TCP", "port": 79, "endPort": 90}]}])],
        lambda _c, t, p: space(t) != "c" or p == WEB,
    ),
    "every port of a protocol": (
        [policy("b/in", ingress=[{"ports": [{"protocol": "TCP"}]}]),
         policy("c/in", ingress=[{"ports": [{"protocol": "UDP"}, {"protocol": "SCTP"}]}])],
        lambda _c, t, _p: space(t) != "c",
    ),
    "a named port is the target's": (
        [policy("b/in", ingress=[{"from": [{"namespaceSelector": labels(name="a")}],
                                  "ports": [{"protocol": "TCP", "port": "web"}]}])],
        lambda c, t, p: space(t) != "b" or (space(c) == "a" and p == (WEB if t == "b/x" else ADMIN)),
    ),
    "a named port of egress is each peer's": (
        [policy("a/out", egress=[{"to": [{"namespaceSelector": labels(name="b")}],
                                  "ports": [{"protocol": "TCP", "port": "web"}]}])],
        lambda c, t, p: space(c) != "a" or (space(t) == "b" and p == (WEB if t == "b/x" else ADMIN)),
    ),
    "expressions": (
        [policy("a/in", {"matchExpressions": [{"key": "pod", "operator": "NotIn", "values": ["x"]}]},
                ingress=[{"from": [{"namespaceSelector": {"matchExpressions": [
                    {"key": "name", "operator": "In", "values": ["b", "c"]}]}}]}])],
        lambda c, t, _p: t not in ("a/y", "a/z") or space(c) in "bc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MATRIX)
def test_pods_of_one_node(cluster: Cluster, case: str) -> None:
    written, expected = MATRIX[case]
    cluster.enforce(*written)
    calls = every_call()
    allowed = {call for call in calls if expected(call.caller, target_of(call), call.port)}
    found = cluster.answered(calls)
    assert sorted(found - allowed) == []
    assert sorted(allowed - found) == []


def test_a_block_without_its_exception(cluster: Cluster) -> None:
    blocks = [
        {"ipBlock": {"cidr": "10.64.0.0/16", "except": ["10.64.1.3/32", "10.64.2.0/24"]}},
        {"ipBlock": {"cidr": "fd64:1::/64", "except": ["fd64:1::3/128"]}},
    ]
    cluster.enforce(policy("a/x", labels(pod="x"), ingress=[{"from": blocks}]))
    calls = [Call(caller, address, WEB) for caller in NAMES[1:] for address in addresses("a/x")]
    calls += [Call("stranger", address, WEB) for address in addresses("a/x")]
    assert cluster.answered(calls) == {call for call in calls if call.caller not in ("a/y", "stranger")}, (
        "a/y is excepted"
    )
    everyone = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
    cluster.enforce(policy("a/x", labels(pod="x"), ingress=[{"from": everyone}]))
    assert cluster.answered(calls) == set(calls)


def test_other_nodes_pods_and_strangers(cluster: Cluster) -> None:
    far = {"namespaceSelector": labels(name="d"), "podSelector": labels(pod="far")}
    cluster.enforce(policy("a/deny", ingress=[], egress=[{"to": [far]}]))
    out = [Call("a/x", address, WEB) for address in addresses(FAR)]
    elsewhere = [Call("a/x", address, WEB) for address in STRANGER]
    into = [Call("stranger", address, WEB) for address in addresses("a/x")]
    assert cluster.answered(out + elsewhere + into) == set(out)


def test_the_pods_own_node_gets_through_both_ways(cluster: Cluster) -> None:
    """Probes of the kubelet, and servers of the node."""
    cluster.enforce(policy("a/deny", ingress=[], egress=[]))
    calls = [Call("node", address, WEB) for address in addresses("a/x")]
    calls += [Call("a/x", address, WEB) for address in GATEWAY]
    assert cluster.answered(calls) == set(calls)


def test_neighbours_never_meet_on_the_bridge(cluster: Cluster) -> None:
    """With the node's way between them shut, nothing is left, whatever a pod knows of a neighbour's MAC."""
    cluster.enforce()
    one, other = cluster.callers["a/x"], cluster.callers["b/y"]
    for address, version in zip(addresses("b/y"), ("-4", "-6"), strict=True):
        mac = other.mac("eth0")
        one.run("ip", version, "neigh", "replace", address, "lladdr", mac, "dev", "eth0", "nud", "permanent")
    calls = [Call("a/x", address, WEB) for address in addresses("b/y")]
    assert cluster.answered(calls) == set()
    for address, version in zip(addresses("b/y"), ("-4", "-6"), strict=True):
        one.run("ip", version, "neigh", "del", address, "dev", "eth0")
    assert cluster.answered(calls) == set(calls)


@pytest.fixture
def service(cluster: Cluster) -> Iterator[Cluster]:
    """A service of b/x, and the resolver, which is the stranger on another port."""
    ports = [
        services.ServicePort(
            "b/x", "tcp", (SERVICE,), 8000, 30080, (services.Backend(addresses("b/x")[0], WEB),)
        ),
        services.ServicePort("dns", "tcp", (RESOLVER,), 53, 0, (services.Backend(STRANGER[0], WEB),)),
    ]
    wanted = rules.table("t", rules.Place("10.64.0.0/16", pod_gateway=GATEWAY[0]), ports)
    cluster.node.nft(tables.replacement(tables.Existing(), wanted))
    yield cluster
    cluster.node.run("nft", "delete", "table", "ip", "t")


def test_services_count_by_their_real_ends(service: Cluster) -> None:
    target = {"namespaceSelector": labels(name="b")}
    calls = [Call("a/x", SERVICE, 8000), Call("c/x", SERVICE, 8000)]
    service.enforce(
        policy("a/out", egress=[{"to": [target], "ports": [{"port": WEB}]}]), policy("c/out", egress=[])
    )
    assert service.answered(calls) == {calls[0]}
    source = {"namespaceSelector": labels(name="c")}
    service.enforce(policy("b/in", ingress=[{"from": [source]}]))
    assert service.answered(calls) == {calls[1]}, "the client's address is not hidden from the policy"


def test_a_pod_reaches_itself_through_its_service(service: Cluster) -> None:
    service.enforce(policy("b/deny", ingress=[], egress=[]))
    calls = [Call("b/x", SERVICE, 8000), Call("b/y", SERVICE, 8000)]
    assert service.answered(calls) == {calls[0]}


def test_node_ports_are_for_whom_the_policy_allows(service: Cluster) -> None:
    call = Call("stranger", "192.0.2.1", 30080)
    service.enforce(policy("b/in", ingress=[{"from": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]}]))
    assert service.answered([call]) == {call}
    service.enforce(policy("b/in", ingress=[{"from": [{"ipBlock": {"cidr": "192.0.2.8/32"}}]}]))
    assert service.answered([call]) == set()


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"to": [{"namespaceSelector": {}, "podSelector": labels(**{"k8s-app": "kube-dns"})}]}, True),
        ({"to": [{"namespaceSelector": labels(name="kube-system")}]}, True),
        ({"to": [{"podSelector": labels(**{"k8s-app": "kube-dns"})}]}, False),
        ({"to": [{"namespaceSelector": {}, "podSelector": labels(pod="z")}]}, False),
        ({"ports": [{"protocol": "TCP", "port": 53}]}, True),
        ({"ports": [{"protocol": "TCP", "port": 54}]}, False),
        ({"ports": [{"protocol": "UDP", "port": 53}]}, False),
        ({"to": [{"ipBlock": {"cidr": f"{RESOLVER}/32"}}], "ports": [{"port": "dns-tcp"}]}, True),
        ({}, True),
    ],
)
def test_the_resolver_counts_as_its_service(service: Cluster, rule: dict[str, Any], allowed: bool) -> None:
    """Wherever it listens."""
    service.enforce(policy("a/out", egress=[rule]))
    call = Call("a/x", RESOLVER, 53)
    assert service.answered([call]) == ({call} if allowed else set())


def test_established_connections_survive_a_change(cluster: Cluster) -> None:
    cluster.enforce()
    pod = cluster.callers["a/x"]
    target = cluster.callers["b/y"]
    target.serve(addresses("b/y")[0], 9000)
    assert pod.seen_as(addresses("b/y")[0], 9000) == addresses("a/x")[0]
    cluster.enforce(policy("b/deny", egress=[]))
    assert pod.reaches(addresses("b/y")[0], 9000), "answers are no egress"


def test_what_ping_needs_is_a_rule_without_ports(cluster: Cluster) -> None:
    """Other protocols than the three that rules name count as ports that no rule lists."""
    cluster.enforce(policy("a/in", ingress=[{"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}]))
    assert not pings(cluster, "b/x", "a/x")
    cluster.enforce(policy("a/in", ingress=[{"from": [{"namespaceSelector": labels(name="b")}]}]))
    assert pings(cluster, "b/x", "a/x")
    assert not pings(cluster, "c/x", "a/x")


def test_udp_and_its_answers(cluster: Cluster) -> None:
    """A namespace that may ask one port, and another that may be asked."""
    target = {"namespaceSelector": labels(name="b")}
    ports = [{"protocol": "UDP", "port": 53}]
    cluster.enforce(
        policy("a/out", egress=[{"to": [target], "ports": ports}]), policy("b/in", ingress=[{"ports": ports}])
    )
    for address in addresses("b/x"):
        assert exchanged(cluster, "a/x", address, 53)
        assert exchanged(cluster, "c/x", address, 53)
        assert not exchanged(cluster, "a/x", address, 54)
        assert not exchanged(cluster, "c/x", address, 54)


def exchanged(cluster: Cluster, caller: str, address: str, port: int) -> bool:
    """Whether a datagram to b/x is answered."""
    kind = family_of(address)

    def bound() -> socket.socket:
        made = socket.socket(kind, socket.SOCK_DGRAM)
        made.bind((address, port))
        made.settimeout(0.2)
        return made

    def asked() -> socket.socket:
        made = socket.socket(kind, socket.SOCK_DGRAM)
        made.settimeout(2)
        made.connect((address, port))
        made.send(b"?")
        return made

    with cluster.callers["b/x"].inside(bound) as server, cluster.callers[caller].inside(asked) as client:
        try:
            _, peer = server.recvfrom(10)
        except TimeoutError:
            return False
        server.sendto(b"!", peer)
        return client.recv(10) == b"!"


PING = """
import socket, struct, sys
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
raw.settimeout(0.3)
head = struct.pack(">BBHHH", 8, 0, 0, 7, 1)
total = sum(struct.unpack(">4H", head))
raw.sendto(struct.pack(">BBHHH", 8, 0, ~total & 0xFFFF, 7, 1), (sys.argv[1], 0))
try:
    raw.recv(100)
    print("answered")
except TimeoutError:
    pass
"""


def pings(cluster: Cluster, caller: str, target: str) -> bool:
    made = ["python3", "-c", PING, addresses(target)[0]]
    return cluster.callers[caller].run(*made) == "answered\n"


@pytest.fixture
def guests(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with two more pods, whose guests are callers by the names of the pods."""
    with namespaces("e1", "e2", "g1", "g2") as (bridging, hiding, bridged, hidden), ExitStack() as stack:
        for pod, name in ((bridging, BRIDGED), (hiding, MASQUERADED)):
            attach(cluster.node, pod, name)
            link = f"veth{_ON_THE_NODE.index(name)}"
            own = pod_filter.PodLink(link, pod.mac("eth0"), addresses(name)[:1])
            cluster.node.nft(pod_filter.ruleset(own))
        bridge(bridging, bridged, addresses(BRIDGED)[0])
        hide(hiding, hidden)
        stack.enter_context(listening(bridged, [(addresses(BRIDGED)[0], WEB)]))
        stack.enter_context(listening(hidden, [("10.0.2.2", WEB)]))
        yield Cluster(cluster.node, cluster.callers | {BRIDGED: bridged, MASQUERADED: hidden}, cluster.loaded)
        cluster.node.run("nft", "delete", "table", pod_filter.FAMILY, pod_filter.TABLE)
        cluster.loaded = None
        cluster.node.run("nft", "delete", "table", policy_rules.FAMILY, policy_rules.NAME)


def bridge(pod: Namespace, guest: Namespace, address: str) -> None:
    """Give a pod's address and MAC to its guest, behind a bridge in the pod."""
    mac = pod.mac("eth0")
    connect(pod, "tap0", guest, "eth0")
    pod.run("ip", "addr", "flush", "dev", "eth0")
    pod.run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
    pod.run("ip", "link", "add", "k6t-eth0", "type", "bridge")
    for link in ("eth0", "tap0"):
        pod.run("ip", "link", "set", link, "master", "k6t-eth0")
    pod.run("ip", "link", "set", "k6t-eth0", "up")
    guest.run("ip", "link", "set", "eth0", "address", mac)
    give(guest, "eth0", [f"{address}/24"])
    guest.run("ip", "route", "add", "default", "via", GATEWAY[0])


def hide(pod: Namespace, guest: Namespace) -> None:
    """Put a guest behind its pod's address."""
    connect(pod, "tap0", guest, "eth0")
    give(pod, "tap0", ["10.0.2.1/24"])
    give(guest, "eth0", ["10.0.2.2/24"])
    guest.run("ip", "route", "add", "default", "via", "10.0.2.1")
    pod.sysctl("net.ipv4.ip_forward", "1")
    pod.nft(
        "table ip n {\nchain i { type nat hook prerouting priority -100; iifname eth0 dnat to 10.0.2.2\n}\n"
        "chain o { type nat hook postrouting priority 100; oifname eth0 masquerade\n}\n}\n"
    )


@pytest.mark.feature("VML-81")
@pytest.mark.parametrize("guest", [BRIDGED, MASQUERADED])
def test_guests_are_their_pods(guests: Cluster, guest: str) -> None:
    """Whether a guest has its pod's address or hides behind it."""
    own = addresses(guest)[0]
    into = [Call(caller, own, WEB) for caller in ("a/x", "b/x", "node")]
    out = [Call(guest, addresses(target)[0], WEB) for target in ("b/y", "c/y")]
    guests.enforce()
    assert guests.answered([*into, *out]) == {*into, *out}
    source, target = ({"namespaceSelector": labels(name=name)} for name in "ab")
    guests.enforce(policy("e/both", ingress=[{"from": [source]}], egress=[{"to": [target]}]))
    assert guests.answered([*into, *out]) == {into[0], into[2], out[0]}
    guests.enforce(policy("c/in", ingress=[{"from": [{"podSelector": labels(pod=guest.split("/")[1])}]}]))
    assert guests.answered(out) == {out[0]}, "the guest's namespace is another"
    peer = {"namespaceSelector": {}, "podSelector": labels(pod=guest.split("/")[1])}
    guests.enforce(policy("c/in", ingress=[{"from": [peer]}]))
    assert guests.answered(out) == set(out)
