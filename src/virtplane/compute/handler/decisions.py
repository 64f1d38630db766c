"""The next action for an instance, from the observed state. Pure.

The phases that virt-handler owns begin with Scheduled; earlier ones belong to virt-controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from virtplane.api import labels
from virtplane.api.kubevirt_v1.features import is_on
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import kind_of
from virtplane.compute.handler.libvirtd.calls import DomainState

_POD_UID = re.compile(r"[0-9a-zA-Z-]{1,64}", re.ASCII)
"""It becomes part of a path."""

FINAL_PHASES = ("Succeeded", "Failed")
SHUTDOWN_REPEAT_SECONDS = 5.0
"""A guest that ignores the power button is reminded this often, until its grace period has passed."""

NOT_MIGRATABLE = "NotMigratable"
NO_LIVE_MIGRATION = "cannot migrate VMI: this version has no live migration"
"""The verdict on instances that nothing of their own hinders, until nodes can move guests."""

_DEFINED = DomainState("Shutoff", "Unknown")
"""A domain that was defined but not started: virt-handler ended, or lost libvirt, in between."""


class Action(Enum):
    """The next action of a reconcile."""

    NOTHING = "nothing"
    WAIT = "wait for the launcher"
    START = "prepare and start the domain"
    SHUT_DOWN = "press the power button"
    DESTROY = "cut the power"
    RELEASE = "let the launcher end"


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of one instance on this node."""

    launcher_ready: bool
    launcher_gone: bool
    domain: DomainState | None
    shutdown_started: datetime | None = None
    """When the power button was first pressed."""

    terminating: bool = False
    """The launcher was told to end: somebody deletes its pod, or drains or stops the node."""

    domain_known: bool = True
    """Whether `domain` is as it is now; False while libvirt cannot be reached, with what was seen last."""


def is_final(vmi: VirtualMachineInstance) -> bool:
    """True once the instance has ended."""
    return vmi.status.phase in FINAL_PHASES


def grace_seconds(vmi: VirtualMachineInstance) -> int:
    """The seconds that the guest has to power off."""
    grace = vmi.spec.termination_grace_period_seconds
    return 30 if grace is None else grace


