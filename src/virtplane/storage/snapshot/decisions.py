"""What a snapshot consists of and how far it has come: pure decisions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import decode
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster import conditions

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
_DEFAULT_DEADLINE_SECONDS = 300.0
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class Volumes:
    """Which volumes a snapshot takes and which it leaves out."""

    included: tuple[tuple[str, JsonObject], ...] = ()
    """Names with their claims."""
    excluded: tuple[str, ...] = ()


def content_name(snapshot: JsonObject) -> str:
    """The name of a snapshot's content."""
    return f"vmsnapshot-content-{meta.uid(snapshot)}"


def seconds_of(duration: str) -> float:
    """Seconds of a duration as Go writes it (``1h30m``); 0 for none."""
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(h|ms|us|ns|m|s)", duration)
    )


def deadline_seconds(snapshot: JsonObject) -> float:
    """Seconds after creation at which an unfinished snapshot fails; 0 for never."""
    given = get_object(snapshot, "spec").get("failureDeadline")
    return _DEFAULT_DEADLINE_SECONDS if given is None else seconds_of(str(given))


def is_expired(snapshot: JsonObject, now: datetime) -> bool:
    """Whether the deadline has passed."""
    limit = deadline_seconds(snapshot)
    age = (now - times.parse_time(meta.creation_timestamp(snapshot))).total_seconds()
    return 0 < limit < age


def choose_volumes(vm: JsonObject, claims: Mapping[str, JsonObject]) -> Volumes:
    """By the VM's own account of what can be snapshotted; volumes without claims never can."""
    enabled = {
        get_str(item, "name"): item.get("enabled") is True
        for item in get_list(vm, "status", "volumeSnapshotStatuses")
    }
    included: list[tuple[str, JsonObject]] = []
    excluded: list[str] = []
    for volume in get_list(vm, "spec", "template", "spec", "volumes"):
        name, claim = get_str(volume, "name"), claims.get(claim_name(decode(Volume, volume)))
        if enabled.get(name) and claim is not None:
            included.append((name, claim))
        elif claim_name(decode(Volume, volume)):
            excluded.append(name)
    return Volumes(tuple(included), tuple(excluded))


def new_content(snapshot: JsonObject, vm: JsonObject, spec: JsonObject, volumes: Volumes) -> JsonObject:
    """The content: the VM as it is (`spec` as its guest runs it) and its claims."""
    metadata = {key: value for key, value in meta.metadata(vm).items() if key != "managedFields"}
    refs = ("instancetypeRef", "preferenceRef")
    status = {key: deep_copy(vm["status"][key]) for key in refs if key in get_object(vm, "status")}
    source = {"metadata": metadata, "spec": spec, "status": status}
    content: JsonObject = {
        "virtualMachineSnapshotName": meta.name(snapshot),
        "source": {"virtualMachine": source},
    }
    backups = [
        {
            "volumeName": name,
            "persistentVolumeClaim": {
                "metadata": {
                    key: value for key, value in meta.metadata(claim).items() if key != "managedFields"
                },
                "spec": deep_copy(get_object(claim, "spec")),
            },
            "volumeSnapshotName": f"vmsnapshot-{meta.uid(snapshot)}-volume-{name}",
        }
        for name, claim in volumes.included
    ]
    if backups:
        content["volumeBackups"] = backups
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS.api_version,
        "kind": kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS.kind,
        "metadata": {
            "name": content_name(snapshot),
            "namespace": meta.namespace(snapshot),
            "finalizers": [CONTENT_FINALIZER],
        },
        "spec": content,
    }


def volume_snapshot(content: JsonObject, backup: JsonObject, snapshot_class: str) -> JsonObject:
    """The VolumeSnapshot of one claim."""
    vm = get_object(content, "spec", "source", "virtualMachine", "metadata")
    spec: JsonObject = {
        "source": {"persistentVolumeClaimName": get_str(backup, "persistentVolumeClaim", "metadata", "name")}
    }
    if snapshot_class:
        spec["volumeSnapshotClassName"] = snapshot_class
    return {
        "apiVersion": kinds.VOLUME_SNAPSHOTS.api_version,
        "kind": kinds.VOLUME_SNAPSHOTS.kind,
        "metadata": {
            "name": get_str(backup, "volumeSnapshotName"),
            "namespace": meta.namespace(content),
            "labels": {
                "snapshot.kubevirt.io/source-vm-name": get_str(vm, "name"),
                "snapshot.kubevirt.io/source-vm-namespace": get_str(vm, "namespace"),
            },
            "ownerReferences": [meta.new_controller_ref(content, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS)],
        },
        "spec": spec,
    }


def snapshot_class(driver: str, classes: Iterable[JsonObject]) -> str:
    """The class for a driver: the only one, else the default one; empty when it cannot be told."""
    found = [item for item in classes if get_str(item, "driver") == driver]
    if len(found) == 1:
        return meta.name(found[0])
    key = "snapshot.storage.kubernetes.io/is-default-class"
    return next((meta.name(item) for item in found if meta.annotations(item).get(key) == "true"), "")


def content_status(content: JsonObject, found: Mapping[str, JsonObject]) -> JsonObject:
    """The content's status from its VolumeSnapshots by name."""
    status = deep_copy(get_object(content, "status"))
    entries: list[JsonObject] = []
    for backup in get_list(content, "spec", "volumeBackups"):
        name = get_str(backup, "volumeSnapshotName")
        reported = get_object(found.get(name), "status")
        entry: JsonObject = {"volumeSnapshotName": name}
        for key in ("creationTime", "readyToUse", "error"):
            if key in reported:
                entry[key] = reported[key]
        entries.append(entry)
    if entries:
        status["volumeSnapshotStatus"] = entries
    if all(entry.get("creationTime") for entry in entries):
        status.setdefault("creationTime", times.now_rfc3339())
    status["readyToUse"] = all(entry.get("readyToUse") is True for entry in entries)
    failed = [entry["error"] for entry in entries if entry.get("error")]
    if failed:
        status["error"] = failed[0]
    else:
        status.pop("error", None)
    return status


def indications_of(vm: JsonObject, vmi: JsonObject | None, volumes: Volumes) -> list[str]:
    """What users should know about a snapshot's consistency."""
    result: list[str] = []
    if vmi is not None:
        result.append("Online")
        if meta.is_condition_true(vmi, "Paused"):
            result.append("Paused")
        has_agent = meta.is_condition_true(vmi, "AgentConnected")
        result.append("GuestAgent" if has_agent else "NoGuestAgent")
    del vm
    return [*result, PARTIAL] if volumes.excluded else result


def described(indications: Iterable[str]) -> list[JsonObject]:
    """Indications with the sentences that explain them."""
    texts = {**_ONLINE_TEXTS, PARTIAL: _PARTIAL_TEXT}
    return [{"indication": name, "message": texts[name]} for name in indications]


def set_progress(status: JsonObject, progressing: tuple[str, str], ready: tuple[str, str]) -> None:
    """The two conditions: status and text, which goes where reasons go."""
    known = status.setdefault("conditions", [])
    conditions.put(known, conditions.new_condition("Progressing", *progressing))
    conditions.put(known, conditions.new_condition("Ready", *ready))
