"""The objects of a snapshot and its status: pure decisions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import encode, part, parts
from virtplane.api import labels, storage_labels
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.snapshot_v1beta1.snapshot import (
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotContentStatus,
    VolumeBackup,
)
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass
from virtplane.cluster import conditions, persistentstate
from virtplane.cluster.objects import condition_documents

SNAPSHOT_FINALIZER = labels.FINALIZER_SNAPSHOT
CONTENT_FINALIZER = labels.FINALIZER_SNAPSHOT_CONTENT
SOURCE_FINALIZER = labels.FINALIZER_SNAPSHOT_SOURCE
PARTIAL = "PartialSnapshot"
DEADLINE_REASON = "snapshot deadline exceeded"
_PARTIAL_TEXT = (
    "Not all snapshotable volumes were included in the snapshot. Check status.snapshotVolumes for excluded "
    "volumes and VM VolumeSnapshotStatus for details."
)
_ONLINE_TEXTS = {
    "Online": "Snapshot taken while the VM was running.",
    "GuestAgent": "Guest agent was active and attempted to quiesce the filesystems for consistency.",
    "NoGuestAgent": "Guest agent was not active. Snapshot is crash-consistent.",
    "Paused": "Snapshot taken while the VM was paused.",
}


@dataclass(frozen=True, slots=True)
class Volumes:
    """The volumes that a snapshot includes and excludes."""

    included: tuple[tuple[str, str], ...] = ()
    """Names with those of their claims."""
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects from which the status of a snapshot is computed, as far as they exist."""

    vm: VirtualMachine | None
    vmi: VirtualMachineInstance | None
    content: VirtualMachineSnapshotContent | None
    claims: Mapping[str, JsonObject]
    """The claims of the namespace by name."""
    problem: str = ""
    """Why nothing more can be done now, where that is known."""
    obstacle: str = ""
    """Why the source cannot be locked now."""


def content_name(uid: str) -> str:
    """The name of the content of the snapshot with that uid."""
    return f"vmsnapshot-content-{uid}"


def deadline_seconds(snapshot: VirtualMachineSnapshot) -> float:
    """Seconds after creation at which an unfinished snapshot fails; 0 for never."""
    return snapshot.spec.deadline_seconds


def is_expired(snapshot: VirtualMachineSnapshot, now: datetime) -> bool:
    """Whether the deadline has passed."""
    limit = deadline_seconds(snapshot)
    age = (now - times.parse_time(snapshot.metadata.creation_timestamp or "")).total_seconds()
    return limit != 0 and limit < age


def choose_volumes(vm: VirtualMachine, claims: Mapping[str, JsonObject]) -> Volumes:
    """Choose by the VM's volumeSnapshotStatuses; volumes without claims are never included."""
    enabled = {status.name for status in vm.observed.volume_snapshot_statuses if status.enabled}
    included: list[tuple[str, str]] = []
    excluded: list[str] = []
    for volume in persistentstate.volumes_of(vm, claims):
        claim = claim_name(volume)
        if volume.name in enabled and claim in claims:
            included.append((volume.name, claim))
        elif claim:
            excluded.append(volume.name)
    return Volumes(tuple(included), tuple(excluded))


# A content contains documents: decoding them would lose fields that the structs do not know.


def running_spec(spec: JsonObject, started: JsonObject | None) -> JsonObject:
    """The spec with which the guest was `started`, with the volumes of the current `spec`; else the
    latter.
    """
    if started is None:
        return deep_copy(spec)
    present, result = deep_copy(spec), deep_copy(started)
    current = part(present, VirtualMachineSpec, lambda spec: spec.template.spec)
    template = result.setdefault("template", {}).setdefault("spec", {})
    if "volumes" in current:
        template["volumes"] = current["volumes"]
        disks = parts(current, VirtualMachineInstanceSpec, lambda spec: spec.domain.devices.disks)
        template.setdefault("domain", {}).setdefault("devices", {})["disks"] = disks
    if "dataVolumeTemplates" in present:
        result["dataVolumeTemplates"] = present["dataVolumeTemplates"]
    return result


def _kept_metadata(document: JsonObject) -> JsonObject:
    return {key: value for key, value in meta.metadata(document).items() if key != "managedFields"}


