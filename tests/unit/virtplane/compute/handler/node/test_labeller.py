"""The labels of a node, kept right."""

from __future__ import annotations

from typing import Any

import pytest

from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node import labeller
from virtplane.compute.handler.node.labeller import NodeLabeller, Offers
from virtplane.compute.handler.node.processor import Processor

OFFERS = Offers(("pc-q35-7.2", "q35"), Processor(usable_models=("Westmere",), host_model="EPYC"), ("base",))
WANTED = {
    "cpu-model.node.kubevirt.io/Westmere": "true",
    "host-model-cpu.node.kubevirt.io/EPYC": "true",
    "hyperv.node.kubevirt.io/base": "true",
    "machine-type.node.kubevirt.io/pc-q35-7.2": "true",
    "machine-type.node.kubevirt.io/q35": "true",
}


def config(**configuration: Any) -> ClusterConfig:
    return ClusterConfig({"spec": {"configuration": configuration}, "status": {"phase": "Deployed"}})


class Nodes:
    """The one node of an API."""

    def __init__(self, labels: dict[str, str], annotations: dict[str, str]) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "node01", "labels": labels, "annotations": annotations}
        }
        self.patches: list[dict[str, str | None]] = []

    async def get(self, _resource: object, _name: str) -> dict[str, Any]:
        return self.node

    async def patch(self, _resource: object, _name: str, patch: Any, **_options: object) -> dict[str, Any]:
        changed: dict[str, str | None] = patch["metadata"]["labels"]
        self.patches.append(changed)
        labels = self.node["metadata"]["labels"] | changed
        self.node["metadata"]["labels"] = {key: value for key, value in labels.items() if value is not None}
        return self.node


class Events:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, _about: Any, _kind: str, reason: str, _message: str) -> None:
        self.reasons.append(reason)


def made(
    settings: ClusterConfig, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> tuple[NodeLabeller, Nodes, Events]:
    nodes: Any = Nodes(labels or {}, annotations or {})
    events: Any = Events()
    return NodeLabeller(nodes, events, "node01", OFFERS, lambda: settings), nodes, events


def test_a_node_gets_what_it_deserves_and_loses_what_it_does_not() -> None:
    assert labeller.wanted_labels(OFFERS, config()) == WANTED
    present = {
        "kubernetes.io/arch": "amd64",
        "kubevirt.io/schedulable": "true",
        "cpu-feature.node.kubevirt.io/gone": "true",
        "node-labeller.kubevirt.io/obsolete-host-model": "true",
        "machine-type.node.kubevirt.io/q35": "true",
    }
    changes = labeller.changes(present, WANTED)
    assert changes.pop("cpu-feature.node.kubevirt.io/gone") is None
    assert changes.pop("node-labeller.kubevirt.io/obsolete-host-model") is None
    assert changes == {key: value for key, value in WANTED.items() if not key.endswith("/q35")}


def test_a_node_that_is_right_is_left_alone() -> None:
    assert labeller.changes(WANTED | {"kubernetes.io/arch": "amd64"}, WANTED) == {}


def test_guests_of_several_architectures_find_nodes_by_another_label() -> None:
    gates = {"featureGates": ["CrossArchitectureVirtualization"]}
    wanted = labeller.wanted_labels(OFFERS, config(developerConfiguration=gates))
    assert wanted["kubevirt.io/vm-arch-amd64"] == "true"


@pytest.mark.feature("NOD-20")
async def test_labels_are_written_once() -> None:
    it, nodes, events = made(config())
    await it.label()
    await it.label()
    assert nodes.patches == [WANTED]
    assert nodes.node["metadata"]["labels"] == WANTED
    assert (it.has_labelled, events.reasons) == (True, [])


@pytest.mark.feature("NOD-18")
@pytest.mark.parametrize(("value", "skipped"), [("true", True), ("", True), ("false", False)])
async def test_a_node_whose_owner_wants_it_so_keeps_its_labels(value: str, skipped: bool) -> None:
    it, nodes, _ = made(config(), annotations={"node-labeller.kubevirt.io/skip-node": value})
    await it.label()
    assert (nodes.patches == []) is skipped
    assert it.has_labelled


async def test_an_obsolete_host_model_is_told_once() -> None:
    it, nodes, events = made(config(obsoleteCPUModels={"EPYC": True}))
    await it.label()
    await it.label()
    assert nodes.node["metadata"]["labels"]["node-labeller.kubevirt.io/obsolete-host-model"] == "true"
    assert events.reasons == ["HostModelIsObsolete"]
