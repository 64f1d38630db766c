"""What cannot be used of network policies isolates, and is read once."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.kinds.networking.validation import network_policy_warnings
from kindling.network import policies
from kindling.network.policies import Member, NamedPort, Policy, World
from kindling.network.policy_objects import NetworkPolicy
from kindling.network.policy_readings import MAX_PARTS, Readings
from kubecore.objects import structs

LAB = {"app": "web"}


def document(name: str, namespace: str = "lab", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"podSelector": {}, **spec}}


def typed(name: str, namespace: str = "lab", **spec: Any) -> NetworkPolicy:
    return structs.decode(NetworkPolicy, document(name, namespace, **spec))


def selected(policy: Policy, **labels: str) -> bool:
    return policy.pods.matches(labels)


@pytest.mark.parametrize(
    ("spec", "directions"),
    [
        ({"policyTypes": ["Egress"], "egress": 7}, {"egress"}),
        ({"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": True}]}]}, {"ingress"}),
        ({"policyTypes": ["Ingress", {}]}, {"ingress", "egress"}),
        ({"policyTypes": "Egress"}, {"ingress", "egress"}),
        ({"ingress": "all"}, {"ingress", "egress"}),
    ],
)
def test_a_policy_that_does_not_decode_isolates_whom_it_selects(
    spec: dict[str, Any], directions: set[str]
) -> None:
    written = document("p", **spec, podSelector={"matchLabels": LAB})
    (found,) = Readings().of([], [written])
    assert (found.namespace, found.name, found.rules) == ("lab", "p", dict.fromkeys(directions, ()))
    assert selected(found, app="web")
    assert not selected(found, app="other")


@pytest.mark.parametrize(
    "spec", [None, [], "x", {"podSelector": 7}, {"podSelector": {"matchExpressions": [{"operator": "?"}]}}]
)
def test_without_a_readable_selector_it_isolates_the_namespace(spec: Any) -> None:
    (found,) = Readings().of([], [{"metadata": {"name": "p", "namespace": "lab"}, "spec": spec}])
    assert selected(found, app="anything")
    assert set(found.rules) == {"ingress", "egress"}


def test_policies_beyond_what_a_namespace_may_have_allow_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Those of other namespaces are as they are written."""
    rules = [{"ports": [{"port": number}]} for number in range(1, MAX_PARTS // 2 + 1)]
    written = [
        typed("a-small", ingress=[{}]),
        typed("b-huge", ingress=rules, policyTypes=["Ingress"], podSelector={"matchLabels": LAB}),
        typed("a-small", "other", ingress=[{}]),
    ]
    readings = Readings()
    small, huge, other = readings.of(written, [])
    assert huge.rules == {"ingress": ()}
    assert (selected(huge, app="web"), selected(huge, app="other")) == (True, False)
    assert len(small.rules["ingress"]) == len(other.rules["ingress"]) == 1
    readings.of(written, [])
    assert caplog.text.count("network policy lab/b-huge allows nothing") == 1
    assert len(readings.of(written[1:], [])[0].rules["ingress"]) == MAX_PARTS // 2


def test_a_policy_that_stays_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = policies.read

    def counted(policy: NetworkPolicy) -> Policy:
        reads.append(policy.metadata.name)
        return read(policy)

    monkeypatch.setattr(policies, "read", counted)
    readings, first, second = Readings(), typed("a"), typed("b")
    readings.of([first, second], [])
    readings.of([first, typed("b")], [])
    readings.of([first], [])
    assert reads == ["a", "b", "b"]


def test_pods_are_found_by_the_ports_that_they_name() -> None:
    def member(uid: str, *ports: NamedPort) -> Member:
        return Member(uid, "lab", frozenset(), (), ports)

    http, dns = NamedPort("http", "tcp", 80), NamedPort("dns", "udp", 53)
    both, one, none = member("both", http, dns), member("one", http), member("none")
    world = World({"lab": [both, one], "other": [none]}, {})
    assert world.naming([("tcp", "http")]) == [both, one]
    assert world.naming([("udp", "dns"), ("tcp", "http")]) == [both, one]
    assert world.naming([("udp", "http")]) == []


def test_peers_that_differ_never_share_a_name() -> None:
    """Sets of addresses are shared by peers that are written the same."""
    peers = [
        {"podSelector": {}},
        {"podSelector": {}, "namespaceSelector": {}},
        {
            "podSelector": {},
            "namespaceSelector": {"matchExpressions": [{"key": "None", "operator": "Exists"}]},
        },
        {
            "podSelector": {},
            "namespaceSelector": {"matchExpressions": [{"key": "own", "operator": "Exists"}]},
        },
        {"podSelector": {}, "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "unknown"}]}},
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "unknown"}]}, "namespaceSelector": {}},
    ]
    read = [
        policies.read(typed("p", ingress=[{"from": [peer]}])).rules["ingress"][0].pods[0] for peer in peers
    ]
    assert len({str(item) for item in read}) == len(peers)


def test_whoever_writes_a_policy_that_is_too_much_is_warned() -> None:
    rules = [{"ports": [{"port": 80}], "from": [{"podSelector": {}}]}]
    assert not list(network_policy_warnings(document("p", ingress=rules), None))
    (warning,) = network_policy_warnings(document("p", egress=rules * (MAX_PARTS // 2)), None)
    assert warning == (
        "spec: 3000 rules, peers and ports are more than the 2000 that nodes enforce for a namespace, so "
        "this policy allows nothing"
    )