def has_acpi(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has ACPI, so that it reacts to the power button."""
    acpi = vmi.spec.domain.features.acpi
    return acpi is None or acpi.is_on


def is_leaving(vmi: VirtualMachineInstance, seen: Observation) -> bool:
    """Whether the instance or its pod is being deleted."""
    return vmi.metadata.is_being_deleted or seen.terminating


def next_action(vmi: VirtualMachineInstance, seen: Observation, now: datetime) -> Action:
    """The next action towards the state that the instance describes."""
    if seen.launcher_gone:
        return Action.NOTHING
    if is_final(vmi):
        return Action.RELEASE if seen.launcher_ready else Action.NOTHING
    if not seen.launcher_ready or not seen.domain_known:
        # A guest may run although its libvirt does not answer; the launcher ends it together with the pod.
        return Action.WAIT
    is_scheduled = vmi.status.phase == "Scheduled"
    domain = None if is_scheduled and seen.domain == _DEFINED else seen.domain
    if domain is not None and not domain.is_active:
        return Action.NOTHING
    if is_leaving(vmi, seen):
        return Action.RELEASE if domain is None else _stop(vmi, seen, now)
    if domain is None and is_scheduled:
        return Action.START
    return Action.NOTHING


def _stop(vmi: VirtualMachineInstance, seen: Observation, now: datetime) -> Action:
    grace = grace_seconds(vmi)
    if grace == 0 or not has_acpi(vmi):
        return Action.DESTROY
    if seen.shutdown_started is None:
        return Action.SHUT_DOWN
    passed = (now - seen.shutdown_started).total_seconds()
    return Action.DESTROY if passed >= grace else Action.SHUT_DOWN


def next_phase(vmi: VirtualMachineInstance, seen: Observation) -> str:
    """The phase for the domain's state."""
    phase = vmi.status.phase or ""
    if phase in FINAL_PHASES:
        return phase
    if seen.domain is None:
        return "Failed" if seen.launcher_gone and phase in ("Scheduled", "Running") else phase
    if not seen.domain.is_active:
        return _ended_phase(vmi, seen, phase)
    if seen.launcher_gone or seen.domain == DomainState("Paused", "PostcopyFailed"):
        return "Failed"
    return "Running"


def _ended_phase(vmi: VirtualMachineInstance, seen: Observation, phase: str) -> str:
    assert seen.domain is not None
    reason = seen.domain.reason
    if seen.domain.status == "Crashed" or reason in ("Crashed", "Panicked", "Failed"):
        return "Failed"
    if reason == "Destroyed":
        killed = has_acpi(vmi) and grace_seconds(vmi) != 0
        return "Failed" if killed else "Succeeded"
    if reason in ("Shutdown", "Saved", "FromSnapshot"):
        return "Succeeded"
    if reason == "Unknown" and (seen.launcher_gone or phase != "Scheduled"):
        # The guest has run, but libvirt does not know how it ended, as when the daemon ended with the guest.
        return "Failed"
    return phase


def pod_on_node(vmi: VirtualMachineInstance, node_name: str) -> str:
    """The UID of the instance's launcher pod on this node, or the empty string.

    The status can be trusted: only components can write it (admission reverts other writes), and
    virt-controller lists the pods that it created there; see docs/decisions/014.
    """
    pods = sorted(vmi.status.active_pods.items())
    found = (uid for uid, node in pods if node == node_name and _POD_UID.fullmatch(uid))
    return next(found, "")


def belongs_to_node(vmi: VirtualMachineInstance, node_name: str) -> bool:
    """Whether an instance is assigned to this node."""
    return node_name in (vmi.metadata.labels.get(labels.NODE_NAME), vmi.status.node_name)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a guest cannot move to another node."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Migratability:
    """Whether the instance can move to another node, and if not, why."""

    method: str
    obstacles: tuple[Obstacle, ...] = ()
    """Those of the instance itself: neither it nor its volumes can move."""
    others: tuple[Obstacle, ...] = ()
    """Those of its disks and of the nodes."""

    @property
    def possible(self) -> bool:
        """Whether nothing is in the way."""
        return not self.obstacles and not self.others

    @property
    def reason(self) -> str:
        """That of the first obstacle; empty without one."""
        return self._first.reason

    @property
    def message(self) -> str:
        """The first obstacle in words; empty without one."""
        return self._first.message

    @property
    def _first(self) -> Obstacle:
        return next(iter((*self.obstacles, *self.others)), Obstacle("", ""))


def migratability(vmi: VirtualMachineInstance, *, emulation: bool) -> Migratability:
    """What keeps a guest on its node, in KubeVirt's order: network bindings, devices, CPU and memory, disks;
    last that no node supports migration yet.

    Obstacles in the instance come first, because its owner can remove them.
    """
    method = "BlockMigration" if _has_local_disk(vmi) else "LiveMigration"
    others = (*_of_disks(vmi), Obstacle(NOT_MIGRATABLE, NO_LIVE_MIGRATION))
    return Migratability(method, tuple(_of_instance(vmi)), others)


def _of_instance(vmi: VirtualMachineInstance) -> Iterator[Obstacle]:
    domain, devices = vmi.spec.domain, vmi.spec.domain.devices
    networks = {network.name for network in vmi.spec.networks if network.pod is not None}
    if any(each.name in networks and not _can_move(vmi, each) for each in devices.interfaces):
        text = "cannot migrate VMI which does not use masquerade, bridge with kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin to connect to the pod network"  # noqa: E501 - one string
        yield Obstacle("InterfaceNotLiveMigratable", text)
    if devices.host_devices or devices.gpus:
        yield Obstacle("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices")
    security = domain.launch_security
    if security is not None and (security.sev is not None or security.snp is not None):
        yield Obstacle("SEVNotLiveMigratable", "VMI uses SEV")
    elif security is not None and security.tdx is not None:
        yield Obstacle("TDXNotLiveMigratable", "VMI uses TDX")
    elif security is not None and vmi.spec.architecture == "s390x":
        yield Obstacle("SecureExecutionNotLiveMigratable", "VMI uses Secure Execution")
    if any(disk.lun is not None and disk.lun.reservation for disk in devices.disks):
        text = "VMI uses SCSI persistent reservation"
        yield Obstacle("PersistentReservationNotLiveMigratable", text)
    hyperv, hints = domain.features.hyperv, vmi.status.topology_hints
    if hyperv is not None and is_on(hyperv.reenlightenment) and not (hints and hints.tsc_frequency):
        text = "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed on the cluster: guest timers might be inconsistent"  # noqa: E501 - one string
        yield Obstacle("NoTSCFrequencyNotLiveMigratable", text)
    if is_on(domain.features.hyperv_passthrough):
        yield Obstacle("HypervPassthroughNotLiveMigratable", "VMI uses hyperv passthrough")


def _of_disks(vmi: VirtualMachineInstance) -> Iterator[Obstacle]:
    reason = "DisksNotLiveMigratable"
    if any(each.host_disk is not None and not each.host_disk.shared for each in vmi.spec.volumes):
        yield Obstacle(reason, "cannot migrate VMI with non-shared HostDisk")
    for status in vmi.status.volume_status:
        claim = status.persistent_volume_claim_info
        if claim is not None and "ReadWriteMany" not in claim.access_modes:
            name = claim.claim_name or status.name
            text = f"cannot migrate VMI: PVC {name} is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"  # noqa: E501 - one string
            yield Obstacle(reason, text)


def _can_move(vmi: VirtualMachineInstance, interface: Interface) -> bool:
    """Whether an interface on the pod network keeps working on another node, where the pod has another
    address.
    """
    if interface.bridge is not None:
        return labels.ALLOW_BRIDGE_MIGRATION in vmi.metadata.annotations
    return interface.masquerade is not None or interface.passt_binding is not None


def _has_local_disk(vmi: VirtualMachineInstance) -> bool:
    kinds = (kind_of(volume) for volume in vmi.spec.volumes)
    return any(kind is None or not kind.is_shared for kind in kinds)
