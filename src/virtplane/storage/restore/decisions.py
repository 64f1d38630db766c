"""What a restore makes of a snapshot: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode
from kubecore.patch import apply_json_patch
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name

FINALIZER = wellknown.FINALIZER_RESTORE
LAST_RESTORE = "restore.kubevirt.io/lastRestoreUID"
RESTORE_ANNOTATION = "restore.kubevirt.io/name"
GRACE_SECONDS = 300
_KEPT_METADATA = ("labels", "annotations")


class UnsupportedPolicy(ValueError):
    """A volume restore policy that this version does not carry out."""


@dataclass(frozen=True, slots=True)
class RestoredVolume:
    """One volume on its way back."""

    volume: str
    claim: str
    volume_snapshot: str
    backup: JsonObject


def restore_uid(restore: JsonObject) -> str:
    """The mark of this restore on its target."""
    return f"{meta.name(restore)}-{meta.uid(restore)}"


def target_name(restore: JsonObject) -> str:
    """The VM that is restored into."""
    return get_str(restore, "spec", "target", "name")


def volumes(restore: JsonObject, content: JsonObject) -> list[RestoredVolume]:
    """The claims to make. Raises UnsupportedPolicy for restoring claims in place."""
    policy = get_str(restore, "spec", "volumeRestorePolicy") or "RandomizeNames"
    if policy == "InPlace":
        raise UnsupportedPolicy("restoring volumes in place is not supported; use RandomizeNames")
    overrides = {
        get_str(item, "volumeName"): item for item in get_list(restore, "spec", "volumeRestoreOverrides")
    }
    result = []
    for backup in get_list(content, "spec", "volumeBackups"):
        volume = get_str(backup, "volumeName")
        name = f"restore-{meta.uid(restore)}-{volume}"
        if policy == "PrefixTargetName":
            name = f"{target_name(restore)}-{volume}"
        name = get_str(overrides.get(volume), "restoreName") or name
        result.append(RestoredVolume(volume, name, get_str(backup, "volumeSnapshotName"), backup))
    return result


def new_claim(restore: JsonObject, item: RestoredVolume, volume_snapshot: JsonObject | None) -> JsonObject:
    """The claim that is filled from a VolumeSnapshot."""
    source = get_object(item.backup, "persistentVolumeClaim")
    spec = deep_copy(get_object(source, "spec"))
    for key in ("volumeName", "dataSource", "dataSourceRef"):
        spec.pop(key, None)
    spec["dataSource"] = {
        "apiGroup": kinds.VOLUME_SNAPSHOTS.group,
        "kind": kinds.VOLUME_SNAPSHOTS.kind,
        "name": item.volume_snapshot,
    }
    smallest = get_object(volume_snapshot, "status").get("restoreSize")
    requests = spec.setdefault("resources", {}).setdefault("requests", {})
    asked = requests.get("storage") or "0"
    if smallest is not None and Quantity.parse(smallest) > Quantity.parse(asked):
        requests["storage"] = smallest
    annotations = {
        key: value
        for key, value in get_object(source, "metadata", "annotations").items()
        if "cdi.kubevirt.io" not in key and not key.startswith("pv.kubernetes.io/")
    }
    labels = {
        key: value
        for key, value in get_object(source, "metadata", "labels").items()
        if "cdi.kubevirt.io" not in key
    }
    labels["restore.kubevirt.io/source-vm-name"] = target_name(restore)
    labels["restore.kubevirt.io/source-vm-namespace"] = meta.namespace(restore)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": item.claim,
            "namespace": meta.namespace(restore),
            "labels": labels,
            "annotations": {**annotations, RESTORE_ANNOTATION: meta.name(restore)},
        },
        "spec": spec,
    }


def restored_spec(content: JsonObject, items: list[RestoredVolume]) -> JsonObject:
    """The VM's spec as it was, its volumes on the restored claims."""
    spec = deep_copy(get_object(content, "spec", "source", "virtualMachine", "spec"))
    claims = {item.volume: item.claim for item in items}
    template = spec.setdefault("template", {}).setdefault("spec", {})
    replaced: set[str] = set()
    kept: list[JsonObject] = []
    for volume in get_list(template, "volumes"):
        name = get_str(volume, "name")
        if "memoryDump" in volume:
            continue
        if name in claims:
            replaced.add(claim_name(decode(Volume, volume)))
            kept.append({"name": name, "persistentVolumeClaim": {"claimName": claims[name]}})
        else:
            kept.append(volume)
    if "volumes" in template:
        template["volumes"] = kept
    templates = [
        item
        for item in get_list(spec, "dataVolumeTemplates")
        if get_str(item, "metadata", "name") not in replaced
    ]
    if templates:
        spec["dataVolumeTemplates"] = templates
    else:
        spec.pop("dataVolumeTemplates", None)
    return spec


def new_target(restore: JsonObject, content: JsonObject, spec: JsonObject) -> JsonObject:
    """A VM for the restored spec: off, marked, changed as the restore asks.

    Raises ValueError (of which the patch errors are kinds) where a patch cannot be applied.
    """
    source = get_object(content, "spec", "source", "virtualMachine")
    off = {key: value for key, value in spec.items() if key not in ("running", "runStrategy")}
    off["runStrategy"] = "Halted"
    metadata: JsonObject = {"name": target_name(restore), "namespace": meta.namespace(restore)}
    for key in _KEPT_METADATA:
        found = get_object(source, "metadata", key)
        if found:
            metadata[key] = dict(found)
    annotations = metadata.setdefault("annotations", {})
    for key in list(annotations):
        if key.endswith("observed-api-version") or key == LAST_RESTORE:
            del annotations[key]
    vm: JsonObject = {
        "apiVersion": kinds.VIRTUAL_MACHINES.api_version,
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": off,
    }
    patches = [orjson.loads(text) for text in get_list(restore, "spec", "patches")]
    if patches:
        vm = apply_json_patch(vm, patches)
    meta.set_annotation(vm, LAST_RESTORE, restore_uid(restore))
    return vm


def updated_target(restore: JsonObject, vm: JsonObject, spec: JsonObject) -> JsonObject:
    """An existing VM with the restored spec; it stays on or off as it is."""
    new = deep_copy(vm)
    before = get_object(vm, "spec")
    new["spec"] = {key: value for key, value in spec.items() if key not in ("running", "runStrategy")}
    for key in ("running", "runStrategy"):
        if key in before:
            new["spec"][key] = before[key]
    meta.set_annotation(new, LAST_RESTORE, restore_uid(restore))
    return new


def restores_of(items: list[RestoredVolume]) -> list[JsonObject]:
    """``status.restores``."""
    return [
        {
            "volumeName": item.volume,
            "persistentVolumeClaim": item.claim,
            "volumeSnapshotName": item.volume_snapshot,
        }
        for item in items
    ]


def are_bound(items: list[RestoredVolume], claims: Mapping[str, JsonObject], late: frozenset[str]) -> bool:
    """Whether all claims can be used: bound, or of a class in `late` that binds when first used."""
    for item in items:
        claim = claims.get(item.claim)
        if claim is None:
            return False
        is_late = get_str(claim, "spec", "storageClassName") in late
        if get_str(claim, "status", "phase") != "Bound" and not is_late:
            return False
    return True
