"""The objects of a restore and its status: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import generated_names, meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode, encode, part, parts
from kubecore.patch.jsonpatch import apply_json_patch, decode_json_patch
from virtplane.api import cdi_labels
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore, VolumeRestoreOverride
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshotContent, VolumeBackup
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster import persistentstate

FINALIZER = wellknown.FINALIZER_RESTORE
LAST_RESTORE = "restore.kubevirt.io/lastRestoreUID"
GRACE_SECONDS = 300
_KEPT_MEMBERS = ("accessModes", "resources", "storageClassName", "volumeMode")
_DROPPED_ANNOTATIONS = (
    "pv.kubernetes.io",
    "volume.beta.kubernetes.io",
    "cdi.kubevirt.io",
    "volume.kubernetes.io",
    cdi_labels.CLONE_REQUEST,
    cdi_labels.CLONE_OF,
)
"""What storage and CDI wrote about the claim of then begins so."""


@dataclass(frozen=True, slots=True)
class RestoredVolume:
    """One volume that is being restored."""

    volume: str
    claim: str
    volume_snapshot: str
    backup: VolumeBackup
    data_volume: str = ""
    """The DataVolume that is to have the claim: that of a template, or the one that had it before."""

    is_templated: bool = False
    """Whether a template of the machine provides the DataVolume."""


def restore_uid(restore: VirtualMachineRestore) -> str:
    """The value by which the target of this restore is marked."""
    return f"{restore.metadata.name}-{restore.metadata.uid}"


def is_in_place(restore: VirtualMachineRestore) -> bool:
    """Whether the claims from which the snapshot was taken make room for the restored ones."""
    return restore.spec.volume_restore_policy == "InPlace"


def volumes(restore: VirtualMachineRestore, content: VirtualMachineSnapshotContent) -> list[RestoredVolume]:
    """The claims to create."""
    source = content.spec.source.virtual_machine.spec
    dumps = {each.name for each in source.instance.volumes if each.memory_dump} if source else set()
    templated = _templated(source) if source else set()
    known = {each.volume_name: each.data_volume_name or "" for each in restore.status.restores}
    result = []
    for backup in content.spec.volume_backups:
        volume = backup.volume_name
        if volume in dumps:
            continue  # a dump is of what ran then
        name = _claim(restore, backup)
        is_templated = volume in templated
        data_volume = name if is_templated else known.get(volume, "") if is_in_place(restore) else ""
        snapshot = backup.volume_snapshot_name or ""
        result.append(RestoredVolume(volume, name, snapshot, backup, data_volume, is_templated))
    return result


def _claim(restore: VirtualMachineRestore, backup: VolumeBackup) -> str:
    override = _override(restore, backup.volume_name)
    if override is not None and override.restore_name:
        return override.restore_name
    match restore.spec.volume_restore_policy:
        case "InPlace":
            return backup.persistent_volume_claim.metadata.name
        case "PrefixTargetName":
            return generated_names.bounded(restore.spec.target.name, backup.volume_name)
    return f"restore-{restore.metadata.uid}-{backup.volume_name}"


def _override(restore: VirtualMachineRestore, volume: str) -> VolumeRestoreOverride | None:
    found = (each for each in restore.spec.volume_restore_overrides if each.volume_name == volume)
    return next(found, None)


def replaced_claims(
    restore: VirtualMachineRestore, items: Iterable[RestoredVolume], claims: Mapping[str, JsonObject]
) -> dict[str, JsonObject]:
    """The claims that must make room, by their names: those of the snapshot, and none of this restore.

    A name that the restore itself gives must not delete what somebody else keeps under it.
    """
    mark = restore_uid(restore)
    names = (item.claim for item in items if item.claim == item.backup.persistent_volume_claim.metadata.name)
    found = {name: claims[name] for name in names if name in claims}
    return {name: claim for name, claim in found.items() if meta.annotations(claim).get(LAST_RESTORE) != mark}


def with_data_volumes(
    items: Iterable[RestoredVolume], before: Mapping[str, JsonObject]
) -> list[RestoredVolume]:
    """The `items`, which go to the DataVolumes that control the claims `before` them."""
    return [_with_data_volume(item, before.get(item.claim)) for item in items]


def _with_data_volume(item: RestoredVolume, claim: JsonObject | None) -> RestoredVolume:
    owner = meta.controller_of(claim) if claim is not None else None
    if item.data_volume or owner is None or owner.get("kind") != kinds.DATA_VOLUMES.kind:
        return item
    return replace(item, data_volume=owner["name"])


def goes_with(item: RestoredVolume, source: ObjectMeta, target: ObjectMeta) -> bool:
    """Whether the restored claim is deleted together with the `target`, by KubeVirt's rule.

    The machine of the snapshot gets all its claims. A new machine gets those of which the `source` was an
    owner: what had a life of its own keeps it. A claim of a DataVolume goes with that one.
    """
    if item.data_volume:
        return False
    owners = item.backup.persistent_volume_claim.metadata.owner_references
    return target.uid == source.uid or any(owner.uid == source.uid for owner in owners)


def _templated(spec: VirtualMachineSpec) -> set[str]:
    """The volumes whose DataVolumes are made of the machine's templates."""
    made = {meta.name(encode(template)) for template in spec.data_volume_templates if template is not None}
    volumes = (each for each in spec.instance.volumes if each.data_volume is not None)
    return {each.name for each in volumes if claim_name(each) in made}


