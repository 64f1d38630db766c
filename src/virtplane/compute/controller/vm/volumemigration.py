"""Moving the volumes of a running guest to other claims (``updateVolumesStrategy: Migration``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from kubecore.patch.guarded import same_version
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import condition_documents, described, patch
from virtplane.compute.controller.vm import reading
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.status import SyncError
from virtplane.compute.controller.vmi.volumes import claim_info
from virtplane.compute.hotplug import is_hotpluggable


@dataclass(frozen=True, slots=True)
class Change:
    """A volume whose claim the template changed."""

    volume: str
    source: str
    """The claim that the guest has."""
    destination: str
    """The claim that the template names."""


def changes(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[Change]:
    """Volumes whose claim differs."""
    wanted = {volume.name: claim_name(volume) for volume in vm.spec.instance.volumes if claim_name(volume)}
    return [
        Change(volume.name, claim, wanted[volume.name])
        for volume, claim in ((volume, claim_name(volume)) for volume in vmi.spec.volumes)
        if claim and wanted.get(volume.name, claim) != claim
    ]


def invalid_volumes(vmi: VirtualMachineInstance, names: Sequence[str]) -> list[str]:
    """Why the named volumes cannot be migrated, one text for each."""
    devices = vmi.spec.domain.devices
    shared = {filesystem.name for filesystem in devices.filesystems}
    disks = {disk.name: disk for disk in devices.disks}
    result = []
    for name in names:
        disk = disks.get(name)
        if name in shared:
            result.append(f"volume {name} is a filesystem")
        elif disk is not None and disk.shareable:
            result.append(f"volume {name} is shareable")
        elif disk is not None and disk.lun is not None:
            result.append(f"volume {name} is a LUN")
    return result


def left_behind(
    vmi: VirtualMachineInstance, moving: Sequence[str], claims: Mapping[str, PersistentVolumeClaim]
) -> list[str]:
    """Why other volumes than those `moving` prevent the migration: only one node can use their claims."""
    result = []
    for volume in vmi.spec.volumes:
        claim = claims.get(claim_name(volume))
        if claim is None or volume.name in moving or is_hotpluggable(volume):
            continue
        if "ReadWriteMany" not in claim.spec.access_modes:
            text = f"The volume {volume.name} is RWO and not included in the migration volumes"
            result.append(f"cannot migrate the VM. {text}")
    return result


def is_cancelled(vm: VirtualMachine, vmi: VirtualMachineInstance) -> bool:
    """Whether the template names the original claims of all volumes in migration again."""
    wanted = {volume.name: claim_name(volume) for volume in vm.spec.instance.volumes}
    moving = vmi.status.migrated_volumes
    return bool(moving) and all(
        wanted.get(item.volume_name) == (item.source_pvc_info.claim_name if item.source_pvc_info else "")
        for item in moving
    )


async def sync(cluster: Cluster, draft: Draft, vmi: VirtualMachineInstance) -> SyncError | None:
    """Start or cancel the volume migration; the VM's status records the volumes."""
    vm, namespace = draft.vm, vmi.metadata.namespace
    changed = changes(vm, vmi)
    if not changed or vmi.status.phase != "Running":
        return None
    if vmi.status.migrated_volumes:
        if not is_cancelled(vm, vmi):
            text = "The volume can only be reverted to the previous version during the update"
            return SyncError("VolumesUpdateError", f"Error encountered while handling volumes update: {text}")
        await _patch(cluster, vmi, cancellation(vm, vmi))
        draft.status.pop("volumeUpdateState", None)
        return None
    used = {claim_name(volume) for volume in vmi.spec.volumes} | {change.destination for change in changed}
    claims = reading.claims(cluster, namespace, used)
    missing = [change.destination for change in changed if change.destination not in claims]
    if missing:
        text = f"One of the destination volumes doesn't exist: {missing[0]}"
        refused = conditions.new_condition("VolumesChange", "False", message=text)
        await _patch(cluster, vmi, _condition_operations(vmi, refused))
        return None
    names = [change.volume for change in changed]
    wrong = invalid_volumes(vmi, names) or left_behind(vmi, names, claims)
    if wrong:
        text = f"invalid volumes to update with migration: {'; '.join(wrong)}"
        condition = conditions.new_condition("RestartRequired", "True", message=text)
        conditions.put(draft.conditions, condition)
        return None
    # The claim's info is copied unchanged.
    moved = migrated_volumes(changed, {name: cluster.claims.get(namespace, name) or {} for name in used})
    await _patch(cluster, vmi, beginning(vm, vmi, moved))
    draft.status["volumeUpdateState"] = {"volumeMigrationState": {"migratedVolumes": moved}}
    return None


def migrated_volumes(changed: Sequence[Change], claims: Mapping[str, JsonObject]) -> list[JsonObject]:
    """``migratedVolumes`` for the given changes; `claims` are documents by name."""
    return [
        {
            "volumeName": change.volume,
            "sourcePVCInfo": _info(claims.get(change.source)),
            "destinationPVCInfo": _info(claims.get(change.destination)),
        }
        for change in changed
    ]


def _info(claim: JsonObject | None) -> JsonObject:
    info = encode(claim_info(claim, "")) if claim else {}
    info.pop("filesystemOverhead", None)
    return info


def beginning(vm: VirtualMachine, vmi: VirtualMachineInstance, moved: list[JsonObject]) -> list[JsonObject]:
    """The operations on the instance that start the volume migration."""
    condition = conditions.new_condition("VolumesChange", "True", message="migrate volumes")
    return [
        *_volume_operations(vm, vmi),
        {"op": "add", "path": "/status/migratedVolumes", "value": moved},
        *_condition_operations(vmi, condition),
    ]


def cancellation(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """The operations on the instance that cancel the volume migration."""
    condition = conditions.new_condition("VolumesChange", "False", "VolumesChangeCancellation")
    return [
        *_volume_operations(vm, vmi),
        {"op": "remove", "path": "/status/migratedVolumes"},
        *_condition_operations(vmi, condition),
    ]


def _volume_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """The operations that replace volumes of the instance by the template's volumes of the same name."""
    wanted = {volume.name: volume for volume in vm.spec.instance.volumes}
    return [
        {"op": "replace", "path": f"/spec/volumes/{index}", "value": encode(wanted[volume.name])}
        for index, volume in enumerate(vmi.spec.volumes)
        if wanted.get(volume.name, volume) != volume
    ]


def _condition_operations(vmi: VirtualMachineInstance, condition: JsonObject) -> list[JsonObject]:
    """The operations that set a condition of the instance; none if it has an equal one."""
    known = vmi.status.conditions
    if not known:
        return [{"op": "add", "path": "/status/conditions", "value": [condition]}]
    for index, present in enumerate(condition_documents(known)):
        if present["type"] == condition["type"]:
            if conditions.says_same(present, condition):
                return []
            return [{"op": "replace", "path": f"/status/conditions/{index}", "value": condition}]
    return [{"op": "add", "path": "/status/conditions/-", "value": condition}]


async def _patch(cluster: Cluster, vmi: VirtualMachineInstance, operations: list[JsonObject]) -> None:
    """The patch tests the resourceVersion, because it addresses list items by index."""
    guarded = [*same_version(described(vmi)), *operations] if operations else []
    await patch(cluster, kinds.VIRTUAL_MACHINE_INSTANCES, vmi, guarded, must_exist=True)
