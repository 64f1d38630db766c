"""Confining pods: what is put on a sandbox before its first container, and what happens when it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.network import bridge_ports, nftables, pod_filter
from kindling.network.pod_filter import PodLink
from kindling.network.policy_enforcer import NotProtected
from kindling.node.pods.confinement import Confinement
from kindling.node.runtime.interface import RuntimeFailure, Sandbox
from kubecore.json import JsonObject

NETWORK = {
    "Interfaces": {
        "veth1": {"Mac": "9a:00:00:00:00:03", "Sandbox": ""},
        "eth0": {"IPConfigs": [{"IP": "10.64.1.2"}], "Mac": "9a:00:00:00:00:02", "Sandbox": "/run/netns/a"},
    }
}


class Runtime:
    """A runtime that knows the networks of sandboxes."""

    def __init__(self, networks: dict[str, JsonObject]) -> None:
        self.networks = networks
        self.asked: list[str] = []

    async def sandbox_network(self, sandbox_id: str) -> JsonObject:
        self.asked.append(sandbox_id)
        return self.networks[sandbox_id]


class Policies:
    """Records which pods were protected, and refuses those that it is told to."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, tuple[str, ...]]] = []
        self.refusal = ""

    async def protect(self, document: dict[str, Any], addresses: tuple[str, ...]) -> None:
        if self.refusal:
            raise NotProtected(self.refusal)
        self.told.append(("protect", document["metadata"]["uid"], addresses))

    def attach(self, uid: str, addresses: tuple[str, ...]) -> None:
        self.told.append(("attach", uid, addresses))

    def forget(self, uid: str) -> None:
        self.told.append(("forget", uid, ()))


@pytest.fixture
def policies() -> Policies:
    return Policies()


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Links whose port was isolated."""
    found: list[str] = []

    async def isolate(link: PodLink) -> None:
        found.append(link.name)

    monkeypatch.setattr(bridge_ports, "isolate", isolate)
    return found


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rulesets that were loaded."""
    found: list[str] = []

    async def load(ruleset: str) -> None:
        found.append(ruleset)

    async def chains(_family: str) -> list[tuple[str, str]]:
        return [(pod_filter.TABLE, "veth-gone"), (pod_filter.TABLE, "lo"), ("others", "veth-gone")]

    monkeypatch.setattr(nftables, "load", load)
    monkeypatch.setattr(nftables, "chains", chains)
    return found


def pod(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1"}
    return {"metadata": metadata, "spec": spec, "status": {"qosClass": "BestEffort"}}


def confinement(
    networks: dict[str, JsonObject], policies: Policies | None = None
) -> tuple[Confinement, Runtime]:
    runtime: Any = Runtime(networks)
    enforcer: Any = policies or Policies()
    return Confinement(runtime, enforcer), runtime


async def test_a_pod_is_protected_before_its_containers(
    policies: Policies, isolated: list[str], loaded: list[str]
) -> None:
    made, _ = confinement({"s1": NETWORK}, policies)
    policies.refusal = "not known yet"
    with pytest.raises(RuntimeFailure, match="cannot be enforced: not known yet"):
        await made.secure(pod(), "s1")
    policies.refusal = ""
    await made.secure(pod(), "s1")
    made.forget("u1")
    assert policies.told == [("protect", "u1", ("10.64.1.2",)), ("forget", "u1", ())]
    assert isolated == ["veth1", "veth1"]


async def test_a_port_that_cannot_be_isolated_keeps_the_containers_from_starting(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_link: PodLink) -> None:
        raise bridge_ports.PortRefused("no such bridge")

    monkeypatch.setattr(bridge_ports, "isolate", refuse)
    made, _ = confinement({"s1": NETWORK})
    with pytest.raises(RuntimeFailure, match="no such bridge"):
        await made.secure(pod(), "s1")


async def test_a_sandbox_is_filtered_once(loaded: list[str]) -> None:
    made, runtime = confinement({"s1": NETWORK, "s2": NETWORK})
    await made.secure(pod(), "s1")
    await made.secure(pod(), "s1")
    assert loaded == [pod_filter.ruleset(pod_filter.PodLink("veth1", "9a:00:00:00:00:02", ("10.64.1.2",)))]
    await made.secure(pod(), "s2")
    assert runtime.asked == ["s1", "s2"], "another sandbox of the pod is another link"


@pytest.mark.usefixtures("loaded")
async def test_nothing_starts_without_a_filter() -> None:
    made, _ = confinement({"s1": {}})
    with pytest.raises(RuntimeFailure, match="shows no link"):
        await made.secure(pod(), "s1")
    await made.secure(pod(hostNetwork=True), "s1")


async def test_refused_rules_keep_the_containers_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_ruleset: object) -> None:
        raise nftables.RulesRefused("no such device")

    monkeypatch.setattr(nftables, "load", refuse)
    made, runtime = confinement({"s1": NETWORK})
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match="no such device"):
            await made.secure(pod(), "s1")
    assert runtime.asked == ["s1", "s1"], "it is tried again"


