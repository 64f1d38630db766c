"""The next status of an instance, computed from the instance, its pods and the state of its volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from kubecore.objects.structs import encode
from kubecore.objects.times import now_rfc3339
from virtplane.api import labels
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigrationState
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster import conditions
from virtplane.compute import amounts, plugging
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import hotplug, networks, resizing, sockets, volumes
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.storage import StorageState

NODE_LABEL = labels.NODE_NAME
TARGET_NODE_LABEL = labels.MIGRATION_TARGET_NODE
OUTDATED_LABEL = labels.OUTDATED_LAUNCHER
FOREGROUND_FINALIZER = labels.FINALIZER_INSTANCE
LEGACY_FOREGROUND_FINALIZER = "foregroundDeleteVirtualMachine"
VM_FINALIZER = labels.FINALIZER_MACHINE
FINALIZERS = (FOREGROUND_FINALIZER, LEGACY_FOREGROUND_FINALIZER, VM_FINALIZER)
RECEIVER_ANNOTATION = labels.CREATE_MIGRATION_TARGET
FINAL_PHASES = ("Succeeded", "Failed")
UNPROCESSED_PHASES = ("", "Pending")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects besides the instance on which its status depends."""

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
    vsock_cid: int | None = None
    """The address that a guest with a VSOCK device gets when its pod runs."""
    room: resizing.Room = field(default_factory=dict)
    """What the conditions of changes of CPUs and memory say that wait for room in the pod."""


def phase_of(vmi: VirtualMachineInstance) -> str:
    """The phase, empty before the first."""
    return vmi.status.phase or ""


