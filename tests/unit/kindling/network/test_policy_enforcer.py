"""The node agent's part in network policies: when rules are loaded, and that they hold while it is away."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.support.dialling import listening
from tests.support.routed_pods import RoutedPods, routed_pods
from tests.support.waiting import until

from kindling.network import nftables, policy_enforcer, policy_rules
from kindling.network.nftables import RulesRefused
from kindling.network.policy_enforcer import NotProtected, PolicyEnforcer
from kubecore.resources import NAMESPACES, NETWORK_POLICIES, PODS
from kubecore.testing import MemoryApi

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

PORT = 80


@pytest.fixture(scope="module")
def network() -> Iterator[RoutedPods]:
    with ExitStack() as stack:
        made = stack.enter_context(routed_pods(["client", "server"]))
        stack.enter_context(listening(made.pods["server"], [(made.address("server"), PORT)]))
        yield made


@pytest.fixture(autouse=True)
def clean(network: RoutedPods) -> Iterator[None]:
    yield
    network.node.run("nft", "delete", "table", policy_rules.FAMILY, policy_rules.NAME, check=False)


@pytest.fixture
def api(network: RoutedPods) -> MemoryApi:
    made = MemoryApi()
    made.put(NAMESPACES, {"metadata": {"name": "lab", "labels": {"kubernetes.io/metadata.name": "lab"}}})
    for name in ("client", "server"):
        made.put(PODS, pod(name, network.address(name)))
    return made


def pod(name: str, address: str, **labels: str) -> dict[str, Any]:
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    metadata = {"name": name, "namespace": "lab", "uid": name, "labels": {"app": name} | labels}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


def policy(**rule: Any) -> dict[str, Any]:
    """Lets the server be reached by `rule` alone."""
    spec = {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]}
    ingress = [rule] if rule else []
    return {"metadata": {"name": "p", "namespace": "lab"}, "spec": {**spec, "ingress": ingress}}


def from_pods(**labels: str) -> dict[str, Any]:
    return {"from": [{"podSelector": {"matchLabels": labels}}]}


@asynccontextmanager
async def enforcing(api: MemoryApi, network: RoutedPods, *attached: str) -> AsyncIterator[PolicyEnforcer]:
    """An enforcer at work, which found the pods `attached` running."""
    async with api.client() as client:
        made = PolicyEnforcer(client, (), network.namespace)
        for name in attached:
            made.attach(name, [network.address(name)])
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def connected(network: RoutedPods) -> bool:
    return network.reaches("client", network.address("server"), PORT)


async def test_a_pod_has_its_rules_before_it_starts(api: MemoryApi, network: RoutedPods) -> None:
    api.put(NETWORK_POLICIES, policy())
    async with enforcing(api, network) as enforcer:
        await enforcer.protect(pod("server", ""), [network.address("server")])
        assert not connected(network)
        enforcer.forget("server")
        await until(lambda: connected(network))


async def test_what_changes_takes_effect(api: MemoryApi, network: RoutedPods) -> None:
    async with enforcing(api, network, "client", "server"):
        await until(lambda: connected(network))
        api.put(NETWORK_POLICIES, policy(**from_pods(role="friend")))
        await until(lambda: not connected(network))
        api.put(PODS, pod("client", network.address("client"), role="friend"))
        await until(lambda: connected(network))
        api.put(NETWORK_POLICIES, policy(**{"from": [{"namespaceSelector": {"matchLabels": {"env": "x"}}}]}))
        await until(lambda: not connected(network))
        api.put(NAMESPACES, {"metadata": {"name": "lab", "labels": {"env": "x"}}})
        await until(lambda: connected(network))
        api.put(NETWORK_POLICIES, policy())
        await until(lambda: not connected(network))
        api.remove(NETWORK_POLICIES, "p", "lab")
        await until(lambda: connected(network))


@pytest.mark.parametrize("attached", [("server",), ("client", "server")])
async def test_a_pod_that_ended_is_no_peer_any_more(
    api: MemoryApi, network: RoutedPods, attached: tuple[str, ...]
) -> None:
    """Of another node or of this: its address may be another pod's soon."""
    api.put(NETWORK_POLICIES, policy(**from_pods(app="client")))
    async with enforcing(api, network, *attached):
        await until(lambda: connected(network))
        ended = pod("client", network.address("client"))
        ended["status"]["phase"] = "Succeeded"
        api.put(PODS, ended)
        await until(lambda: not connected(network))


