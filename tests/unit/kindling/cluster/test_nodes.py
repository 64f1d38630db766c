"""Single nodes: their places and names, and what is refused. Real nodes: test_lifecycle.py."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from kindling.cluster import (
    certificates,
    commands,
    node_network,
    node_places,
    nodeimages,
    nodes,
    processes,
    supervision,
)
from kindling.cluster import instance as instances
from kindling.cluster.errors import ExitCode, SetupError
from kubecore.json import JsonObject
from kubecore.resources import NODES, PODS
from kubecore.testing import MemoryApi


@pytest.fixture(autouse=True)
def _registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's list of instances, of this test alone."""
    monkeypatch.setattr(instances, "REGISTRY", tmp_path / "registry")


@pytest.fixture
def made(tmp_path: Path) -> instances.Instance:
    state = tmp_path / "state"
    state.mkdir()
    identifier = instances.instance_id(state)
    return instances.Instance(state, identifier, "10.70.0.0/16", 6443, ("node01", "node02", "node03"))


def test_a_removed_node_leaves_a_place_that_the_next_one_takes(made: instances.Instance) -> None:
    before = {node.name: node for node in made.nodes()}
    removed = replace(made, node_names=node_places.without_node(made.node_names, "node02"))
    assert {node.name: node for node in removed.nodes()} == {
        name: before[name] for name in ("node01", "node03")
    }
    for name in ("node02", ""):
        with pytest.raises(SetupError, match="there is none"):
            removed.node(name)
    assert node_places.with_node(removed.node_names) == ("node01", "node02", "node03")
    worker = replace(removed, node_names=node_places.with_node(removed.node_names, "worker")).node("worker")
    assert (worker.address, worker.pod_cidrs) == (before["node02"].address, before["node02"].pod_cidrs)


def test_a_new_node_gets_a_name_that_no_other_has() -> None:
    assert node_places.with_nodes((), 2) == ("node01", "node02")
    assert node_places.with_nodes(("node01", "", "node02"), 4) == ("node01", "node03", "node02", "node04")
    assert node_places.with_nodes(("node01", "", "node03"), 2) == ("node01", "", "node03")
    with pytest.raises(SetupError, match="200"):
        node_places.with_node(node_places.with_nodes((), 200))


def test_a_restored_cluster_keeps_its_nodes_and_adds_those_of_the_backup() -> None:
    assert node_places.merged(("node01",), ("node01", "node02")) == ("node01", "node02")
    assert node_places.merged(("a", "", "c"), ("c", "b")) == ("a", "b", "c")
    assert node_places.merged(("a", "b"), ("c",)) == ("a", "b")


@pytest.mark.parametrize("name", ["A", "a.b", "-a", "a" * 64, "../a", "node01-server"])
def test_a_name_that_is_no_host_name_or_that_a_certificate_has_is_refused(name: str) -> None:
    with pytest.raises(SetupError) as caught:
        node_places.check_name(name)
    assert caught.value.code is ExitCode.UNUSABLE


def test_the_layout_of_an_earlier_version_has_all_nodes_running(made: instances.Instance) -> None:
    made.save()
    file = made.state / "instance.json"
    document = orjson.loads(file.read_bytes())
    for name in ("stopped_nodes", "isolated_nodes"):
        assert document.pop(name) == []
    file.write_bytes(orjson.dumps(document))
    found = instances.require(made.state)
    assert (found.stopped(), found.isolated_nodes) == ([], ())
    assert found.running_nodes() == made.nodes()


def test_stopped_nodes_have_no_processes_and_the_controllers_are_told(made: instances.Instance) -> None:
    for node in made.nodes():
        node.directory.mkdir(parents=True)
    certificates.ensure(made)
    before = {spec.name: spec for spec in processes.specs(made)}
    stopped = replace(made, stopped_nodes=("node02",))
    after = {spec.name: spec for spec in processes.specs(stopped)}
    own = {spec.name for spec in processes.of_node(stopped, "node02")}
    assert own == {"containerd-node02", "node-node02"} == set(before) - set(after)
    assert {name for name in after if after[name] != before[name]} == {"controllers"}


def test_the_certificates_of_a_removed_node_alone_are_removed(made: instances.Instance) -> None:
    certificates.ensure(made)
    before = {path.name for path in made.pki.iterdir()}
    certificates.forget_node(made, "node02")
    gone = {f"node-node02{part}.{ending}" for part in ("", "-server") for ending in ("crt", "key")}
    assert before - {path.name for path in made.pki.iterdir()} == gone


