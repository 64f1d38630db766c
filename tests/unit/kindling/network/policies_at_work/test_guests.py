"""NetworkPolicies of pods hold for their guests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.dialling import Call, listening
from tests.support.namespaces import Namespace, connect, namespaces
from tests.unit.kindling.network.policies_at_work.conftest import (
    BRIDGED,
    GATEWAY,
    MASQUERADED,
    ON_THE_NODE,
    WEB,
    Cluster,
    addresses,
    attach,
    give,
    labels,
    policy,
)

from kindling.network import pod_filter, policy_rules

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]


@pytest.fixture
def guests(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with two more pods, whose guests are callers by the names of the pods."""
    with namespaces("e1", "e2", "g1", "g2") as (bridging, hiding, bridged, hidden), ExitStack() as stack:
        for pod, name in ((bridging, BRIDGED), (hiding, MASQUERADED)):
            attach(cluster.node, pod, name)
            link = f"veth{ON_THE_NODE.index(name)}"
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
