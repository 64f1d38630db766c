"""Changes of a VM's template that are handed to its running instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.patch.guarded import replacing
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.cluster import conditions
from virtplane.compute import amounts
from virtplane.compute.amounts import GI, MI
from virtplane.compute.controller.vm.status import SyncError
from virtplane.compute.hotplug import is_hotpluggable

_SCHEDULING_FIELDS = ("nodeSelector", "affinity")


@dataclass(slots=True)
class Update:
    """JSON patch operations for the instance, or why there can be none."""

    operations: list[JsonObject] = field(default_factory=list)
    restart_message: str = ""
    error: SyncError | None = None


def live_update(vm: JsonObject, vmi: JsonObject, *, cpu_allocation_ratio: int) -> Update:
    """What the instance must be told now: CPU, memory and scheduling changes of the template."""
    if get_str(vmi, "status", "phase") != "Running" or meta.is_being_deleted(vmi):
        return Update()
    update = Update()
    for step in (_cpu, _scheduling, _memory):
        step(vm, vmi, update, cpu_allocation_ratio)
        if update.error is not None or update.restart_message:
            break
    return update


def _is_migrating(vmi: JsonObject) -> bool:
    state = get_object(vmi, "status", "migrationState")
    return bool(state.get("startTimestamp")) and not state.get("endTimestamp")


def _replace(update: Update, vmi: JsonObject, path: tuple[str, ...], value: object) -> None:
    before = get_object(vmi, *path[:-1]).get(path[-1])
    update.operations.append(replacing(update.operations, "/" + "/".join(path), before, value))


def _cpu(vm: JsonObject, vmi: JsonObject, update: Update, ratio: int) -> None:
    wanted = get_object(vm, "spec", "template", "spec", "domain", "cpu")
    running = get_object(vmi, "spec", "domain", "cpu")
    sockets, current = get_int(wanted, "sockets"), get_int(running, "sockets")
    if not sockets or not current or sockets == current:
        return
    if get_str(vmi, "spec", "architecture") == "arm64":
        update.restart_message = "ARM doesn't support CPU hotplug"
    elif get_int(running, "maxSockets") and sockets > get_int(running, "maxSockets"):
        update.restart_message = (
            "CPU sockets updated in template spec to a value higher than what's available"
        )
    elif sockets < current:
        update.restart_message = "Reduction of CPU socket count requires a restart"
    elif _has(vmi, "HotVCPUChange"):
        update.error = _cpu_error("another CPU hotplug is in progress")
    elif _is_migrating(vmi):
        update.error = _cpu_error("CPU hotplug is not allowed while VMI is migrating")
    elif not _has(vmi, "LiveMigratable"):
        # Sockets are plugged in by a migration; without one the instance would claim sockets it never gets.
        text = "CPU sockets updated in template spec. CPU-hotplug is only available for migratable VMs"
        update.restart_message = text
    else:
        _replace(update, vmi, ("spec", "domain", "cpu", "sockets"), sockets)
        threads = (get_int(running, "cores") or 1) * (get_int(running, "threads") or 1)
        _raise_cpu(vm, vmi, update, (sockets - current) * threads * 1000 // ratio)


def _raise_cpu(vm: JsonObject, vmi: JsonObject, update: Update, milli: int) -> None:
    for kind in ("requests", "limits"):
        asked = get_object(vm, "spec", "template", "spec", "domain", "resources", kind)
        running = get_object(vmi, "spec", "domain", "resources", kind)
        if "cpu" in asked and "cpu" in running:
            raised = amounts.cpus(amounts.to_milli(running["cpu"]) + milli)
            _replace(update, vmi, ("spec", "domain", "resources", kind, "cpu"), raised)


def _cpu_error(text: str) -> SyncError:
    return SyncError("HotPlugCPUError", f"Error encountered while handling CPU change request: {text}")


def _has(vmi: JsonObject, condition: str) -> bool:
    return conditions.has_status(meta.conditions(vmi), condition, "True")


def _scheduling(vm: JsonObject, vmi: JsonObject, update: Update, ratio: int) -> None:
    del ratio
    template = get_object(vm, "spec", "template", "spec")
    for key, reason, what in (
        ("nodeSelector", "AffinityChangeError", "node affinity change"),
        ("affinity", "AffinityChangeError", "node affinity change"),
        ("tolerations", "TolerationsChangeError", "tolerations change"),
    ):
        wanted, running = template.get(key) or None, get_object(vmi, "spec").get(key) or None
        if wanted == running:
            continue
        if _is_migrating(vmi):
            text = (
                f"Error encountered while handling {what} request: {what} is not allowed during VMI migration"
            )
            update.error = SyncError(reason, text)
            return
        if wanted is None:
            update.operations.append({"op": "test", "path": f"/spec/{key}", "value": running})
            update.operations.append({"op": "remove", "path": f"/spec/{key}"})
        else:
            _replace(update, vmi, ("spec", key), wanted)


def _memory(vm: JsonObject, vmi: JsonObject, update: Update, ratio: int) -> None:
    del ratio
    wanted = get_object(vm, "spec", "template", "spec", "domain", "memory").get("guest")
    memory = get_object(vmi, "spec", "domain", "memory")
    if wanted is None or memory.get("guest") is None:
        return
    size = amounts.to_bytes(wanted)
    if size == amounts.to_bytes(memory["guest"]):
        return
    obstacle = memory_obstacle(vmi, size)
    if obstacle:
        update.restart_message = obstacle
    elif _has(vmi, "HotMemoryChange"):
        update.error = _memory_error("another memory hotplug is in progress")
    elif _is_migrating(vmi):
        update.error = _memory_error("memory hotplug is not allowed while VMI is migrating")
    else:
        _replace(update, vmi, ("spec", "domain", "memory", "guest"), wanted)
        _raise_memory(vmi, update, size)


def _raise_memory(vmi: JsonObject, update: Update, size: int) -> None:
    current = amounts.to_bytes(get_object(vmi, "status", "memory").get("guestCurrent"))
    for kind in ("requests", "limits"):
        running = get_object(vmi, "spec", "domain", "resources", kind)
        if "memory" in running:
            raised = amounts.to_bytes(running["memory"]) + size - current
            value = amounts.like(raised, running["memory"])
            _replace(update, vmi, ("spec", "domain", "resources", kind, "memory"), value)


def _memory_error(text: str) -> SyncError:
    return SyncError("HotPlugMemoryError", f"Error encountered while handling memory change request: {text}")


def memory_obstacle(vmi: JsonObject, size: int) -> str:
    """Why a running guest cannot be given `size` bytes of memory; empty when it can."""
    start = "memory updated in template spec"
    memory = get_object(vmi, "spec", "domain", "memory")
    status = get_object(vmi, "status", "memory")
    if conditions.has_status(meta.conditions(vmi), "HotMemoryChange", "False"):
        return f"{start}. Memory-hotplug failed and is not available for this VM configuration"
    if not _has(vmi, "LiveMigratable"):
        return f"{start}. Memory-hotplug is only available for migratable VMs"
    if memory.get("maxGuest") is None or not status:
        return f"{start}. Memory-hotplug is not available for this VM configuration"
    unsupported = _hotplug_unsupported(vmi, size)
    if unsupported:
        return f"memory hotplug not supported, {unsupported}"
    if size < amounts.to_bytes(status.get("guestAtBoot")):
        return f"{start} to a value lower than what the VM started with"
    if size > amounts.to_bytes(memory["maxGuest"]):
        return f"{start} to a value higher than what's available"
    return ""


def _hotplug_unsupported(vmi: JsonObject, size: int) -> str:
    domain = get_object(vmi, "spec", "domain")
    alignment = GI if get_str(domain, "memory", "hugepages", "pageSize") == "1Gi" else 2 * MI
    if get_str(vmi, "spec", "architecture", default="amd64") != "amd64":
        return f"Memory hotplug is not supported on {get_str(vmi, 'spec', 'architecture')}"
    if isinstance(get_object(domain, "cpu").get("realtime"), dict):
        return "Memory hotplug is not compatible with realtime VMs"
    if isinstance(get_object(domain, "cpu", "numa").get("guestMappingPassthrough"), dict):
        return "Memory hotplug is not compatible with guest mapping passthrough"
    if get_object(domain, "launchSecurity"):
        return "Memory hotplug is not compatible with encrypted VMs"
    if size < GI:
        return "guest memory must be at least 1Gi"
    if size % alignment:
        return f"guest memory must be {amounts.binary(alignment)} aligned"
    return ""


def follows_scheduling(vm: JsonObject, vmi: JsonObject) -> bool:
    """Whether node selector, affinity and tolerations of the instance are the template's."""
    template, running = get_object(vm, "spec", "template", "spec"), get_object(vmi, "spec")
    return all(
        (template.get(key) or None) == (running.get(key) or None)
        for key in (*_SCHEDULING_FIELDS, "tolerations")
    )