def new_claim(
    restore: VirtualMachineRestore, source: str, item: RestoredVolume, volume_snapshot: VolumeSnapshot
) -> JsonObject:
    """The claim with the VolumeSnapshot as its data source, for a snapshot of the machine `source`."""
    claim = item.backup.persistent_volume_claim
    written = encode(claim.spec or PersistentVolumeClaimSpec())
    spec: JsonObject = {key: written[key] for key in _KEPT_MEMBERS if key in written}
    spec["dataSource"] = {
        "apiGroup": kinds.VOLUME_SNAPSHOTS.group,
        "kind": kinds.VOLUME_SNAPSHOTS.kind,
        "name": item.volume_snapshot,
    }
    smallest = volume_snapshot.status.restore_size
    requests = spec.setdefault("resources", {}).setdefault("requests", {})
    asked = requests.get("storage") or "0"
    if smallest is not None and Quantity.parse(smallest) > Quantity.parse(asked):
        requests["storage"] = smallest
    override = _override(restore, item.volume) or VolumeRestoreOverride()
    annotations = {key: value for key, value in claim.metadata.annotations.items() if _is_kept(key)}
    labels = dict(claim.metadata.labels)
    labels.pop(persistentstate.STATE_LABEL, None)  # the state of nobody yet
    labels["restore.kubevirt.io/source-vm-name"] = source
    labels["restore.kubevirt.io/source-vm-namespace"] = restore.metadata.namespace
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": item.claim,
            "namespace": restore.metadata.namespace,
            "labels": labels | dict(override.labels or {}),
            "annotations": annotations | dict(override.annotations or {}) | _marks(restore, item),
        },
        "spec": spec,
    }


def _is_kept(annotation: str) -> bool:
    return annotation == cdi_labels.CONTENT_TYPE or not annotation.startswith(_DROPPED_ANNOTATIONS)


def _marks(restore: VirtualMachineRestore, item: RestoredVolume) -> dict[str, str]:
    marks = {wellknown.RESTORE_NAME: restore.metadata.name, LAST_RESTORE: restore_uid(restore)}
    return marks | {cdi_labels.POPULATED_FOR: item.data_volume} if item.data_volume else marks


# The VM's spec is a document here: decoding it would lose fields that the struct does not know.


