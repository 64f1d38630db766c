"""Which machines of a pool come first, and which are meant at all: pure decisions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubecore.json import get_object
from kubecore.objects.selectors import Requirement, from_label_selector_object
from kubecore.objects.structs import encode
from virtplane.api.affinity_v1 import NodeSelectorRequirement
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool, VirtualMachinePoolSelectionPolicy

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}


@dataclass(frozen=True, slots=True)
class Around:
    """What a pool's decisions look at besides the pool and its machines."""

    now: datetime
    instances: Mapping[str, VirtualMachineInstance] = field(default_factory=dict)
    """The instances of the pool's machines by name."""


def index_of(pool: VirtualMachinePool, vm: VirtualMachine) -> int | None:
    """The index of a VM of the pool; None if its name has none."""
    text = vm.metadata.name.removeprefix(pool.metadata.name + "-")
    return int(text) if text.isdigit() and vm.metadata.name != text else None


def chosen(
    pool: VirtualMachinePool,
    policy: VirtualMachinePoolSelectionPolicy | None,
    vms: Sequence[VirtualMachine],
) -> list[VirtualMachine]:
    """The machines that the policy means, in its order."""
    meant = [vm for vm in vms if is_meant(policy, vm)]
    order = policy.sort_policy if policy is not None else None
    if order == "AscendingOrder":
        return sorted(meant, key=lambda vm: index_of(pool, vm) or 0)
    if order == "DescendingOrder":
        return sorted(meant, key=lambda vm: -(index_of(pool, vm) or 0))
    if order in ("Newest", "Oldest"):
        return sorted(meant, key=lambda vm: vm.metadata.creation_timestamp or "", reverse=order == "Newest")
    return random.sample(meant, len(meant))


def is_meant(policy: VirtualMachinePoolSelectionPolicy | None, vm: VirtualMachine) -> bool:
    """Whether the machine meets all selectors: those of labels speak of the labels that its guests get, those
    of nodes of its ``nodeSelector``.
    """
    selectors = policy.selectors if policy is not None else None
    if selectors is None:
        return True
    if selectors.label_selector is not None:
        selector = from_label_selector_object(encode(selectors.label_selector))
        if not selector.matches(get_object(vm.spec.template.metadata, "labels")):
            return False
    placed = vm.spec.instance.node_selector
    return all(_requirement(each).matches(placed) for each in selectors.node_selector_requirement_matcher)


def _requirement(written: NodeSelectorRequirement) -> Requirement:
    return Requirement(written.key, _OPERATORS[written.operator], tuple(sorted(written.values)))
