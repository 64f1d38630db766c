"""NetworkPolicies and services: connections count by their real ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.dialling import Call
from tests.unit.kindling.network.policies_at_work.conftest import (
    GATEWAY,
    RESOLVER,
    SERVICE,
    STRANGER,
    WEB,
    Cluster,
    addresses,
    labels,
    policy,
)

from kindling.network import rules, services, tables

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]


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