def volume_operations(vm: JsonObject, vmi: JsonObject) -> list[JsonObject]:
    """Operations that add and remove hotpluggable volumes of the instance as the template has them."""
    if get_str(vmi, "status", "phase") != "Running" or meta.is_being_deleted(vmi):
        return []
    spec = get_object(vm, "spec", "template", "spec")
    wanted = {
        get_str(item, "name"): item
        for item in get_list(spec, "volumes")
        if is_hotpluggable(decode(Volume, item))
    }
    running = get_list(vmi, "spec", "volumes")
    kept = [
        item
        for item in running
        if not is_hotpluggable(decode(Volume, item)) or wanted.get(get_str(item, "name")) == item
    ]
    added = [item for name, item in wanted.items() if name not in {get_str(v, "name") for v in kept}]
    volumes = [*kept, *added]
    if volumes == running:
        return []
    update = Update()
    disks = _disks(get_list(spec, "domain", "devices", "disks"), vmi, volumes)
    _replace(update, vmi, ("spec", "volumes"), volumes)
    _replace(update, vmi, ("spec", "domain", "devices", "disks"), disks)
    return update.operations


def _disks(template: list[JsonObject], vmi: JsonObject, volumes: list[JsonObject]) -> list[JsonObject]:
    names = {get_str(item, "name") for item in volumes}
    running = get_list(vmi, "spec", "domain", "devices", "disks")
    kept = [item for item in running if item.get("name") in names or "cdrom" in item]
    present = {get_str(item, "name") for item in kept}
    return [*kept, *(item for item in template if item.get("name") in names - present)]
