"""What to do with an instance, decided from what is known. Pure.

The phases that virt-handler owns begin with Scheduled; earlier ones belong to virt-controller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from virtplane.api import labels as wellknown
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS
from virtplane.api.labels import ALLOW_BRIDGE_MIGRATION
from virtplane.compute.handler.libvirtcalls import DomainState

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
    """What a reconcile does next."""

    NOTHING = "nothing"
    WAIT = "wait for the launcher"
    START = "prepare and start the domain"
    SHUT_DOWN = "press the power button"
    DESTROY = "cut the power"
    RELEASE = "let the launcher end"


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of one instance on this node."""

    launcher_ready: bool
    launcher_gone: bool
    domain: DomainState | None
    shutdown_started: datetime | None = None
    """When the power button was first pressed."""

    terminating: bool = False
    """The launcher was told to end: somebody deletes its pod, or drains or stops the node."""

    domain_known: bool = True
    """Whether `domain` is as it is now; False while libvirt cannot be reached, with what was seen last."""


def is_final(vmi: JsonObject) -> bool:
    """True once the instance has ended."""
    return get_str(vmi, "status", "phase") in FINAL_PHASES


def grace_seconds(vmi: JsonObject) -> int:
    """How long the guest may take to power off."""
    return get_int(vmi, "spec", "terminationGracePeriodSeconds", default=30)


def has_acpi(vmi: JsonObject) -> bool:
    """True where the guest has a power button."""
    return get_bool(vmi, "spec", "domain", "features", "acpi", "enabled", default=True)


def is_leaving(vmi: JsonObject, seen: Observation) -> bool:
    """True once the instance or its pod is being deleted."""
    return "deletionTimestamp" in get_object(vmi, "metadata") or seen.terminating


def next_action(vmi: JsonObject, seen: Observation, now: datetime) -> Action:
    """The next step towards what the instance should be."""
    if seen.launcher_gone:
        return Action.NOTHING
    if is_final(vmi):
        return Action.RELEASE if seen.launcher_ready else Action.NOTHING
    if not seen.launcher_ready or not seen.domain_known:
        # A guest whose libvirt does not answer may still run; its launcher ends it with the pod.
        return Action.WAIT
    is_scheduled = get_str(vmi, "status", "phase") == "Scheduled"
    domain = None if is_scheduled and seen.domain == _DEFINED else seen.domain
    if domain is not None and not domain.is_active:
        return Action.NOTHING
    if is_leaving(vmi, seen):
        return Action.RELEASE if domain is None else _stop(vmi, seen, now)
    if domain is None and is_scheduled:
        return Action.START
    return Action.NOTHING


def _stop(vmi: JsonObject, seen: Observation, now: datetime) -> Action:
    grace = grace_seconds(vmi)
    if grace == 0 or not has_acpi(vmi):
        return Action.DESTROY
    if seen.shutdown_started is None:
        return Action.SHUT_DOWN
    passed = (now - seen.shutdown_started).total_seconds()
    return Action.DESTROY if passed >= grace else Action.SHUT_DOWN


def next_phase(vmi: JsonObject, seen: Observation) -> str:
    """The phase that follows from the domain's state."""
    phase = get_str(vmi, "status", "phase")
    if phase in FINAL_PHASES:
        return phase
    if seen.domain is None:
        return "Failed" if seen.launcher_gone and phase in ("Scheduled", "Running") else phase
    if not seen.domain.is_active:
        return _ended_phase(vmi, seen, phase)
    if seen.launcher_gone or seen.domain == DomainState("Paused", "PostcopyFailed"):
        return "Failed"
    return "Running"


def _ended_phase(vmi: JsonObject, seen: Observation, phase: str) -> str:
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
        # It did run: libvirt has forgotten how it ended, as when its daemon ended with the guest.
        return "Failed"
    return phase


def pod_on_node(vmi: JsonObject, node_name: str) -> str:
    """The UID of the instance's launcher pod on this node, or the empty string.

    Only components write the status of instances (admission undoes what others write), and virt-controller
    lists there the pods that it made; see docs/decisions/014.
    """
    pods = get_object(vmi, "status", "activePods")
    found = (uid for uid, node in sorted(pods.items()) if node == node_name and _POD_UID.fullmatch(uid))
    return next(found, "")


def belongs_to_node(vmi: JsonObject, node_name: str) -> bool:
    """True for an instance that was placed on this node."""
    labels = get_object(vmi, "metadata", "labels")
    return node_name in (labels.get(wellknown.NODE_NAME), get_str(vmi, "status", "nodeName"))


@dataclass(frozen=True, slots=True)
class Migratability:
    """Whether the instance can move to another node, and if not, why."""

    possible: bool
    method: str
    reason: str = ""
    message: str = ""


def migratability(vmi: JsonObject, *, emulation: bool) -> Migratability:
    """The first hindrance wins: network binding, host devices, disks; then that no node moves guests yet.

    A hindrance of the instance itself comes first, because its owner can remove it.
    """
    method = "BlockMigration" if _has_local_disk(vmi) else "LiveMigration"
    networks = {get_str(network, "name") for network in get_list(vmi, "spec", "networks") if "pod" in network}
    for interface in get_list(vmi, "spec", "domain", "devices", "interfaces"):
        if get_str(interface, "name") in networks and not _can_move(vmi, interface):
            text = "cannot migrate VMI which does not use masquerade, bridge with kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin to connect to the pod network"  # noqa: E501 - one string
            return Migratability(False, method, "InterfaceNotLiveMigratable", text)
    devices = get_object(vmi, "spec", "domain", "devices")
    if get_list(devices, "hostDevices") or get_list(devices, "gpus"):
        return Migratability(False, method, "HostDeviceNotLiveMigratable", "VMI uses a PCI host devices")
    for volume in get_list(vmi, "spec", "volumes"):
        if "hostDisk" in volume and not get_bool(volume, "hostDisk", "shared"):
            return Migratability(
                False, method, "DisksNotLiveMigratable", "cannot migrate VMI with non-shared HostDisk"
            )
    for status in get_list(vmi, "status", "volumeStatus"):
        claim = get_object(status, "persistentVolumeClaimInfo")
        if claim and "ReadWriteMany" not in get_list(claim, "accessModes"):
            name = get_str(claim, "claimName") or get_str(status, "name")
            text = f"cannot migrate VMI: PVC {name} is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"  # noqa: E501 - one string
            return Migratability(False, method, "DisksNotLiveMigratable", text)
    return Migratability(False, method, NOT_MIGRATABLE, NO_LIVE_MIGRATION)


def _can_move(vmi: JsonObject, interface: JsonObject) -> bool:
    """Whether an interface on the pod network works on another node, where the pod's address is another."""
    if interface.get("bridge") is not None:
        return ALLOW_BRIDGE_MIGRATION in get_object(vmi, "metadata", "annotations")
    return interface.get("masquerade") is not None or interface.get("passtBinding") is not None


def _has_local_disk(vmi: JsonObject) -> bool:
    shared = {kind.name for kind in VOLUME_KINDS if kind.is_shared}
    return any(shared.isdisjoint(volume) for volume in get_list(vmi, "spec", "volumes"))
