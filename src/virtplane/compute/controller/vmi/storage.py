"""Checks whether the volumes of an instance are ready for its launcher pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject, get_list, get_str
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.cluster import persistentstate
from virtplane.compute.hotplug import hotplugged_volumes

READY_PHASES = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")
"""Phases of a DataVolume in which its claim can be used, or waits for a consumer."""
_WAITING_PHASES = ("WaitForFirstConsumer", "PendingPopulation")


@dataclass(frozen=True, slots=True)
class StorageState:
    """The obstacles that an instance's volumes are to its launcher pod."""

    missing_claim: str = ""
    """A claim that does not exist."""
    failed_data_volume: bool = False
    unready: bool = False
    """Some DataVolume is still being filled."""
    waits_for_consumer: bool = False
    """Some claim is bound only once a pod uses it, and must be filled before the guest may start."""
    data_volumes: tuple[str, ...] = ()
    all_bound: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether the launcher may be created."""
        return not (self.missing_claim or self.failed_data_volume or self.unready or self.waits_for_consumer)


def storage_state(
    vmi: VirtualMachineInstance, claims: Mapping[str, JsonObject], data_volumes: Mapping[str, JsonObject]
) -> StorageState:
    """Check the volumes of the launcher pod (hotplugged volumes have attachment pods)."""
    missing, failed, unready, waits, bound = "", False, False, False, True
    used: list[str] = []
    hotplugged = hotplugged_volumes(vmi)
    for volume in vmi.spec.volumes:
        name = claim_name(volume)
        if not name or volume.name in hotplugged:
            continue
        claim = claims.get(name)
        data_volume = data_volumes.get(name) or populating(claim, data_volumes)
        if data_volume is not None:
            used.append(name)
            phase = get_str(data_volume, "status", "phase")
            failed = failed or phase == "Failed"
            unready = unready or phase not in READY_PHASES
            waits = waits or (phase in _WAITING_PHASES and not _is_bound(claim))
        if claim is None:
            missing = missing or name
            bound = False
        else:
            bound = bound and _is_bound(claim)
    return StorageState(missing, failed, unready, waits, tuple(used), bound and not unready)


def populating(claim: JsonObject | None, data_volumes: Mapping[str, JsonObject]) -> JsonObject | None:
    """The DataVolume that populates a claim used directly."""
    for owner in get_list(claim, "metadata", "ownerReferences"):
        if owner.get("kind") == "DataVolume" and owner.get("controller"):
            return data_volumes.get(get_str(owner, "name"))
    return None


def _is_bound(claim: JsonObject | None) -> bool:
    return get_str(claim, "status", "phase") == "Bound"


def needs_state_claim(vmi: VirtualMachineInstance) -> bool:
    """Whether firmware variables, TPM state or changed block tracking of the guest must be persistent."""
    if persistentstate.is_needed(vmi.spec):
        return True
    tracking = vmi.status.changed_block_tracking
    return tracking is not None and tracking.state in ("Initializing", "Enabled")
