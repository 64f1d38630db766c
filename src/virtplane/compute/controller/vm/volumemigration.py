"""Moving the volumes of a running guest to other claims (``updateVolumesStrategy: Migration``)."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode, encode
from kubecore.patch.guarded import guarded_patch
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm.status import SyncError
from virtplane.compute.controller.vmi.volumes import claim_info
from virtplane.compute.hotplug import is_hotpluggable


def changed_volumes(vm: JsonObject, vmi: JsonObject) -> list[tuple[str, str, str]]:
    """Volumes whose claim differs: name, present claim, wanted claim."""
    wanted = {
        get_str(item, "name"): claim_name(decode(Volume, item))
        for item in get_list(vm, "spec", "template", "spec", "volumes")
        if claim_name(decode(Volume, item))
    }
    result = []
    for volume in get_list(vmi, "spec", "volumes"):
        name, claim = get_str(volume, "name"), claim_name(decode(Volume, volume))
        if claim and name in wanted and wanted[name] != claim:
            result.append((name, claim, wanted[name]))
    return result


def invalid_volumes(vmi: JsonObject, names: list[str]) -> list[str]:
    """Why volumes of these names cannot be moved, one text for each that cannot."""
    devices = get_object(vmi, "spec", "domain", "devices")
    shared = {get_str(item, "name") for item in get_list(devices, "filesystems")}
    disks = {get_str(item, "name"): item for item in get_list(devices, "disks")}
    result = []
    for name in names:
        if name in shared:
            result.append(f"volume {name} is a filesystem")
        elif disks.get(name, {}).get("shareable") is True:
            result.append(f"volume {name} is shareable")
        elif "lun" in disks.get(name, {}):
            result.append(f"volume {name} is a LUN")
    return result


def migrated_volumes(
    changed: list[tuple[str, str, str]], claims: Mapping[str, JsonObject]
) -> list[JsonObject]:
    """``migratedVolumes`` for the given changes."""
    return [
        {
            "volumeName": name,
            "sourcePVCInfo": _info(claims.get(source)),
            "destinationPVCInfo": _info(claims.get(destination)),
        }
        for name, source, destination in changed
    ]


def _info(claim: JsonObject | None) -> JsonObject:
    info = encode(claim_info(claim, "")) if claim else {}
    info.pop("filesystemOverhead", None)
    return info


def is_cancelled(vm: JsonObject, vmi: JsonObject) -> bool:
    """Whether the template names the original claims of all volumes that are being moved."""
    moving = {
        get_str(item, "volumeName"): get_str(item, "sourcePVCInfo", "claimName")
        for item in get_list(vmi, "status", "migratedVolumes")
    }
    wanted = {
        get_str(item, "name"): claim_name(decode(Volume, item))
        for item in get_list(vm, "spec", "template", "spec", "volumes")
    }
    return bool(moving) and all(wanted.get(name) == claim for name, claim in moving.items())


async def sync(cluster: Cluster, vm: JsonObject, vmi: JsonObject) -> SyncError | None:
    """Starts, or takes back, the move of volumes; the VM's status remembers what moves."""
    changed = changed_volumes(vm, vmi)
    if not changed or get_str(vmi, "status", "phase") != "Running":
        return None
    is_moving = bool(get_list(vmi, "status", "migratedVolumes"))
    if is_moving:
        if not is_cancelled(vm, vmi):
            text = "The volume can only be reverted to the previous version during the update"
            return SyncError("VolumesUpdateError", f"Error encountered while handling volumes update: {text}")
        await _patch(cluster, vmi, _volumes(vm, vmi), None, "VolumesChangeCancellation")
        vm["status"].pop("volumeUpdateState", None)
        return None
    claims = cluster.claims_of(meta.namespace(vm))
    missing = [destination for _, _, destination in changed if destination not in claims]
    if missing:
        text = f"One of the destination volumes doesn't exist: {missing[0]}"
        await _mark(cluster, vmi, conditions.new_condition("VolumesChange", "False", message=text))
        return None
    wrong = invalid_volumes(vmi, [name for name, _, _ in changed]) or _left_behind(vmi, changed, claims)
    if wrong:
        text = f"invalid volumes to update with migration: {'; '.join(wrong)}"
        condition = conditions.new_condition("RestartRequired", "True", message=text)
        conditions.put(vm["status"]["conditions"], condition)
        return None
    moved = migrated_volumes(changed, claims)
    await _patch(cluster, vmi, _volumes(vm, vmi), moved, "")
    vm["status"]["volumeUpdateState"] = {"volumeMigrationState": {"migratedVolumes": moved}}
    return None


def _left_behind(
    vmi: JsonObject, changed: list[tuple[str, str, str]], claims: Mapping[str, JsonObject]
) -> list[str]:
    """Volumes that stay on this node's storage while others move away from it."""
    moving = {name for name, _, _ in changed}
    result = []
    for volume in get_list(vmi, "spec", "volumes"):
        name, claim = get_str(volume, "name"), claims.get(claim_name(decode(Volume, volume)))
        if claim is None or name in moving or is_hotpluggable(decode(Volume, volume)):
            continue
        if "ReadWriteMany" not in get_list(claim, "spec", "accessModes"):
            result.append(
                f"cannot migrate the VM. The volume {name} is RWO and not included in the migration volumes"
            )
    return result


def _volumes(vm: JsonObject, vmi: JsonObject) -> list[JsonObject]:
    wanted = {get_str(item, "name"): item for item in get_list(vm, "spec", "template", "spec", "volumes")}
    return [wanted.get(get_str(item, "name"), item) for item in get_list(vmi, "spec", "volumes")]


async def _patch(
    cluster: Cluster,
    vmi: JsonObject,
    volumes: list[JsonObject],
    moved: list[JsonObject] | None,
    cancellation: str,
) -> None:
    new = deep_copy(vmi)
    new["spec"]["volumes"] = volumes
    status = new.setdefault("status", {})
    if moved is None:
        status.pop("migratedVolumes", None)
        condition = conditions.new_condition("VolumesChange", "False", cancellation)
    else:
        status["migratedVolumes"] = moved
        condition = conditions.new_condition("VolumesChange", "True", message="migrate volumes")
    conditions.put(status.setdefault("conditions", []), condition)
    await _write(cluster, vmi, new)


async def _mark(cluster: Cluster, vmi: JsonObject, condition: JsonObject) -> None:
    new = deep_copy(vmi)
    if conditions.put(new.setdefault("status", {}).setdefault("conditions", []), condition):
        await _write(cluster, vmi, new)


async def _write(cluster: Cluster, old: JsonObject, new: JsonObject) -> None:
    operations = guarded_patch(old, new, ("spec",), ("status",))
    await cluster.client.patch(
        kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(old), operations, meta.namespace(old), type="json"
    )
