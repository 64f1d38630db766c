"""Why no node takes a guest's pod: the scheduler's reasons, with the fields and the numbers behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.cli.virtctl.explaining.answer import Answer, Change, amount
from virtplane.cli.virtctl.explaining.facts import Facts
from virtplane.cli.virtctl.explaining.room import Node, requests
from virtplane.compute import amounts

TEMPLATE = "spec.template.spec"
_DOMAIN = f"{TEMPLATE}.domain"
_REASON = re.compile(r"(?P<count>[0-9]+) (?P<text>[^,{]+(?:\{[^}]*\}[^,]*)?)")
_KVM = "devices.kubevirt.io/kvm"
_EMULATION = "KubeVirt spec.configuration.developerConfiguration.useEmulation"

_FIELDS_OF_LABELS = (
    (labels.CPU_MODEL_PREFIX, f"{_DOMAIN}.cpu.model"),
    (labels.CPU_FEATURE_PREFIX, f"{_DOMAIN}.cpu.features"),
    (labels.MACHINE_TYPE_PREFIX, f"{_DOMAIN}.machine.type"),
    (labels.HYPERV_PREFIX, f"{_DOMAIN}.features.hyperv"),
    (labels.CPU_MANAGER, f"{_DOMAIN}.cpu.dedicatedCpuPlacement"),
    (labels.REALTIME, f"{_DOMAIN}.cpu.realtime"),
    ("kubernetes.io/arch", f"{TEMPLATE}.architecture"),
)
"""Which fields ask for labels of nodes, by the beginnings of the labels."""


def explained(facts: Facts) -> Answer | None:
    """Why the guest's pod has no node; None if it has one, or nobody has looked for one yet."""
    message = _message(facts)
    if message is None:
        return None
    found = reasons(message)
    if not found:
        return Answer(f"it waits for a node: {message.rstrip('.') or 'the scheduler does not say why'}.")
    pod = facts.pod or {}
    needs = requests(pod)
    open_nodes = [node for node in facts.nodes if node.is_open_for(pod)]
    said = [_said(count, text, needs, open_nodes) for count, text in found]
    changes = [change for _, text in found for change in _changes(facts, text, open_nodes)]
    return Answer(
        f"no node takes its pod: {'; '.join(said)}.",
        tuple(dict.fromkeys(changes)),
        tuple(_numbers(facts, needs)),
    )


def _message(facts: Facts) -> str | None:
    """What the scheduler says of the pod, or the instance of a pod that may not be read."""
    if facts.pod is not None:
        condition = meta.get_condition(facts.pod, "PodScheduled") or {}
        return get_str(condition, "message") if condition.get("status") == "False" else None
    conditions = facts.instance.status.conditions if facts.instance is not None else ()
    told = (each for each in conditions if (each.type, each.status) == ("PodScheduled", "False"))
    return next((each.message or "" for each in told), None)


def reasons(message: str) -> list[tuple[int, str]]:
    """The scheduler's reasons, each with the number of nodes that have it, the most frequent first."""
    _, found, rest = message.partition(" nodes are available: ")
    if not found:
        return []
    first = re.split(r"\. |\.$", rest, maxsplit=1)[0]
    parsed = [(int(each["count"]), each["text"].strip()) for each in _REASON.finditer(first)]
    return sorted(parsed, key=lambda each: -each[0])


def _most(nodes: Sequence[Node], resource: str) -> Node | None:
    return max(nodes, key=lambda node: node.free.get(resource, 0), default=None)


def _said(count: int, text: str, needs: dict[str, int], nodes: Sequence[Node]) -> str:
    on = f"{count} node{'s' if count > 1 else ''}"
    resource = _short_of(text)
    if not resource:
        return f"on {on}, {text.removeprefix('node(s) ')}"
    said = f"{on} {'have' if count > 1 else 'has'} too little {resource}"
    if resource not in needs:
        return said
    best = _most(nodes, resource)
    left = f", and {best.name} has the most left, {_left(best, resource)}" if best is not None else ""
    return f"{said} (it asks for {amount(resource, needs[resource])}{left})"


def _left(node: Node, resource: str) -> str:
    free, all_of_it = node.free.get(resource, 0), node.allocatable.get(resource, 0)
    return f"{amount(resource, max(0, free))} of {amount(resource, all_of_it)}"


def _short_of(text: str) -> str:
    return text.removeprefix("Insufficient ") if text.startswith("Insufficient ") else ""


def _changes(facts: Facts, text: str, nodes: Sequence[Node]) -> Iterator[Change]:
    resource = _short_of(text)
    if resource:
        yield _smaller(facts, resource, nodes)
    elif "affinity/selector" in text:
        yield from _labels(facts)
    elif "taint" in text:
        yield Change(f"{TEMPLATE}.tolerations", "", f"tolerate the taint, or take it off the nodes: {text}")
    elif "were unschedulable" in text:
        cordoned = ", ".join(node.name for node in facts.nodes if node.is_cordoned) or "NODE"
        yield Change("Node spec.unschedulable", "true", f"kubectl uncordon {cordoned}")
    elif "volume" in text.lower():
        claims = ", ".join(name for _, name in facts.volumes)
        yield Change(f"{TEMPLATE}.volumes", claims, "use claims that all nodes reach, or free their node")
    elif "affinity" in text:
        yield Change(f"{TEMPLATE}.affinity", "", "ask for less, or move what the rules speak of")