def restored_spec(source: JsonObject, items: list[RestoredVolume]) -> JsonObject:
    """The VM's spec as it was in the `source`, its volumes on the restored claims."""
    spec = deep_copy(source)
    restored = {item.volume: item for item in items}
    template = spec.setdefault("template", {}).setdefault("spec", {})
    renamed: dict[str, str] = {}
    replaced: set[str] = set()
    kept: list[JsonObject] = []
    for document in parts(template, VirtualMachineInstanceSpec, lambda spec: spec.volumes):
        volume = decode(Volume, document)
        item = restored.get(volume.name)
        if volume.memory_dump is not None:
            continue
        if item is None:
            kept.append(document)
        elif item.is_templated:
            renamed[claim_name(volume)] = item.data_volume
            kept.append({**document, "dataVolume": {**document["dataVolume"], "name": item.data_volume}})
        else:
            replaced.add(claim_name(volume))
            given = {**document.get("persistentVolumeClaim", {}), "claimName": item.claim}
            kept.append({"name": volume.name, "persistentVolumeClaim": given})
    if "volumes" in template:
        template["volumes"] = kept
    templates = [
        _renamed(item, renamed)
        for item in parts(spec, VirtualMachineSpec, lambda spec: spec.data_volume_templates)
        if item is None or meta.name(item) not in replaced
    ]
    if templates:
        spec["dataVolumeTemplates"] = templates
    else:
        spec.pop("dataVolumeTemplates", None)
    return spec


def _renamed(template: JsonObject | None, names: Mapping[str, str]) -> JsonObject | None:
    if template is None or meta.name(template) not in names:
        return template
    return {**template, "metadata": {**template["metadata"], "name": names[meta.name(template)]}}


def new_target(restore: VirtualMachineRestore, source: ObjectMeta, spec: JsonObject) -> JsonObject:
    """A VM for the restored spec: off, marked, changed as the restore asks, labelled as its `source` was.

    Raises ValueError (of which the patch errors are kinds) or StatusError where a patch cannot be applied.
    """
    off = {key: value for key, value in spec.items() if key not in ("running", "runStrategy")}
    off["runStrategy"] = "Halted"
    metadata: JsonObject = {"name": restore.spec.target.name, "namespace": restore.metadata.namespace}
    if source.labels:
        metadata["labels"] = dict(source.labels)
    metadata["annotations"] = {
        key: value
        for key, value in source.annotations.items()
        if not key.endswith("observed-api-version") and key != LAST_RESTORE
    }
    vm: JsonObject = {
        "apiVersion": kinds.VIRTUAL_MACHINES.api_version,
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": off,
    }
    patches = decode_json_patch([orjson.loads(text) for text in restore.spec.patches])
    if patches:
        vm = _patched(vm, patches)
    meta.set_annotation(vm, LAST_RESTORE, restore_uid(restore))
    return vm


def _patched(vm: JsonObject, patches: list[JsonObject]) -> JsonObject:
    """The VM as a user's patches make it. Raises ValueError where they change more than users may.

    virt-controller creates it, who may create machines in every namespace: neither may a patch move it into
    another one, nor does it matter whether admission has seen the patch, or read it alike.
    """
    changed = apply_json_patch(vm, patches)
    if _fixed(changed) != _fixed(vm):
        raise ValueError("only labels, annotations and spec can be patched")
    return dict(changed)


def _fixed(vm: Any) -> Any:
    """What patches leave as it is, in a document that may no longer have the form of a VM."""
    metadata = vm.get("metadata") if isinstance(vm, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations"), dict):
        return None
    kept = {key: value for key, value in metadata.items() if key not in ("labels", "annotations")}
    return {**vm, "metadata": kept, "spec": None}


def updated_target(restore: VirtualMachineRestore, vm: JsonObject, spec: JsonObject) -> JsonObject:
    """An existing VM with the restored spec; it stays on or off as it is."""
    new = deep_copy(vm)
    before = part(vm, VirtualMachine, lambda vm: vm.spec)
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
            **({"dataVolumeName": item.data_volume} if item.data_volume else {}),
        }
        for item in items
    ]


def are_bound(
    items: list[RestoredVolume], claims: Mapping[str, PersistentVolumeClaim], late: frozenset[str]
) -> bool:
    """Whether all claims can be used: bound, or of a class in `late` (WaitForFirstConsumer)."""
    for item in items:
        claim = claims.get(item.claim)
        if claim is None:
            return False
        is_late = (claim.spec.storage_class_name or "") in late
        if claim.status.phase != "Bound" and not is_late:
            return False
    return True
