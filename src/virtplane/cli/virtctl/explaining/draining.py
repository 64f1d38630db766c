"""What a drain of a node would do to each of its guests, and which of them block it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cli.virtctl.explaining.answer import Change, amount
from virtplane.cli.virtctl.explaining.room import Node, requests

_STRATEGY = "spec.template.spec.evictionStrategy"
_FINAL = ("Succeeded", "Failed")
_MARKED = ("Eviction triggered evacuation of VMI", "Evacuation in progress")
"""How virt-api refuses the eviction of a guest that is to be moved instead."""

MOVES, RESTARTS, ENDS, WAITS, BLOCKS = "moves", "restarts", "ends", "waits", "blocks"
_SUMMARY = {
    MOVES: "would be migrated",
    RESTARTS: "would start again on another node",
    ENDS: "would be off afterwards",
    WAITS: "would be off and wait for a node",
    BLOCKS: "would block the drain",
}


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest of the node, and what the API server answers to its eviction (of which nothing is done)."""

    instance: VirtualMachineInstance
    vm: VirtualMachine | None
    pod: JsonObject
    refusal: str = ""
    held_by: str = ""
    """A claim of its whose volume no other node reaches."""

    @property
    def name(self) -> str:
        """Namespace and name."""
        return f"{self.instance.metadata.namespace}/{self.instance.metadata.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """What would happen to one guest."""

    name: str
    outcome: str
    sentence: str
    change: Change | None = None

    def document(self) -> JsonObject:
        """The step for programs."""
        found: JsonObject = {"name": self.name, "outcome": self.outcome, "sentence": self.sentence}
        if self.change is not None:
            change = self.change
            found["change"] = {"field": change.field, "value": change.value, "advice": change.advice}
        return found


def plan(guests: Iterable[Guest], others: Sequence[Node]) -> list[Step]:
    """What would happen to each guest, in the order of their names; room that one takes is gone for the
    next. `others` are the nodes that are not drained.
    """
    left = {node.name: node for node in others}
    return [_step(guest, left) for guest in sorted(guests, key=lambda guest: guest.name)]


def summary(node: str, steps: Sequence[Step]) -> str:
    """All steps in one line."""
    if not steps:
        return f"{node}: no guest runs on it."
    counts = Counter(step.outcome for step in steps)
    parts = [f"{counts[outcome]} {text}" for outcome, text in _SUMMARY.items() if counts[outcome]]
    return f"{node}: of {len(steps)} guests, {', '.join(parts)}."


def lines(node: str, steps: Sequence[Step]) -> Iterator[str]:
    """The plan for people."""
    yield summary(node, steps)
    for step in steps:
        yield f"  {step.name} {step.outcome}: {step.sentence}".replace("\n", " ")
        if step.change is not None:
            value = f" is {step.change.value}" if step.change.value else ""
            yield f"    field:  {step.change.field}{value}".replace("\n", " ")
            yield f"    change: {step.change.advice}".replace("\n", " ")


def _step(guest: Guest, left: dict[str, Node]) -> Step:
    if guest.refusal:
        return _refused(guest)
    if guest.instance.status.phase in _FINAL:
        return Step(guest.name, ENDS, "its guest has ended already.")
    grace = guest.instance.spec.termination_grace_period_seconds
    shuts_down = f"its guest is shut down within {30 if grace is None else grace} s"
    if not _starts_again(guest):
        return _ended(guest, shuts_down)
    if guest.held_by:
        sentence = (
            f"{shuts_down}, and cannot start elsewhere: no other node reaches the claim {guest.held_by}."
        )
        change = Change(
            f"PersistentVolumeClaim/{guest.held_by}", "", "copy it to a class that all nodes reach"
        )
        return Step(guest.name, WAITS, sentence, change)
    return _placed(guest, shuts_down, left)


def _refused(guest: Guest) -> Step:
    strategy = guest.instance.spec.eviction_strategy or ""
    if guest.refusal.startswith(_MARKED):
        if strategy == "External":
            sentence = (
                "the drain waits until a controller of your own has moved it (evictionStrategy External)."
            )
            return Step(guest.name, BLOCKS, sentence, Change(_STRATEGY, strategy, "None has it shut down"))
        return Step(guest.name, MOVES, "the drain has it migrated, and waits for that.")
    why = next(
        (
            f" ({each.reason}: {each.message})"
            for each in guest.instance.status.conditions
            if (each.type, each.status) == ("LiveMigratable", "False")
        ),
        "",
    )
    change = None
    if "not live-migratable" in guest.refusal:
        advice = "None or LiveMigrateIfPossible has it shut down; or remove what keeps it from migrating"
        change = Change(_STRATEGY, strategy or "that of the installation", advice)
    else:
        why = ""
    return Step(guest.name, BLOCKS, f"{guest.refusal}{why}.", change)


def _starts_again(guest: Guest) -> bool:
    if guest.vm is None:
        return False
    spec = guest.vm.spec
    return (spec.run_strategy or ("Always" if spec.running else "Halted")) == "Always"


def _ended(guest: Guest, shuts_down: str) -> Step:
    owner = guest.instance.metadata.controller
    if guest.vm is not None:
        strategy = guest.vm.spec.run_strategy or "Halted"
        change = Change("spec.runStrategy", strategy, "Always starts it again")
        return Step(guest.name, ENDS, f"{shuts_down}, and is not started again.", change)
    if owner is None:
        return Step(guest.name, ENDS, f"{shuts_down}, for good: no VirtualMachine owns it.")
    return Step(guest.name, RESTARTS, f"{shuts_down}, and {owner.kind} {owner.name} makes another.")


def _placed(guest: Guest, shuts_down: str, left: dict[str, Node]) -> Step:
    needs = {**requests(guest.pod), "pods": 1}
    open_nodes = [node for node in left.values() if node.is_open_for(guest.pod)]
    fitting = [node for node in open_nodes if not node.lacks(needs)]
    if fitting:
        chosen = max(fitting, key=lambda node: node.free.get("memory", 0))
        free = {name: count - needs.get(name, 0) for name, count in chosen.free.items()}
        left[chosen.name] = replace(chosen, free=free)
        return Step(guest.name, RESTARTS, f"{shuts_down}, and starts again on {chosen.name}.")
    if not open_nodes:
        sentence = f"{shuts_down}, and no other node takes it: labels, taints or cordons keep it off."
        return Step(
            guest.name, WAITS, sentence, Change("spec.template.spec.nodeSelector", "", "see tolerations too")
        )
    shortages = [
        f"{node.name} has {amount(name, max(0, node.free.get(name, 0)))} of {name} left"
        for node in open_nodes
        for name in node.lacks(needs)
    ]
    wanted = sorted({name for node in open_nodes for name in node.lacks(needs)})
    asked = ", ".join(f"{amount(name, needs[name])} of {name}" for name in wanted)
    sentence = f"{shuts_down}, and waits for a node: it asks for {asked}, and {', '.join(shortages)}."
    return Step(guest.name, WAITS, sentence, Change("Node", "", "free room there, or add a node"))