def _smaller(facts: Facts, resource: str, nodes: Sequence[Node]) -> Change:
    """What to ask less of."""
    vm = facts.vm
    if resource == _KVM:
        return Change(_EMULATION, "", "give a node working KVM, or set it to true: guests are slow then")
    matcher = vm.spec.instancetype
    if matcher is not None and resource in ("cpu", "memory"):
        return Change("spec.instancetype.name", matcher.name or "", "choose a smaller one, or add a node")
    if resource == "memory":
        return _less_memory(facts, nodes)
    if resource == "cpu":
        return _less_cpu(vm)
    if resource.startswith("hugepages-"):
        pages = vm.spec.instance.domain.memory.hugepages
        advice = "use other pages, or have nodes set more of them aside"
        return Change(f"{_DOMAIN}.memory.hugepages.pageSize", pages.page_size or "" if pages else "", advice)
    if resource in ("pods", "ephemeral-storage"):
        return Change(f"Node status.allocatable.{resource}", "", "move pods away, or add a node")
    return Change(f"{_DOMAIN}.devices", resource, "free a device of that name, or ask for another")


def _less_memory(facts: Facts, nodes: Sequence[Node]) -> Change:
    domain = facts.vm.spec.instance.domain
    requested = domain.resources.requests.get("memory")
    wanted, field = requested, f"{_DOMAIN}.resources.requests.memory"
    if requested is None and domain.memory.guest is not None:
        wanted, field = domain.memory.guest, f"{_DOMAIN}.memory.guest"
    best = _most(nodes, "memory")
    if wanted is None or best is None or facts.pod is None:
        return Change(field, str(wanted or ""), "ask for less, or add a node")
    fitting = fitting_memory(facts.pod, amounts.to_bytes(wanted), best.free["memory"])
    if fitting <= 0:
        return Change(field, str(wanted), f"free memory on {best.name}, or add a node")
    room = f"at most {fitting >> 20}Mi fits on {best.name} now"
    return Change(field, str(wanted), f"{room}; or free memory there, or add a node")


def fitting_memory(pod: JsonObject, guest: int, free: int) -> int:
    """The memory with which a guest fits into what is free, where now it needs more; 0 if none does.

    What the pod needs beside the guest's memory is taken to stay; it falls with the memory. What overcommit
    makes of the guest's memory is read off the pod.
    """
    compute = [each for each in get_list(pod, "spec", "containers") if each.get("name") == "compute"]
    overhead = amounts.whole(meta.annotations(pod).get(labels.MEMORY_OVERHEAD_BYTES, "")) or 0
    share = requests({"spec": {"containers": compute}}).get("memory", 0) - overhead
    if guest <= 0 or share <= 0:
        return 0
    beside = requests(pod)["memory"] - share
    return max(0, (free - beside) * guest // share)


def _less_cpu(vm: VirtualMachine) -> Change:
    domain = vm.spec.instance.domain
    requested = domain.resources.requests.get("cpu")
    if requested is not None:
        return Change(f"{_DOMAIN}.resources.requests.cpu", str(requested), "ask for less, or add a node")
    cpu = domain.cpu
    shape = [f"{name} {count}" for name in ("sockets", "cores", "threads") if (count := getattr(cpu, name))]
    advice = "ask for fewer, or add a node"
    return Change(f"{_DOMAIN}.cpu", ", ".join(shape) or "cores 1", advice)


def _labels(facts: Facts) -> Iterator[Change]:
    """The labels that the pod wants and no node has; all of them where only their combination is missing."""
    wanted = get_object(facts.pod, "spec", "nodeSelector")
    having = {
        key: sum(node.labels.get(key) == value for node in facts.nodes) for key, value in wanted.items()
    }
    missing = [key for key in wanted if facts.nodes and not having[key]]
    own = facts.vm.spec.instance.node_selector
    for key in missing or own:
        yield _label(key, str(wanted.get(key, "")), own=key in own, nodes=len(facts.nodes))
    if not missing and facts.vm.spec.instance.affinity is not None:
        yield Change(f"{TEMPLATE}.affinity", "", "ask for what nodes have")


def field_of_label(key: str, value: str, *, own: bool) -> tuple[str, str]:
    """The field that asks for a label of nodes, and its value there. `own` labels are nodeSelector's."""
    for prefix, field in () if own else _FIELDS_OF_LABELS:
        if key.startswith(prefix):
            return field, key.removeprefix(prefix) or value
    return (f"{TEMPLATE}.nodeSelector[{key}]", value) if own else (f"Node metadata.labels[{key}]", value)


def _label(key: str, value: str, *, own: bool, nodes: int) -> Change:
    field, wanted = field_of_label(key, value, own=own)
    if own:
        advice = f"kubectl label node NODE {key}={value}, or choose another"
    elif key == labels.SCHEDULABLE:
        advice = "virt-handler reports on no node: kubectl get pods -A -l kubevirt.io=virt-handler"
    else:
        advice = "choose another"
    return Change(field, wanted, f"none of {nodes} nodes has it: {advice}")


def _numbers(facts: Facts, needs: dict[str, int]) -> Iterator[str]:
    """One line for each node: what it has left of what the pod asks for."""
    for node in facts.nodes:
        states = [
            word
            for word, holds in (("cordoned", node.is_cordoned), ("not ready", not node.is_ready))
            if holds
        ]
        lacking = [f"{name} {_left(node, name)}" for name in node.lacks(needs)]
        yield f"{node.name}: {', '.join([*states, *lacking]) or 'has room'}"