def new_content(
    snapshot: VirtualMachineSnapshot,
    vm: VirtualMachine,
    written: JsonObject,
    spec: JsonObject,
    volumes: Volumes,
    claims: Mapping[str, JsonObject],
) -> JsonObject:
    """The content: the VM as it is (`spec` as its guest runs it) and those of `claims` that are taken.

    `written` is the document of the VM.
    """
    kept = VirtualMachineStatus(
        instancetype_ref=vm.observed.instancetype_ref, preference_ref=vm.observed.preference_ref
    )
    source = {"metadata": _kept_metadata(written), "spec": spec, "status": encode(kept)}
    content: JsonObject = {
        "virtualMachineSnapshotName": snapshot.metadata.name,
        "source": {"virtualMachine": source},
    }
    backups = [
        {
            "volumeName": name,
            "persistentVolumeClaim": {
                "metadata": _kept_metadata(claims[claim]),
                "spec": deep_copy(get_object(claims[claim], "spec")),
            },
            "volumeSnapshotName": f"vmsnapshot-{snapshot.metadata.uid}-volume-{name}",
        }
        for name, claim in volumes.included
    ]
    if backups:
        content["volumeBackups"] = backups
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS.api_version,
        "kind": kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS.kind,
        "metadata": {
            "name": content_name(snapshot.metadata.uid),
            "namespace": snapshot.metadata.namespace,
            "finalizers": [CONTENT_FINALIZER],
        },
        "spec": content,
    }


def volume_snapshot(
    content: VirtualMachineSnapshotContent, backup: VolumeBackup, snapshot_class: str
) -> JsonObject:
    """The VolumeSnapshot for one claim."""
    vm = content.spec.source.virtual_machine.metadata
    owner = {"metadata": encode(content.metadata)}
    spec: JsonObject = {"source": {"persistentVolumeClaimName": backup.persistent_volume_claim.metadata.name}}
    if snapshot_class:
        spec["volumeSnapshotClassName"] = snapshot_class
    return {
        "apiVersion": kinds.VOLUME_SNAPSHOTS.api_version,
        "kind": kinds.VOLUME_SNAPSHOTS.kind,
        "metadata": {
            "name": backup.volume_snapshot_name or "",
            "namespace": content.metadata.namespace,
            "labels": {
                "snapshot.kubevirt.io/source-vm-name": vm.name,
                "snapshot.kubevirt.io/source-vm-namespace": vm.namespace,
            },
            "ownerReferences": [meta.new_controller_ref(owner, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS)],
        },
        "spec": spec,
    }


def snapshot_class(driver: str, classes: Iterable[VolumeSnapshotClass]) -> str:
    """The VolumeSnapshotClass for a driver: the only one, else the default one; empty if there is no such
    class.
    """
    found = [item.metadata for item in classes if item.driver == driver]
    if len(found) == 1:
        return found[0].name
    key = storage_labels.DEFAULT_SNAPSHOT_CLASS
    return next((item.name for item in found if item.annotations.get(key) == "true"), "")


def missing_snapshots(content: VirtualMachineSnapshotContent, found: Container[str]) -> list[str]:
    """The names of the content's VolumeSnapshots that are not among those found."""
    names = (backup.volume_snapshot_name or "" for backup in content.spec.volume_backups)
    return [name for name in names if name not in found]


def content_status(content: VirtualMachineSnapshotContent, found: Mapping[str, VolumeSnapshot]) -> JsonObject:
    """The content's status from its VolumeSnapshots by name.

    An error of a VolumeSnapshot that is ready all the same is told with it, and is none of the content's.
    """
    status = encode(content.status)
    missing = missing_snapshots(content, found)
    names = [backup.volume_snapshot_name or "" for backup in content.spec.volume_backups]
    entries = [_entry(name, found[name]) for name in names if name in found]
    if entries:
        status["volumeSnapshotStatus"] = entries
    else:
        status.pop("volumeSnapshotStatus", None)
    if not missing and all(entry.get("creationTime") for entry in entries):
        status.setdefault("creationTime", times.now_rfc3339())
    status["readyToUse"] = not missing and all(entry.get("readyToUse") is True for entry in entries)
    problem = _missing_problem(content, missing) or next(filter(None, map(_entry_problem, entries)), "")
    if problem and not status["readyToUse"]:
        status["error"] = {"time": times.now_rfc3339(), "message": problem}
    else:
        status.pop("error", None)
    return status


def _entry(name: str, volume: VolumeSnapshot) -> JsonObject:
    said = encode(volume.status)
    said.pop("restoreSize", None)
    return {"volumeSnapshotName": name, **said}


def _entry_problem(entry: JsonObject) -> str:
    message = get_str(entry, "error", "message")
    return f"VolumeSnapshot {entry['volumeSnapshotName']} error: {message}" if message else ""


def _missing_problem(content: VirtualMachineSnapshotContent, missing: list[str]) -> str:
    if not missing:
        return ""
    listed = f"VolumeSnapshots ({','.join(missing)})"
    if content.status.creation_time:
        return f"{listed} missing"
    return f"{listed} skipped because vm snapshot is deleted"


