"""NetworkPolicies tried with connections between pods of two nodes, the node and a stranger."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dialling import Call, family_of
from tests.unit.kindling.network.policies_at_work.conftest import (
    ADMIN,
    FAR,
    GATEWAY,
    NAMES,
    STRANGER,
    WEB,
    Cluster,
    addresses,
    labels,
    policy,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]


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