def is_final(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has ended."""
    return vmi.status.phase in FINAL_PHASES


def is_receiver(vmi: VirtualMachineInstance) -> bool:
    """Whether the instance waits for a guest that migrates from another cluster."""
    return vmi.metadata.annotations.get(RECEIVER_ANNOTATION) == "true"


def set_phase(status: JsonObject, phase: str) -> None:
    """Set the phase and its transition timestamp."""
    status["phase"] = phase
    transitions = status.setdefault("phaseTransitionTimestamps", [])
    if all(item.get("phase") != phase for item in transitions):
        transitions.append({"phase": phase, "phaseTransitionTimestamp": now_rfc3339()})


def next_state(vmi: VirtualMachineInstance, document: JsonObject, around: Surroundings) -> JsonObject:
    """The new state of the instance: status, node label, finalizers. `vmi` is decoded from `document`."""
    new = deep_copy(document)
    status = new.setdefault("status", {})
    known = status.setdefault("conditions", [])
    before = phase_of(vmi)
    _set_pods(vmi, status, around)
    phase = before
    if before in UNPROCESSED_PHASES:
        phase = _advance_unprocessed(vmi, known, around)
    elif before == "Scheduling":
        phase = _advance_scheduling(vmi, new, around)
    elif before in ("Scheduled", "Running"):
        phase = _watch_running(vmi, new, around)
    elif not around.pods and (before in FINAL_PHASES or _is_abandoned(vmi)):
        _release(new, around)
    if phase != before or phase == "Pending":
        set_phase(status, phase)
    conditions.put(known, ready_condition(phase, around.pod))
    _set_synchronized(known, phase, vmi, around)
    _set_eviction(known, vmi)
    if phase == "Running":
        _set_hotplug_conditions(known, vmi, around.room)
    if not known:
        del status["conditions"]
    return new


def _set_pods(vmi: VirtualMachineInstance, status: JsonObject, around: Surroundings) -> None:
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
    overhead = amounts.whole(meta.annotations(pod).get(labels.MEMORY_OVERHEAD_BYTES, ""))
    if overhead and vmi.status.memory is not None:
        status["memory"]["memoryOverhead"] = amounts.binary(overhead)


def _advance_unprocessed(vmi: VirtualMachineInstance, known: list[JsonObject], around: Surroundings) -> str:
    _set_data_volumes_ready(known, around.storage)
    temporary = [pod for pod in around.pods if pods.is_temporary(pod)]
    if around.pod is not None:
        conditions.drop(known, "Provisioning")
        return "Scheduling"
    if vmi.metadata.is_being_deleted or around.storage.failed_data_volume:
        return "Failed"
    if is_receiver(vmi) and TARGET_NODE_LABEL not in vmi.metadata.labels:
        return "WaitingForSync"
    if any(get_str(pod, "status", "phase") == "Failed" for pod in temporary):
        return "Failed"
    if around.storage.waits_for_consumer and not around.storage.missing_claim:
        conditions.put(known, conditions.new_condition("Provisioning", "True"))
    else:
        conditions.drop(known, "Provisioning")
    return "Pending"


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


def _advance_scheduling(vmi: VirtualMachineInstance, new: JsonObject, around: Surroundings) -> str:
    pod = around.pod
    known = new["status"]["conditions"]
    if pod is None or pods.is_down(pod):
        return "WaitingForSync" if is_receiver(vmi) else "Failed"
    scheduled = meta.get_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        copied = {"lastProbeTime": None, "lastTransitionTime": None, **scheduled}
        copied.pop("observedGeneration", None)
        conditions.put(known, copied)
    else:
        conditions.drop(known, "PodScheduled")
    if not pods.is_ready(pod) or not pods.node_of(pod):
        return "Scheduling"
    if sockets.needs_cid(vmi) and around.vsock_cid is None:
        return "Scheduling"
    _enter_node(vmi, new, pod, around)
    return "Scheduled"


def _enter_node(vmi: VirtualMachineInstance, new: JsonObject, pod: JsonObject, around: Surroundings) -> None:
    status = new["status"]
    node = pods.node_of(pod)
    meta.set_label(new, NODE_LABEL, node)
    status["nodeName"] = node
    status["migrationTransport"] = "Unix"
    if around.vsock_cid is not None and sockets.needs_cid(vmi):
        status["VSOCKCID"] = around.vsock_cid
    entries = volumes.volume_status(vmi, around.claims, around.cdi_config)
    if entries:
        status["volumeStatus"] = [encode(entry) for entry in entries]
    interfaces = networks.interface_status(vmi, pod)
    if interfaces:
        status["interfaces"] = [encode(interface) for interface in interfaces]


def _watch_running(vmi: VirtualMachineInstance, new: JsonObject, around: Surroundings) -> str:
    """While the guest runs, virt-handler owns the phase, unless the pod is gone."""
    status = new["status"]
    entries = volumes.volume_status(vmi, around.claims, around.cdi_config)
    attachments = [pod for pod in around.pods if pods.is_attachment(pod)]
    entries = hotplug.with_attachment(entries, vmi, attachments, around.claims)
    if entries:
        status["volumeStatus"] = [encode(entry) for entry in entries]
    else:
        status.pop("volumeStatus", None)
    if around.pod is not None:
        image = pods.compute_image(around.pod)
        is_outdated = bool(around.launcher_image) and image != around.launcher_image
        meta.set_label(new, OUTDATED_LABEL, "" if is_outdated else None)
        if vmi.status.interfaces or vmi.spec.networks:
            status["interfaces"] = [encode(item) for item in networks.interface_status(vmi, around.pod)]
        return phase_of(vmi)
    state = vmi.status.migration_state or VirtualMachineInstanceMigrationState()
    has_left = state.completed and state.target_state is not None and state.target_state.sync_address
    if vmi.status.phase == "Running" and has_left:
        return "Succeeded"
    if not is_receiver(vmi):
        return "Failed"
    ended = replace(state, failed=True, completed=True, end_timestamp=now_rfc3339())
    status["migrationState"] = encode(ended)
    return "WaitingForSync"


def _is_abandoned(vmi: VirtualMachineInstance) -> bool:
    """Whether an instance that waits for a guest from another cluster is being deleted."""
    return vmi.status.phase == "WaitingForSync" and vmi.metadata.is_being_deleted


def _release(new: JsonObject, around: Surroundings) -> None:
    meta.remove_finalizer(new, FOREGROUND_FINALIZER)
    meta.remove_finalizer(new, LEGACY_FOREGROUND_FINALIZER)
    if not around.has_owner_vm:
        meta.remove_finalizer(new, VM_FINALIZER)


def ready_condition(phase: str, pod: JsonObject | None) -> JsonObject:
    """The condition Ready of an instance in `phase`: the pod's condition once it runs, else why it is not
    ready.
    """
    if pod is None or pods.is_temporary(pod):
        text = "virt-launcher pod has not yet been scheduled"
        return conditions.new_condition("Ready", "False", "PodNotExists", text, probed=True)
    if meta.is_being_deleted(pod):
        text = "virt-launcher pod is terminating"
        return conditions.new_condition("Ready", "False", "PodTerminating", text, probed=True)
    if phase != "Running":
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


def _set_synchronized(
    known: list[JsonObject], phase: str, vmi: VirtualMachineInstance, around: Surroundings
) -> None:
    if phase in ("Scheduled", "Running", *FINAL_PHASES) and around.error is None:
        return  # virt-handler's condition
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


def _pod_error(pod: JsonObject | None, vmi: VirtualMachineInstance) -> SyncError | None:
    if pod is None:
        return None
    failure = pods.image_failure(pod)
    if failure is not None:
        return SyncError(*failure)
    is_dedicated = vmi.spec.domain.cpu.dedicated_cpu_placement
    if is_dedicated and get_str(pod, "status", "qosClass") not in ("", "Guaranteed"):
        return SyncError("FailedGuaranteeResources", "failed to guarantee pod resources")
    return None


def _set_eviction(known: list[JsonObject], vmi: VirtualMachineInstance) -> None:
    if vmi.status.evacuation_node_name:
        text = "VMI is marked for eviction"
        conditions.put(
            known,
            conditions.new_condition("EvictionRequested", "True", "EvictionRequested", text, probed=True),
        )
    else:
        conditions.drop(known, "EvictionRequested")


def _set_hotplug_conditions(
    known: list[JsonObject], vmi: VirtualMachineInstance, room: resizing.Room
) -> None:
    """Set the conditions for CPU or memory hotplug of a running guest; virt-handler removes them when
    done.
    """
    for kind, changes in (
        (plugging.CPU_CHANGE, resizing.changes_cpu(vmi)),
        (plugging.MEMORY_CHANGE, resizing.changes_memory(vmi)),
    ):
        has_failed = conditions.has_status(known, kind, "False")
        if changes and not has_failed:
            reason, message = room.get(kind, ("", ""))
            conditions.put(known, conditions.new_condition(kind, "True", reason, message, dated=False))
