"""The next status of an instance, decided from it, its pods and the state of its volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from kubecore.json import JsonObject, deep_copy, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from virtplane.api import labels
from virtplane.cluster import conditions
from virtplane.compute import amounts
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import hotplug, volumes
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.storage import StorageState
from virtplane.compute.launcherpod import network

NODE_LABEL = labels.NODE_NAME
TARGET_NODE_LABEL = labels.MIGRATION_TARGET_NODE
OUTDATED_LABEL = labels.OUTDATED_LAUNCHER
FOREGROUND_FINALIZER = labels.FINALIZER_INSTANCE
LEGACY_FOREGROUND_FINALIZER = "foregroundDeleteVirtualMachine"
VM_FINALIZER = labels.FINALIZER_MACHINE
RECEIVER_ANNOTATION = labels.CREATE_MIGRATION_TARGET
FINAL_PHASES = ("Succeeded", "Failed")
UNPROCESSED_PHASES = ("", "Pending")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything beside the instance itself that its status depends on."""

    pod: JsonObject | None
    """The launcher that runs, or is to run, the guest."""
    pods: tuple[JsonObject, ...] = ()
    """All pods of the instance."""
    storage: StorageState = field(default_factory=StorageState)
    claims: Mapping[str, JsonObject] = field(default_factory=dict)
    cdi_config: JsonObject | None = None
    launcher_image: str = ""
    error: SyncError | None = None
    has_owner_vm: bool = False


def phase_of(vmi: JsonObject) -> str:
    """The phase, empty before the first."""
    return get_str(vmi, "status", "phase")


def is_final(vmi: JsonObject) -> bool:
    """Whether the guest has ended."""
    return phase_of(vmi) in FINAL_PHASES


def is_receiver(vmi: JsonObject) -> bool:
    """Whether the instance waits for a guest from another cluster."""
    return meta.annotations(vmi).get(RECEIVER_ANNOTATION) == "true"


def set_phase(vmi: JsonObject, phase: str) -> None:
    """Enters a phase, remembering when it was entered first."""
    status = vmi.setdefault("status", {})
    status["phase"] = phase
    transitions = status.setdefault("phaseTransitionTimestamps", [])
    if all(item.get("phase") != phase for item in transitions):
        transitions.append({"phase": phase, "phaseTransitionTimestamp": now_rfc3339()})


def next_state(vmi: JsonObject, around: Surroundings) -> JsonObject:
    """The instance as it should be stored: status, node label and finalizers."""
    new = deep_copy(vmi)
    status = new.setdefault("status", {})
    known = status.setdefault("conditions", [])
    phase = phase_of(new)
    _set_pods(status, around)
    if phase in UNPROCESSED_PHASES:
        _advance_unprocessed(new, around)
    elif phase == "Scheduling":
        _advance_scheduling(new, around)
    elif phase in ("Scheduled", "Running"):
        _watch_running(new, around)
    elif not around.pods and (phase in FINAL_PHASES or _is_abandoned(new)):
        _release(new, around)
    _set_ready(known, new, around.pod)
    _set_synchronized(known, new, around)
    _set_eviction(known, status)
    _set_hotplug_conditions(known, status, new)
    if not known:
        del status["conditions"]
    return new


def _set_pods(status: JsonObject, around: Surroundings) -> None:
    launchers = [pod for pod in around.pods if not pods.is_temporary(pod) and not pods.is_attachment(pod)]
    active = {meta.uid(pod): pods.node_of(pod) for pod in launchers if not pods.is_finished(pod)}
    if active:
        status["activePods"] = active
    else:
        status.pop("activePods", None)
    pod = around.pod
    if pod is None:
        return
    status["launcherContainerImageVersion"] = pods.compute_image(pod)
    quality = get_str(pod, "status", "qosClass")
    if quality:
        status["qosClass"] = quality
    overhead = meta.annotations(pod).get(labels.MEMORY_OVERHEAD_BYTES)
    if overhead and "memory" in status:
        status["memory"]["memoryOverhead"] = amounts.binary(int(overhead))


def _advance_unprocessed(vmi: JsonObject, around: Surroundings) -> None:
    known = vmi["status"]["conditions"]
    _set_data_volumes_ready(known, around.storage)
    temporary = [pod for pod in around.pods if pods.is_temporary(pod)]
    if around.pod is not None:
        conditions.drop(known, "Provisioning")
        set_phase(vmi, "Scheduling")
    elif meta.is_being_deleted(vmi) or around.storage.failed_data_volume:
        set_phase(vmi, "Failed")
    elif is_receiver(vmi) and TARGET_NODE_LABEL not in meta.labels(vmi):
        set_phase(vmi, "WaitingForSync")
    elif any(get_str(pod, "status", "phase") == "Failed" for pod in temporary):
        set_phase(vmi, "Failed")
    else:
        set_phase(vmi, "Pending")
        if around.storage.waits_for_consumer and not around.storage.missing_claim:
            conditions.put(known, conditions.new_condition("Provisioning", "True"))
        else:
            conditions.drop(known, "Provisioning")