async def test_an_address_belongs_to_the_pod_that_had_it_last(api: MemoryApi, network: RoutedPods) -> None:
    """The one that had it before may still be here, with its policies."""
    api.put(NETWORK_POLICIES, policy())
    async with enforcing(api, network, "server") as enforcer:
        await until(lambda: not connected(network))
        free = pod("other", network.address("server"))
        await enforcer.protect(free, [network.address("server")])
        assert connected(network)


async def test_a_deleted_pod_that_still_runs_stays_isolated(api: MemoryApi, network: RoutedPods) -> None:
    api.put(NETWORK_POLICIES, policy())
    async with enforcing(api, network, "server") as enforcer:
        await until(lambda: not connected(network))
        api.remove(PODS, "server", "lab")
        enforcer.attach("other", ["10.64.1.9"], None)
        await until(lambda: "10.64.1.9" in listed(network))
        assert not connected(network)


async def test_a_pod_that_is_found_late_has_its_policies(api: MemoryApi, network: RoutedPods) -> None:
    """Its link could not be filtered at first, and by now all pods are known."""
    api.put(NETWORK_POLICIES, policy(**from_pods(app="client")))
    async with enforcing(api, network, "client") as enforcer:
        await until(lambda: policy_rules.NAME in listed(network))
        api.put(NETWORK_POLICIES, policy())
        enforcer.attach("server", [network.address("server")])
        await until(lambda: not connected(network))
        api.put(NETWORK_POLICIES, policy(**from_pods(app="client")))
        await until(lambda: connected(network))


async def test_a_sandbox_without_a_pod_reaches_nobody(api: MemoryApi, network: RoutedPods) -> None:
    api.remove(PODS, "client", "lab")
    async with enforcing(api, network, "client", "server"):
        await until(lambda: "cut-off" in listed(network))
        assert not connected(network)
        assert network.reaches("node", network.address("server"), PORT)


async def test_rules_hold_while_the_agent_starts_again(api: MemoryApi, network: RoutedPods) -> None:
    api.put(NETWORK_POLICIES, policy())
    async with enforcing(api, network, "client", "server"):
        await until(lambda: not connected(network))
    through, over = [], threading.Event()

    def knock() -> None:
        while not over.is_set():
            if network.reaches("client", network.address("server"), PORT):
                through.append(True)

    knocking = threading.Thread(target=knock)
    knocking.start()
    try:
        api.put(NETWORK_POLICIES, policy(**from_pods(app="nobody")))
        before = listed(network)
        async with enforcing(api, network, "client", "server"):
            await until(lambda: listed(network) != before)
    finally:
        over.set()
        knocking.join()
    assert through == []


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_policy_that_does_not_decode_lets_nobody_in(
    api: MemoryApi, network: RoutedPods, is_changed: bool
) -> None:
    """Whether it was readable before or not; once it is gone, it has no effect."""
    async with enforcing(api, network, "client", "server"):
        await until(lambda: connected(network))
        if is_changed:
            api.put(NETWORK_POLICIES, policy(**from_pods(app="client")))
            await until(lambda: policy_rules.NAME in listed(network) and "jump" in listed(network))
        api.put(NETWORK_POLICIES, policy(ports=[{"port": True}]))
        await until(lambda: not connected(network))
        api.remove(NETWORK_POLICIES, "p", "lab")
        await until(lambda: connected(network))


async def test_refused_rules_are_tried_again(
    api: MemoryApi, network: RoutedPods, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy_enforcer, "_RETRY_SECONDS", 0.05)
    refused = []

    async def refuse(*_: object) -> None:
        refused.append(True)
        raise RulesRefused("no such table")

    monkeypatch.setattr(nftables, "load", refuse)
    api.put(NETWORK_POLICIES, policy())
    async with enforcing(api, network, "server") as enforcer:
        await until(lambda: "trying again" in caplog.text and len(refused) > 1)
        with pytest.raises(NotProtected, match="no such table"):
            await enforcer.protect(pod("server", ""), [network.address("server")])
        monkeypatch.undo()
        await until(lambda: not connected(network))


async def test_no_pod_starts_before_policies_are_known(
    api: MemoryApi, network: RoutedPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_enforcer, "_KNOWN_SECONDS", 0.05)
    async with api.client() as client:
        enforcer = PolicyEnforcer(client, (), network.namespace)
        with pytest.raises(NotProtected, match="not known yet"):
            await enforcer.protect(pod("server", ""), [network.address("server")])


def listed(network: RoutedPods) -> str:
    return network.node.run("nft", "list", "table", policy_rules.FAMILY, policy_rules.NAME, check=False)