def test_a_stopped_node_gets_the_images_that_were_loaded_meanwhile(made: instances.Instance) -> None:
    stopped = replace(made, node_names=("node01",), stopped_nodes=("node01",))
    (node,) = stopped.nodes()
    node.directory.mkdir(parents=True)
    marker = node.directory / nodeimages._MARKER
    marker.touch()
    assert list(nodeimages.load(stopped, [])) == []
    assert not marker.exists()


def test_the_link_of_an_isolated_node_is_down(
    made: instances.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    monkeypatch.setattr(node_network, "_ip", lambda _, *each: commands.extend(each))
    isolated = replace(made, isolated_nodes=("node02",))
    for node in isolated.nodes():
        node_network.plug(isolated, node)
    states = [command.split()[-1] for command in commands]
    assert states == ["up", "down", "up"]


def test_changes_of_nodes_wait_for_each_other(made: instances.Instance) -> None:
    waits, done = threading.Event(), threading.Event()

    def second() -> None:
        with instances.node_lock(made.state, waits.set):
            done.set()

    thread = threading.Thread(target=second)
    with instances.node_lock(made.state, lambda: None):
        thread.start()
        assert waits.wait(10)
        assert not done.is_set()
    thread.join(10)
    assert done.is_set()


@pytest.mark.parametrize(
    ("words", "running", "why", "code"),
    [
        (["stop", "node02"], False, "the cluster is down", ExitCode.FAILED),
        (["add"], False, "the cluster is down", ExitCode.FAILED),
        (["start", "node04"], True, "there is none", ExitCode.UNUSABLE),
        (["stop", ""], True, "there is none", ExitCode.UNUSABLE),
        (["isolate", "node03"], True, "it is stopped", ExitCode.FAILED),
        (["add", "node03"], True, "it is stopped", ExitCode.FAILED),
        (["add", "Node"], True, "RFC 1123", ExitCode.UNUSABLE),
        (["remove", "node09"], True, "there is none", ExitCode.UNUSABLE),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    words: list[str],
    running: bool,
    why: str,
    code: ExitCode,
    made: instances.Instance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace(made, stopped_nodes=("node03",)).save()
    before = (made.state / "instance.json").read_bytes()
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: int(running))
    done = CliRunner().invoke(commands.main, ["node", words[0], "--state", str(made.state), *words[1:]])
    assert (done.exit_code, why in done.output) == (code, True), done.output
    assert (made.state / "instance.json").read_bytes() == before


def test_the_last_node_is_not_removed(made: instances.Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(made, node_names=("", "node02")).save()
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: 1)
    with pytest.raises(SetupError, match="removing node02") as caught:
        nodes.remove(made.state, "node02", 0, print, force=True)
    assert "last node" in caught.value.why


def pod(name: str = "web", node: str = "node02", **more: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "lab", "uid": name} | more.pop("metadata", {})
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": more}


@pytest.mark.parametrize(
    ("found", "is_stopped", "holds"),
    [
        (pod(), False, True),
        (pod(), True, True),
        (pod(phase="Succeeded"), False, False),
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False, True),
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), True, False),
        (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "1"}}), False, False),
        (pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}), False, False),
        (pod(metadata={"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}), False, True),
    ],
)
def test_a_node_is_kept_for_the_pods_that_drain_would_move(
    found: JsonObject, is_stopped: bool, holds: bool
) -> None:
    assert nodes.holds(found, is_stopped=is_stopped) is holds


async def test_a_node_whose_removal_is_refused_stays_open_to_pods() -> None:
    api = MemoryApi()
    api.put(NODES, {"metadata": {"name": "node02"}})
    api.put(PODS, pod("one"))
    async with api.client() as client:
        with pytest.raises(SetupError, match="removing node02") as caught:
            await nodes._close(client, "node02", is_stopped=False, force=False)
        assert "lab/one" in caught.value.why and "kubectl drain node02" in caught.value.remedy
        assert not (await client.get(NODES, "node02")).get("spec", {}).get("unschedulable")
        await client.delete(PODS, "one", "lab", grace_period_seconds=0)
        await nodes._close(client, "node02", is_stopped=False, force=False)
        assert (await client.get(NODES, "node02"))["spec"]["unschedulable"] is True


async def test_a_removed_node_takes_its_pods_with_it_and_no_others() -> None:
    api = MemoryApi()
    for name in ("node01", "node02"):
        api.put(NODES, {"metadata": {"name": name}})
    api.put(PODS, pod("one", "node01"))
    api.put(PODS, pod("two", "node02"))
    async with api.client() as client:
        for _ in range(2):
            await nodes._forget(client, "node02")
        assert [item["metadata"]["name"] for item in (await client.list(NODES))["items"]] == ["node01"]
        assert [item["metadata"]["name"] for item in (await client.list(PODS))["items"]] == ["one"]