def _set_data_volumes_ready(known: list[JsonObject], storage: StorageState) -> None:
    if not storage.data_volumes:
        return
    if storage.all_bound:
        text = "All of the VMI's DVs are bound and ready"
        condition = conditions.new_condition("DataVolumesReady", "True", "AllDVsReady", text, dated=False)
    else:
        status = "False" if storage.unready else "Unknown"
        text = "Not all of the VMI's DVs are ready"
        condition = conditions.new_condition("DataVolumesReady", status, "NotAllDVsReady", text, dated=False)
    conditions.put(known, condition)


def _advance_scheduling(vmi: JsonObject, around: Surroundings) -> None:
    pod = around.pod
    known = vmi["status"]["conditions"]
    if pod is None or pods.is_down(pod):
        set_phase(vmi, "WaitingForSync" if is_receiver(vmi) else "Failed")
        return
    scheduled = meta.get_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        copied = {"lastProbeTime": None, "lastTransitionTime": None, **scheduled}
        copied.pop("observedGeneration", None)
        conditions.put(known, copied)
    else:
        conditions.drop(known, "PodScheduled")
    if pods.is_ready(pod) and pods.node_of(pod):
        _enter_scheduled(vmi, pod, around)


def _enter_scheduled(vmi: JsonObject, pod: JsonObject, around: Surroundings) -> None:
    status = vmi["status"]
    node = pods.node_of(pod)
    meta.set_label(vmi, NODE_LABEL, node)
    status["nodeName"] = node
    status["migrationTransport"] = "Unix"
    entries = volumes.volume_status(vmi, around.claims, around.cdi_config)
    if entries:
        status["volumeStatus"] = entries
    interfaces = interface_status(vmi, pod)
    if interfaces:
        status["interfaces"] = interfaces
    set_phase(vmi, "Scheduled")


def interface_status(vmi: JsonObject, pod: JsonObject) -> list[JsonObject]:
    """What the pod's annotations tell about the interfaces, over what is known already."""
    before = {get_str(item, "name"): dict(item) for item in get_list(vmi, "status", "interfaces")}
    attached = {
        get_str(item, "interface") for item in _network_status(pod) if item.get("default") is not True
    }
    networks = {get_str(item, "name"): item for item in get_list(vmi, "spec", "networks")}
    result: list[JsonObject] = []
    for interface in get_list(vmi, "spec", "domain", "devices", "interfaces"):
        name = get_str(interface, "name")
        multus = get_object(networks.get(name), "multus")
        is_primary = not multus or multus.get("default") is True
        pod_interface = "eth0" if is_primary else network.pod_interface_name(name)
        entry = before.pop(name, {"name": name})
        if is_primary or pod_interface in attached:
            entry.setdefault("podInterfaceName", pod_interface)
        if pod_interface in attached and "infoSource" not in entry:
            entry["infoSource"] = "multus-status"
        if len(entry) > 1:
            result.append(entry)
    return [*result, *before.values()]


def _network_status(pod: JsonObject) -> list[JsonObject]:
    text = meta.annotations(pod).get(network.NETWORK_STATUS_ANNOTATION, "")
    try:
        found = orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _watch_running(vmi: JsonObject, around: Surroundings) -> None:
    """The node agent owns the phase, unless its pod has gone."""
    status = vmi["status"]
    entries = volumes.volume_status(vmi, around.claims, around.cdi_config)
    attachments = [pod for pod in around.pods if pods.is_attachment(pod)]
    entries = hotplug.with_attachment(entries, vmi, attachments, around.claims)
    if entries:
        status["volumeStatus"] = entries
    else:
        status.pop("volumeStatus", None)
    if around.pod is not None:
        image = pods.compute_image(around.pod)
        is_outdated = bool(around.launcher_image) and image != around.launcher_image
        meta.set_label(vmi, OUTDATED_LABEL, "" if is_outdated else None)
        return
    migration = get_object(status, "migrationState")
    if (
        phase_of(vmi) == "Running"
        and migration.get("completed")
        and get_object(migration, "targetState").get("syncAddress")
    ):
        set_phase(vmi, "Succeeded")
    elif is_receiver(vmi):
        status["migrationState"] = {
            **migration,
            "failed": True,
            "completed": True,
            "endTimestamp": now_rfc3339(),
        }
        set_phase(vmi, "WaitingForSync")
    else:
        set_phase(vmi, "Failed")


