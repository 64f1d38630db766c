"""Why a node cannot take a guest that is to be migrated to it, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubecore.json import JsonObject, get_object, get_str
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cli.virtctl.explaining.answer import Change, amount
from virtplane.cli.virtctl.explaining.placement import TEMPLATE, field_of_label
from virtplane.cli.virtctl.explaining.room import Node, requests
from virtplane.compute.controller.migration.target import host_model_selector

HOSTNAME = "kubernetes.io/hostname"
"""The label by which a migration is told its node."""

_DEVICES = f"{TEMPLATE}.domain.devices"
_BINDING = "masquerade, or another binding that migrates; or a secondary network alone"
_CHANGES = {
    "DisksNotLiveMigratable": (f"{TEMPLATE}.volumes", "use claims that are ReadWriteMany (shared by nodes)"),
    "InterfaceNotLiveMigratable": (f"{_DEVICES}.interfaces", _BINDING),
    "HostDeviceNotLiveMigratable": (f"{_DEVICES}.hostDevices", "take the devices of its node away from it"),
    "HypervPassthroughNotLiveMigratable": (
        f"{TEMPLATE}.domain.features.hypervPassthrough",
        "name the features that it needs",
    ),
}
"""The field behind a reason of the condition LiveMigratable, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the guest cannot move there, and what to change."""

    why: str
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A guest, its pod, where it is, and the node that is to take it."""

    instance: VirtualMachineInstance
    pod: JsonObject
    source: Node | None
    target: Node
    held_by: str = ""
    """A claim whose volume the target does not reach."""


def obstacles(move: Move) -> list[Obstacle]:
    """Everything that is in the way: first of the guest itself, then of the node."""
    return [*_of_guest(move), *_of_node(move)]


def lines(name: str, node: str, found: list[Obstacle]) -> Iterator[str]:
    """The obstacles for people."""
    yield f"{name} cannot move to {node}:"
    for each in found:
        yield f"  {each.why}".replace("\n", " ")
        if each.change is not None:
            value = f" is {each.change.value}" if each.change.value else ""
            yield f"    field:  {each.change.field}{value}".replace("\n", " ")
            yield f"    change: {each.change.advice}"


def _of_guest(move: Move) -> Iterator[Obstacle]:
    vmi = move.instance
    name, status = vmi.metadata.name, vmi.status
    if status.phase != "Running":
        change = Change("spec.runStrategy", "", f"virtctl start {name}, and wait until it runs")
        yield Obstacle(f"its guest does not run (phase {status.phase or 'none'})", change)
    if status.node_name == move.target.name:
        yield Obstacle("it runs there already", Change("--to", move.target.name, "name another node"))
    state = status.migration_state
    if state is not None and state.start_timestamp and not state.end_timestamp:
        change = Change("VirtualMachineInstanceMigration", "", f"wait, or virtctl migrate-cancel {name}")
        yield Obstacle(f"it is being moved to {state.target_node or 'another node'} already", change)
    for each in status.conditions:
        if (each.type, each.status) == ("LiveMigratable", "False"):
            field, advice = _CHANGES.get(each.reason or "", ("", ""))
            change_of = Change(field, "", advice) if field else None
            yield Obstacle(f"{each.message or each.reason} ({each.reason})", change_of)


def _of_node(move: Move) -> Iterator[Obstacle]:
    node, pod = move.target, move.pod
    if not node.is_ready:
        yield Obstacle(
            "the node is not ready", Change("Node status.conditions[Ready]", "", "repair the node")
        )
    if node.is_cordoned:
        change = Change("Node spec.unschedulable", "true", f"kubectl uncordon {node.name}")
        yield Obstacle("the node is cordoned", change)
    for taint in node.repels(pod):
        key, effect = taint.get("key", ""), taint.get("effect", "")
        advice = f"tolerate {key}, or kubectl taint node {node.name} {key}:{effect}-"
        yield Obstacle(
            f"the node has the taint {key}:{effect}", Change(f"{TEMPLATE}.tolerations", "", advice)
        )
    yield from _missing_labels(move)
    if not node.is_wanted(pod):
        change = Change(f"{TEMPLATE}.affinity.nodeAffinity", "", "require what the node has")
        yield Obstacle("the affinity that the guest requires names other nodes", change)
    if move.held_by:
        change = Change(
            f"PersistentVolumeClaim/{move.held_by}", "", "copy it to a class that both nodes reach"
        )
        yield Obstacle(f"the node does not reach the claim {move.held_by}", change)
    needs = {**requests(pod), "pods": 1}
    for resource in node.lacks(needs):
        asked, free = needs[resource], max(0, node.free.get(resource, 0))
        text = (
            f"the node lacks {amount(resource, asked - free)} of {resource}: the guest asks for"
            f" {amount(resource, asked)}, and {amount(resource, free)} of"
            f" {amount(resource, node.allocatable.get(resource, 0))} are left"
        )
        yield Obstacle(text, Change(f"Node {node.name}", "", "move other pods away from it, or ask for less"))


def _missing_labels(move: Move) -> Iterator[Obstacle]:
    """Labels that the guest's pod requires, and those of the processor that it runs on now."""
    own = move.instance.spec.node_selector
    wanted: dict[str, str] = dict(get_object(move.pod, "spec", "nodeSelector"))
    for key, value in wanted.items():
        if move.target.labels.get(key) != value:
            field, shown = field_of_label(key, value, own=key in own)
            advice = f"kubectl label node {move.target.name} {key}={value}, or change the field"
            if key not in own:
                advice = "choose what the node offers"
            yield Obstacle(f"the node has no label {key}={value}", Change(field, shown, advice))
    model = move.instance.spec.domain.cpu.model or ""
    here: JsonObject = {"metadata": {"labels": dict(move.source.labels) if move.source is not None else {}}}
    of_processor = host_model_selector(model, here)
    missing = sorted(key for key in of_processor if key not in wanted and key not in move.target.labels)
    if missing:
        shown = ", ".join(key.partition("/")[2] for key in missing)
        change = Change(
            f"{TEMPLATE}.domain.cpu.model", model or "host-model", "name a model that both nodes have"
        )
        yield Obstacle(f"the node's processor lacks what the guest was started with: {shown}", change)


def is_launcher(pod: JsonObject, instance: VirtualMachineInstance) -> bool:
    """Whether the guest runs in the pod."""
    uid = get_str(pod, "metadata", "uid")
    return (
        uid in instance.status.active_pods and get_str(pod, "spec", "nodeName") == instance.status.node_name
    )