def has_failed(snapshot: VirtualMachineSnapshot, now: datetime) -> bool:
    """Whether the snapshot has failed, or does now because it was not taken in time."""
    if snapshot.status.phase == "Failed":
        return True
    return snapshot.status.phase != "Succeeded" and is_expired(snapshot, now)


def snapshot_status(snapshot: VirtualMachineSnapshot, observed: Observed, now: datetime) -> JsonObject:
    """The snapshot's next status. Without its content it keeps what was known of that."""
    status = encode(snapshot.status)
    status["conditions"] = condition_documents(snapshot.status.conditions)
    if observed.vm is not None and observed.content is not None and snapshot.status.source_uid is None:
        status.update(_description(observed.vm, observed.vmi, observed.content, observed.claims))
    if observed.content is not None:
        _take_over(status, observed.content.status)
    status.setdefault("readyToUse", False)
    taken = status.get("creationTime")
    ready = ("True", "Ready") if status["readyToUse"] else ("False", "Not ready")
    if snapshot.status.phase == "Failed" or (not taken and has_failed(snapshot, now)):
        status["phase"] = "Failed"
        progress = ("False", "Operation failed")
    elif taken or snapshot.status.phase == "Succeeded":
        status["phase"] = "Succeeded"
        progress = ("False", "Operation complete")
    else:
        status["phase"] = "InProgress"
        progress = _progress(observed)
    if "error" in status:
        progress = ("False", "In error state")
    set_progress(status, progress, ready)
    if status["phase"] == "Failed":
        failed = conditions.new_condition("Failure", "True", DEADLINE_REASON)
        conditions.put(status["conditions"], failed)
    return status


def _take_over(status: JsonObject, of_content: VirtualMachineSnapshotContentStatus) -> None:
    """Write into the snapshot's status what that of its content says."""
    said = encode(of_content)
    if said.get("creationTime"):
        status["creationTime"] = said["creationTime"]
    status["readyToUse"] = said.get("readyToUse") is True
    if said.get("error"):
        status["error"] = said["error"]
    else:
        status.pop("error", None)


def _progress(observed: Observed) -> tuple[str, str]:
    if observed.problem:
        return "False", observed.problem
    if observed.vm is None:
        return "False", "Source does not exist"
    if observed.content is None:
        return "False", f"Source not locked {observed.obstacle}".strip()
    return "True", "Source locked and operation in progress"


def _description(
    vm: VirtualMachine,
    vmi: VirtualMachineInstance | None,
    content: VirtualMachineSnapshotContent,
    claims: Mapping[str, JsonObject],
) -> JsonObject:
    """The fields of the status that describe the source once the content exists."""
    chosen = choose_volumes(vm, claims)
    listed: JsonObject = {}
    if content.spec.volume_backups:
        listed["includedVolumes"] = [backup.volume_name for backup in content.spec.volume_backups]
    if chosen.excluded:
        listed["excludedVolumes"] = list(chosen.excluded)
    result: JsonObject = {
        "sourceUID": vm.metadata.uid,
        "virtualMachineSnapshotContentName": content.metadata.name,
        "snapshotVolumes": listed,
    }
    indications = indications_of(vmi, chosen)
    if indications:
        result["indications"] = indications
        result["sourceIndications"] = described(indications)
    return result


def indications_of(vmi: VirtualMachineInstance | None, volumes: Volumes) -> list[str]:
    """The indications about a snapshot's consistency, in KubeVirt's order."""
    result: list[str] = []
    if vmi is not None:
        result.append("Online")
        if is_true(vmi.status.conditions, "Paused"):
            result.append("Paused")
        has_agent = is_true(vmi.status.conditions, "AgentConnected")
        result.append("GuestAgent" if has_agent else "NoGuestAgent")
    result.sort()
    return [*result, PARTIAL] if volumes.excluded else result


def described(indications: Iterable[str]) -> list[JsonObject]:
    """The indications with their descriptions."""
    texts = {**_ONLINE_TEXTS, PARTIAL: _PARTIAL_TEXT}
    return [{"indication": name, "message": texts[name]} for name in indications]


def set_progress(status: JsonObject, progressing: tuple[str, str], ready: tuple[str, str]) -> None:
    """Set both conditions; the text goes into the field reason, as in KubeVirt."""
    known = status.setdefault("conditions", [])
    conditions.put(known, conditions.new_condition("Progressing", *progressing))
    conditions.put(known, conditions.new_condition("Ready", *ready))