def _is_abandoned(vmi: JsonObject) -> bool:
    """Whether the guest that an instance waited for is not wanted any more: nothing was started for it."""
    return phase_of(vmi) == "WaitingForSync" and meta.is_being_deleted(vmi)


def _release(vmi: JsonObject, around: Surroundings) -> None:
    meta.remove_finalizer(vmi, FOREGROUND_FINALIZER)
    meta.remove_finalizer(vmi, LEGACY_FOREGROUND_FINALIZER)
    if not around.has_owner_vm:
        meta.remove_finalizer(vmi, VM_FINALIZER)


def _set_ready(known: list[JsonObject], vmi: JsonObject, pod: JsonObject | None) -> None:
    conditions.put(known, ready_condition(vmi, pod))


def ready_condition(vmi: JsonObject, pod: JsonObject | None) -> JsonObject:
    """Whether the guest serves: as its pod says once it runs, else why not."""
    if pod is None or pods.is_temporary(pod):
        text = "virt-launcher pod has not yet been scheduled"
        return conditions.new_condition("Ready", "False", "PodNotExists", text, probed=True)
    if meta.is_being_deleted(pod):
        text = "virt-launcher pod is terminating"
        return conditions.new_condition("Ready", "False", "PodTerminating", text, probed=True)
    if phase_of(vmi) != "Running":
        text = "Guest VM is not reported as running"
        return conditions.new_condition("Ready", "False", "GuestNotRunning", text, probed=True)
    reported = meta.get_condition(pod, "Ready")
    if reported is None:
        text = "virt-launcher pod is missing the Ready condition"
        return conditions.new_condition("Ready", "False", "PodConditionMissing", text, probed=True)
    return conditions.new_condition(
        "Ready",
        get_str(reported, "status"),
        get_str(reported, "reason"),
        get_str(reported, "message"),
        probed=True,
    )


def _set_synchronized(known: list[JsonObject], vmi: JsonObject, around: Surroundings) -> None:
    if phase_of(vmi) in ("Scheduled", "Running", *FINAL_PHASES) and around.error is None:
        return  # the node agent's own condition
    error = around.error or _pod_error(around.pod, vmi)
    if error is None:
        conditions.drop(known, "Synchronized")
        return
    conditions.put(known, conditions.new_condition("Synchronized", "False", error.reason, error.message))
    if error.shows_unschedulable:
        unschedulable = conditions.new_condition(
            "PodScheduled", "False", "Unschedulable", error.message, dated=False
        )
        conditions.put(known, unschedulable)


def _pod_error(pod: JsonObject | None, vmi: JsonObject) -> SyncError | None:
    if pod is None:
        return None
    failure = pods.image_failure(pod)
    if failure is not None:
        return SyncError(*failure)
    is_dedicated = get_bool(vmi, "spec", "domain", "cpu", "dedicatedCpuPlacement")
    if is_dedicated and get_str(pod, "status", "qosClass") not in ("", "Guaranteed"):
        return SyncError("FailedGuaranteeResources", "failed to guarantee pod resources")
    return None


def _set_eviction(known: list[JsonObject], status: JsonObject) -> None:
    if get_str(status, "evacuationNodeName"):
        text = "VMI is marked for eviction"
        conditions.put(
            known,
            conditions.new_condition("EvictionRequested", "True", "EvictionRequested", text, probed=True),
        )
    else:
        conditions.drop(known, "EvictionRequested")


def _set_hotplug_conditions(known: list[JsonObject], status: JsonObject, vmi: JsonObject) -> None:
    """Marks that CPUs or memory of a running guest are to be changed; the node agent takes the marks away."""
    if phase_of(vmi) != "Running":
        return
    current = get_object(status, "currentCPUTopology")
    cpu = get_object(vmi, "spec", "domain", "cpu")
    if current.get("sockets") and cpu.get("sockets") and current["sockets"] != cpu["sockets"]:
        conditions.put(known, conditions.new_condition("HotVCPUChange", "True", dated=False))
    memory = get_object(status, "memory")
    guest = get_object(vmi, "spec", "domain", "memory").get("guest")
    requested = memory.get("guestRequested")
    if guest and requested and amounts.to_bytes(guest) != amounts.to_bytes(requested):
        conditions.put(known, conditions.new_condition("HotMemoryChange", "True", dated=False))