async def test_an_agent_filters_what_runs_already(loaded: list[str], policies: Policies) -> None:
    made, _ = confinement({"s1": NETWORK, "broken": {"Interfaces": {"veth1": {"Sandbox": ""}}}}, policies)

    def sandbox(name: str, *, ready: bool) -> Sandbox:
        return Sandbox(name, name, "ns", "u", 0, ready, 0)

    await made.adopt([sandbox("gone", ready=False), sandbox("broken", ready=True), sandbox("s1", ready=True)])
    assert loaded == [
        pod_filter.ruleset(pod_filter.PodLink("veth1", "9a:00:00:00:00:02", ("10.64.1.2",))),
        pod_filter.removal(["veth-gone"]),
    ]
    assert policies.told == [("attach", "u", ("10.64.1.2",))]


@pytest.mark.parametrize("failing", ["runtime", "filter"])
async def test_an_agent_that_cannot_filter_what_runs_already_tries_again(
    failing: str, loaded: list[str], policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would until a container of the pod starts, and its policies would be gone with those rules
    that the agent before had loaded.
    """
    made, runtime = confinement({} if failing == "runtime" else {"s1": NETWORK}, policies)

    async def fail(_: str) -> None:
        raise RuntimeFailure("busy")

    with monkeypatch.context() as failure:
        if failing == "runtime":
            failure.setattr(runtime, "sandbox_network", fail)
        failure.setattr(nftables, "load", _refuse)
        await made.adopt([Sandbox("s1", "a", "ns", "u", 0, True, 0)])
    attached = ("attach", "u", ("10.64.1.2",))
    assert policies.told == ([] if failing == "runtime" else [attached]), "policies need no filter"
    runtime.networks["s1"] = NETWORK
    await made.sweep()
    assert policies.told[-1] == attached
    assert loaded[0] == pod_filter.ruleset(pod_filter.PodLink("veth1", "9a:00:00:00:00:02", ("10.64.1.2",)))
    count = len(policies.told)
    await made.sweep()
    assert len(policies.told) == count


async def test_an_agent_forgets_what_ended_before_it_could_be_filtered(
    loaded: list[str], policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, runtime = confinement({"s1": NETWORK, "s2": NETWORK}, policies)

    async def fail(sandbox_id: str) -> None:
        raise RuntimeFailure("gone", "NOT_FOUND" if sandbox_id == "s1" else "UNAVAILABLE")

    with monkeypatch.context() as failure:
        failure.setattr(runtime, "sandbox_network", fail)
        await made.adopt([Sandbox(f"s{n}", "a", "ns", f"u{n}", 0, True, 0) for n in (1, 2)])
    made.forget("u2")
    await made.sweep()
    assert policies.told == [("forget", "u2", ())]
    assert set(loaded) == {pod_filter.removal(["veth-gone"])}


async def _refuse(_ruleset: object) -> None:
    raise nftables.RulesRefused("busy")
