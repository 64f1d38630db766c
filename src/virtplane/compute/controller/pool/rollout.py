"""How the machines of a pool take over a changed template: pure decisions.

The template is written at once to every machine that the strategy means. A guest that was started before the
change says so by the revision in its labels, so that the restart of guests goes on where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtplane.api import labels
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.pool_v1beta1.pool import (
    VirtualMachinePool,
    VirtualMachinePoolSelectionPolicy,
    VirtualMachineTemplateSpec,
)
from virtplane.compute import amounts
from virtplane.compute.controller.pool import selection
from virtplane.compute.controller.pool.selection import Around
from virtplane.compute.controller.vm.strategy import is_final, written_strategy

REVISION_LABEL = labels.POOL_REVISION
_RUNNING = ("Always", "RerunOnFailure")

Templates = Mapping[str, VirtualMachineTemplateSpec]
"""The templates that a pool had, by the names of the revisions that keep them."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The guests to restart, the machines to replace, and the guests that only get the new revision."""

    restart: tuple[VirtualMachineInstance, ...] = ()
    replace: tuple[VirtualMachine, ...] = ()
    relabel: tuple[VirtualMachineInstance, ...] = ()


def revision_name(pool: VirtualMachinePool) -> str:
    """The name of the revision for the pool's current generation."""
    return f"{pool.metadata.name}-{pool.metadata.generation}"


def is_outdated(pool: VirtualMachinePool, vm: VirtualMachine, templates: Templates) -> bool:
    """Whether the machine is of an older template; machines differ from it by admission's defaults."""
    name = vm.metadata.labels.get(REVISION_LABEL, "")
    return name != revision_name(pool) and templates.get(name) != pool.spec.virtual_machine_template


def update_policy(pool: VirtualMachinePool) -> VirtualMachinePoolSelectionPolicy | None:
    """Which machines take over a changed template, and in which order their guests are restarted."""
    strategy = pool.spec.update_strategy
    proactive = strategy.proactive if strategy is not None else None
    return proactive.selection_policy if proactive is not None else None


def is_automatic(pool: VirtualMachinePool) -> bool:
    """Whether the pool restarts guests for a changed template, rather than wait for their next start."""
    strategy = pool.spec.update_strategy
    return strategy is None or (strategy.unmanaged is None and strategy.opportunistic is None)


def changes_guest(before: VirtualMachineTemplateSpec | None, after: VirtualMachineTemplateSpec) -> bool:
    """Whether guests of the two templates differ; labels of VMs, for one, are not part of them."""
    return before is None or _guest(before) != _guest(after) or changes_disks(before, after)


def changes_disks(before: VirtualMachineTemplateSpec | None, after: VirtualMachineTemplateSpec) -> bool:
    """Whether machines of the two templates have disks of their own that differ."""
    return before is not None and _disks(before) != _disks(after)


def _guest(template: VirtualMachineTemplateSpec) -> object:
    return template.spec.template if template.spec is not None else None


def _disks(template: VirtualMachineTemplateSpec) -> object:
    return template.spec.data_volume_templates if template.spec is not None else ()


def max_unavailable(pool: VirtualMachinePool, wanted: int) -> int:
    """How many machines may be unavailable for updates at once: all by default, at least one."""
    written = pool.spec.max_unavailable
    if written is None:
        return max(1, wanted)
    if isinstance(written, int):
        return max(1, written)
    percent = amounts.whole(written.removesuffix("%"))
    return max(1, wanted * (100 if percent is None else percent) // 100)


def unavailable(vms: Sequence[VirtualMachine], wanted: int, around: Around) -> int:
    """How many machines that are to run do not: missing, on their way out, or not ready."""
    missing = max(0, wanted - len(vms))
    return missing + sum(_is_unavailable(vm, around) for vm in vms)


def _is_unavailable(vm: VirtualMachine, around: Around) -> bool:
    if vm.metadata.is_being_deleted:
        return True
    vmi = around.instances.get(vm.metadata.name)
    if vmi is None:
        return written_strategy(vm) in _RUNNING
    if is_final(vmi):
        return written_strategy(vm) in _RUNNING
    ready = any(item.type == "Ready" and item.status == "True" for item in vmi.status.conditions)
    return vmi.metadata.is_being_deleted or not ready


def is_stopped(vm: VirtualMachine, around: Around) -> bool:
    """Whether the machine has no guest, or one that has ended."""
    vmi = around.instances.get(vm.metadata.name)
    return vmi is None or is_final(vmi)


def next_rollout(
    pool: VirtualMachinePool, vms: Sequence[VirtualMachine], templates: Templates, wanted: int, around: Around
) -> Rollout:
    """The guests that are due; as many as may be unavailable, in the order of the pool's policy."""
    present = pool.spec.virtual_machine_template
    living = [vm for vm in vms if not vm.metadata.is_being_deleted]
    relabel = tuple(_relabelled(pool, living, templates, around))
    if not is_automatic(pool):
        return Rollout(relabel=relabel)
    due = [vm for vm in living if _needs_restart(pool, vm, templates, around)]
    order = selection.chosen(pool, update_policy(pool), due)
    # A machine that does not run costs nothing that is not lost already.
    idle = [vm for vm in order if _is_unavailable(vm, around) or is_stopped(vm, around)]
    budget = max(0, max_unavailable(pool, wanted) - unavailable(vms, wanted, around))
    healthy = [vm for vm in order if vm not in idle]
    restart, replace = [], []
    for vm in (*idle, *healthy[:budget]):
        before = templates.get(_started_with(vm, around))
        vmi = around.instances.get(vm.metadata.name)
        if changes_disks(before, present):
            replace.append(vm)
        elif vmi is not None and not vmi.metadata.is_being_deleted and not is_final(vmi):
            restart.append(vmi)
    return Rollout(tuple(restart), tuple(replace), relabel)


def _started_with(vm: VirtualMachine, around: Around) -> str:
    """The revision that the machine's guest was started with; without a guest, the machine's own."""
    vmi = around.instances.get(vm.metadata.name)
    owner = vmi if vmi is not None else vm
    return owner.metadata.labels.get(REVISION_LABEL, "")


def _needs_restart(
    pool: VirtualMachinePool, vm: VirtualMachine, templates: Templates, around: Around
) -> bool:
    name = _started_with(vm, around)
    if name == revision_name(pool):
        return False
    return changes_guest(templates.get(name), pool.spec.virtual_machine_template)


def _relabelled(
    pool: VirtualMachinePool, vms: Sequence[VirtualMachine], templates: Templates, around: Around
) -> list[VirtualMachineInstance]:
    """Guests of another revision with the same template: they get its name, so that the old one can go."""
    found = []
    for vm in vms:
        vmi = around.instances.get(vm.metadata.name)
        if vmi is None or vmi.metadata.is_being_deleted or is_final(vmi):
            continue
        name, own = vmi.metadata.labels.get(REVISION_LABEL, ""), vm.metadata.labels.get(REVISION_LABEL, "")
        before, after = templates.get(name), templates.get(own)
        if name != own and before is not None and after is not None and not changes_guest(before, after):
            found.append(vmi)
    return found
