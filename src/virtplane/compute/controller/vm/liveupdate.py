"""Live updates: changes of a VM's template that its running instance gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from kubecore.patch.guarded import replacing, same_version
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.launch_security import LaunchSecurity
from virtplane.api.kubevirt_v1.memory import MemoryStatus
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.cluster.objects import described
from virtplane.compute import amounts, plugging
from virtplane.compute.amounts import GI, MI
from virtplane.compute.controller.vm.status import SyncError, is_migrating
from virtplane.compute.hotplug import is_hotpluggable


@dataclass(slots=True)
class Update:
    """The JSON patch for the instance, or why the change is impossible."""

    operations: list[JsonObject] = field(default_factory=list)
    restart_message: str = ""
    error: SyncError | None = None


def live_update(vm: VirtualMachine, vmi: VirtualMachineInstance, *, cpu_allocation_ratio: int) -> Update:
    """The live update of the instance: changes of CPU, memory and scheduling in the template."""
    if vmi.status.phase != "Running" or vmi.metadata.is_being_deleted:
        return Update()
    update, template = Update(), vm.spec.instance
    _cpu(template, vmi, update, cpu_allocation_ratio)
    for step in (_scheduling, _memory):
        if update.error is None and not update.restart_message:
            step(template, vmi, update)
    return update


def _replace(update: Update, path: str, before: object, after: object) -> None:
    update.operations.append(replacing(update.operations, path, before, after))


def _cpu(
    template: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance, update: Update, ratio: int
) -> None:
    running = vmi.spec.domain.cpu
    sockets, current = template.domain.cpu.sockets, running.sockets
    if not sockets or not current:
        return
    hopeless = _hopeless(vmi, plugging.CPU_CHANGE)
    if sockets == current:
        if hopeless:
            update.restart_message = f"CPU sockets updated in template spec. {hopeless}"
        return
    topology = vmi.status.current_cpu_topology
    if topology is not None and topology.sockets == sockets and not plugging.has_cpu_room(vmi):
        _revert(vmi, update, "/spec/domain/cpu/sockets", current, sockets)
        return
    if vmi.spec.architecture == "arm64":
        update.restart_message = "ARM doesn't support CPU hotplug"
    elif running.max_sockets and sockets > running.max_sockets:
        update.restart_message = (
            "CPU sockets updated in template spec to a value higher than what's available"
        )
    elif sockets < current:
        update.restart_message = "Reduction of CPU socket count requires a restart"
    elif is_true(vmi.status.conditions, "HotVCPUChange"):
        update.error = _cpu_error("another CPU hotplug is in progress")
    elif is_migrating(vmi):
        update.error = _cpu_error("CPU hotplug is not allowed while VMI is migrating")
    elif not plugging.cpu_fits_in_place(vmi.spec) and not is_true(vmi.status.conditions, "LiveMigratable"):
        # Such sockets are plugged in by a migration; without one the instance would never get them.
        text = "CPU sockets updated in template spec. CPU-hotplug is only available for migratable VMs"
        update.restart_message = text
    else:
        _replace(update, "/spec/domain/cpu/sockets", current, sockets)
        threads = (running.cores or 1) * (running.threads or 1)
        _raise_cpu(template, vmi, update, (sockets - current) * threads * 1000 // ratio)


def _hopeless(vmi: VirtualMachineInstance, kind: str) -> str:
    """Why a pending change will never take effect in the running guest; empty where it may."""
    conditions = vmi.status.conditions
    found = next((item for item in conditions if item.type == kind and item.status == "True"), None)
    if found is None or found.reason not in plugging.HOPELESS or is_true(conditions, "LiveMigratable"):
        return ""
    return f"The pod has no room, and the VM is not migratable: {found.message or found.reason}"


def _revert(vmi: VirtualMachineInstance, update: Update, path: str, before: object, after: object) -> None:
    """Take a change back that has not begun. The patch holds at the very version that was read."""
    update.operations += same_version(described(vmi))
    _replace(update, path, before, after)


def _raise_cpu(
    template: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance, update: Update, milli: int
) -> None:
    asked, running = template.domain.resources, vmi.spec.domain.resources
    for kind, theirs, present in (
        ("requests", asked.requests, running.requests),
        ("limits", asked.limits, running.limits),
    ):
        if "cpu" in theirs and "cpu" in present:
            raised = amounts.cpus(amounts.to_milli(present["cpu"]) + milli)
            _replace(update, f"/spec/domain/resources/{kind}/cpu", present["cpu"], raised)


def _cpu_error(text: str) -> SyncError:
    return SyncError("HotPlugCPUError", f"Error encountered while handling CPU change request: {text}")


def _placement(spec: VirtualMachineInstanceSpec) -> dict[str, Any]:
    """The scheduling fields as documents; None for empty ones."""
    return {
        "nodeSelector": dict(spec.node_selector) or None,
        "affinity": (encode(spec.affinity) if spec.affinity else None) or None,
        "tolerations": [encode(toleration) for toleration in spec.tolerations] or None,
    }


def _scheduling(template: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance, update: Update) -> None:
    wanted, running = _placement(template), _placement(vmi.spec)
    changed = [key for key in wanted if wanted[key] != running[key]]
    if not changed:
        return
    if is_migrating(vmi):
        reason, what = "AffinityChangeError", "node affinity change"
        if changed == ["tolerations"]:
            reason, what = "TolerationsChangeError", "tolerations change"
        text = f"Error encountered while handling {what} request: {what} is not allowed during VMI migration"
        update.error = SyncError(reason, text)
        return
    # Equal objects may be written differently, so the patch tests the resourceVersion instead of values.
    update.operations += same_version(described(vmi))
    update.operations += [replacing([], f"/spec/{key}", running[key], wanted[key]) for key in changed]


def _memory(template: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance, update: Update) -> None:
    wanted, running = template.domain.memory.guest, vmi.spec.domain.memory.guest
    if wanted is None or running is None:
        return
    size = amounts.to_bytes(wanted)
    if size == amounts.to_bytes(running):
        hopeless = _hopeless(vmi, plugging.MEMORY_CHANGE)
        if hopeless:
            update.restart_message = f"memory updated in template spec. {hopeless}"
        return
    requested = vmi.status.memory.guest_requested if vmi.status.memory is not None else None
    if requested is not None and amounts.to_bytes(requested) == size and not plugging.has_memory_room(vmi):
        _revert(vmi, update, "/spec/domain/memory/guest", running, wanted)
        _raise_memory(vmi, update, size)
        return
    obstacle = memory_obstacle(vmi, size)
    if obstacle:
        update.restart_message = obstacle
    elif is_true(vmi.status.conditions, "HotMemoryChange"):
        update.error = _memory_error("another memory hotplug is in progress")
    elif is_migrating(vmi):
        update.error = _memory_error("memory hotplug is not allowed while VMI is migrating")
    else:
        _replace(update, "/spec/domain/memory/guest", running, wanted)
        _raise_memory(vmi, update, size)


def _raise_memory(vmi: VirtualMachineInstance, update: Update, size: int) -> None:
    current = amounts.to_bytes(vmi.spec.domain.memory.guest)
    resources = vmi.spec.domain.resources
    for kind, present in (("requests", resources.requests), ("limits", resources.limits)):
        if "memory" in present:
            raised = amounts.to_bytes(present["memory"]) + size - current
            value = amounts.like(raised, present["memory"])
            _replace(update, f"/spec/domain/resources/{kind}/memory", present["memory"], value)


def _memory_error(text: str) -> SyncError:
    return SyncError("HotPlugMemoryError", f"Error encountered while handling memory change request: {text}")


def memory_obstacle(vmi: VirtualMachineInstance, size: int) -> str:
    """Why the memory of a running guest cannot be changed to `size`; empty if it can."""
    start = "memory updated in template spec"
    maximum, status = vmi.spec.domain.memory.max_guest, vmi.status.memory
    conditions = vmi.status.conditions
    if any(item.type == "HotMemoryChange" and item.status == "False" for item in conditions):
        return f"{start}. Memory-hotplug failed and is not available for this VM configuration"
    if not plugging.memory_fits_in_place(vmi.spec) and not is_true(conditions, "LiveMigratable"):
        return f"{start}. Memory-hotplug is only available for migratable VMs"
    if maximum is None or status is None or status == MemoryStatus():
        return f"{start}. Memory-hotplug is not available for this VM configuration"
    unsupported = _hotplug_unsupported(vmi.spec, size)
    if unsupported:
        return f"memory hotplug not supported, {unsupported}"
    if size < amounts.to_bytes(status.guest_at_boot):
        return f"{start} to a value lower than what the VM started with"
    if size > amounts.to_bytes(maximum):
        return f"{start} to a value higher than what's available"
    return ""


def _hotplug_unsupported(spec: VirtualMachineInstanceSpec, size: int) -> str:
    domain, hugepages = spec.domain, spec.domain.memory.hugepages
    alignment = GI if hugepages and hugepages.page_size == "1Gi" else 2 * MI
    if spec.architecture not in (None, "amd64"):
        return f"Memory hotplug is not supported on {spec.architecture}"
    if domain.cpu.realtime is not None:
        return "Memory hotplug is not compatible with realtime VMs"
    if domain.cpu.numa is not None and domain.cpu.numa.guest_mapping_passthrough is not None:
        return "Memory hotplug is not compatible with guest mapping passthrough"
    if domain.launch_security is not None and domain.launch_security != LaunchSecurity():
        return "Memory hotplug is not compatible with encrypted VMs"
    if size < GI:
        return "guest memory must be at least 1Gi"
    if size % alignment:
        return f"guest memory must be {amounts.binary(alignment)} aligned"
    return ""


def volume_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """Operations that add and remove hotpluggable volumes of the instance as the template has them.

    Those for the guest's memory come and go with requests. The operations hold at the very version of the
    instance, and leave alone what stays.
    """
    if vmi.status.phase != "Running" or vmi.metadata.is_being_deleted:
        return []
    template = vm.spec.instance
    wanted = {volume.name: volume for volume in template.volumes if _follows_template(volume)}
    running = vmi.spec.volumes
    gone = [
        index
        for index, volume in enumerate(running)
        if _follows_template(volume) and wanted.get(volume.name) != volume
    ]
    drives = {disk.name for disk in vmi.spec.domain.devices.disks if disk.cdrom is not None}
    # A drive changes its medium at once; a disk with another claim comes once the first has left.
    present = {v.name for index, v in enumerate(running) if index not in gone or v.name not in drives}
    added = [volume for name, volume in wanted.items() if name not in present]
    kept = {volume.name for index, volume in enumerate(running) if index not in gone}
    if not gone and not added:
        return []
    names = kept | {volume.name for volume in added}
    disks = vmi.spec.domain.devices.disks
    unused = [i for i, disk in enumerate(disks) if disk.name not in names and disk.cdrom is None]
    present = {disk.name for index, disk in enumerate(disks) if index not in unused}
    missing = [disk for disk in template.domain.devices.disks if disk.name in names - present]
    return [
        *same_version(described(vmi)),
        *_list_operations("/spec/volumes", running, gone, added),
        *_list_operations("/spec/domain/devices/disks", disks, unused, missing),
    ]


def _follows_template(volume: Volume) -> bool:
    return is_hotpluggable(volume) and volume.memory_dump is None


def _list_operations(
    path: str, present: Sequence[msgspec.Struct], gone: Collection[int], added: Sequence[msgspec.Struct]
) -> list[JsonObject]:
    removals = [{"op": "remove", "path": f"{path}/{index}"} for index in sorted(gone, reverse=True)]
    values = [encode(item) for item in added]
    if not present:  # the list may be absent
        return [{"op": "add", "path": path, "value": values}] if values else []
    return [*removals, *({"op": "add", "path": f"{path}/-", "value": value} for value in values)]
