"""Hotplugged volumes of an instance: the attachment pod that is wanted, and what volume status says of it."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.hotplug import hotplugged_volumes
from virtplane.compute.launcherpod.attachment import render_attachment_pod
from virtplane.compute.launcherpod.inputs import RenderInputs

NOT_PLUGGED = "HotplugNotSupported"
"""Reason of the event that tells of a volume which is accepted but never plugged into the guest."""

_ON_NODE = ("Ready", "MountedToPod", "HotplugVolumeMounted", "VolumeReady")


def hotplug_volumes(vmi: VirtualMachineInstance) -> list[Volume]:
    """The volumes of the spec that attachment pods bring."""
    names = hotplugged_volumes(vmi)
    return [volume for volume in vmi.spec.volumes if volume.name in names and claim_name(volume)]


def ready_volumes(vmi: VirtualMachineInstance, claims: Mapping[str, JsonObject]) -> list[Volume]:
    """Those whose claims are bound, so that a pod can use them."""
    return [
        volume
        for volume in hotplug_volumes(vmi)
        if get_str(claims.get(claim_name(volume)), "status", "phase") == "Bound"
    ]


def carries(pod: JsonObject, volumes: list[Volume]) -> bool:
    """Whether an attachment pod brings exactly these volumes."""
    carried = {
        get_str(item, "name"): get_str(item, "persistentVolumeClaim", "claimName")
        for item in get_list(pod, "spec", "volumes")
        if "persistentVolumeClaim" in item
    }
    return carried == {volume.name: claim_name(volume) for volume in volumes}


def obsolete_pods(
    current: JsonObject | None, attachments: list[JsonObject], wanted: bool
) -> list[JsonObject]:
    """Attachment pods to delete: all but the current one, once that one runs (or none is wanted)."""
    others = [pod for pod in attachments if pod is not current and not meta.is_being_deleted(pod)]
    if not wanted or (current is not None and get_str(current, "status", "phase") == "Running"):
        return others
    return []


async def sync(
    cluster: Cluster, vmi: JsonObject, launcher: JsonObject, own: list[JsonObject]
) -> SyncError | None:
    """Creates the attachment pod that is missing and deletes those that are not needed any more."""
    attachments = [pod for pod in own if pods.is_attachment(pod)]
    if get_str(vmi, "status", "phase") not in ("Scheduled", "Running") or pods.is_down(launcher):
        return None
    claims = cluster.claims_of(meta.namespace(vmi))
    wanted = ready_volumes(decode(VirtualMachineInstance, vmi), claims)
    current = next((pod for pod in attachments if carries(pod, wanted) and not pods.is_down(pod)), None)
    for pod in obsolete_pods(current, attachments, bool(wanted)):
        await _delete(cluster, vmi, pod)
    if wanted and current is None and get_str(launcher, "spec", "nodeName"):
        return await _create(cluster, vmi, launcher, wanted)
    return None


async def _create(
    cluster: Cluster, vmi: JsonObject, launcher: JsonObject, wanted: list[Volume]
) -> SyncError | None:
    inputs = RenderInputs(
        vmi=decode(VirtualMachineInstance, vmi),
        settings=cluster.settings(),
        images=cluster.images,
        claims=cluster.claims_of(meta.namespace(vmi)),
    )
    mounted = {
        get_str(item, "name")
        for item in get_list(vmi, "status", "volumeStatus")
        if item.get("phase") in _ON_NODE
    }
    rendered = render_attachment_pod(inputs, launcher, wanted, frozenset(mounted))
    try:
        created = await cluster.client.create(resources.PODS, rendered)
    except StatusError as error:
        text = f"Error creating attachment pod: {error.message}"
        cluster.recorder.event(vmi, "Warning", "FailedCreate", text)
        return SyncError("FailedHotplugSync", text)
    cluster.recorder.event(vmi, "Normal", "SuccessfulCreate", f"Created attachment pod {meta.name(created)}")
    names = ", ".join(volume.name for volume in wanted)
    cluster.recorder.event(vmi, "Warning", NOT_PLUGGED, f"{names}: no volume reaches a running guest yet")
    return None


async def _delete(cluster: Cluster, vmi: JsonObject, pod: JsonObject) -> None:
    try:
        await cluster.client.delete(
            resources.PODS, meta.name(pod), meta.namespace(pod), grace_period_seconds=0, uid=meta.uid(pod)
        )
    except StatusError as error:
        if not is_not_found(error):
            raise
        return
    cluster.recorder.event(vmi, "Normal", "SuccessfulDelete", f"Deleted attachment pod {meta.name(pod)}")


def with_attachment(
    entries: list[JsonObject],
    vmi: JsonObject,
    attachments: list[JsonObject],
    claims: Mapping[str, JsonObject],
) -> list[JsonObject]:
    """Volume status entries with what attachment pods tell. Phases that the node agent set are kept."""
    sources = {volume.name: volume for volume in hotplug_volumes(decode(VirtualMachineInstance, vmi))}
    result = []
    for entry in entries:
        if entry.get("hotplugVolume") is None:
            result.append(entry)
            continue
        volume = sources.get(get_str(entry, "name"))
        updated = _attached(entry, volume, attachments, claims) if volume else _detaching(entry, attachments)
        if updated is not None:
            result.append(updated)
    return result


def _attached(
    entry: JsonObject, volume: Volume, attachments: list[JsonObject], claims: Mapping[str, JsonObject]
) -> JsonObject:
    new = deep_copy(entry)
    name, claim = get_str(entry, "name"), claim_name(volume)
    carriers = [pod for pod in attachments if _carries_one(pod, name) and not pods.is_down(pod)]
    pod = max(carriers, key=meta.creation_timestamp, default=None)
    if pod is None:
        new["hotplugVolume"] = {}
        if entry.get("phase") not in _ON_NODE:
            new.update(_waiting(claim, claims))
        return new
    new["hotplugVolume"] = {"attachPodName": meta.name(pod)}
    if _is_attachment_ready(pod):
        new["hotplugVolume"]["attachPodUID"] = meta.uid(pod)
    if entry.get("phase") not in _ON_NODE:
        text = f"Created hotplug attachment pod {meta.name(pod)}, for volume {name}"
        new.update({"phase": "AttachedToNode", "reason": "SuccessfulCreate", "message": text})
    return new


def _waiting(claim: str, claims: Mapping[str, JsonObject]) -> JsonObject:
    found = claims.get(claim)
    if found is None:
        return {"phase": "Pending", "reason": "FailedPvcNotFound", "message": f"PVC {claim} not found"}
    if get_str(found, "status", "phase") != "Bound":
        return {"phase": "Pending", "reason": "PVCNotReady", "message": "PVC is in phase Pending"}
    return {"phase": "Bound", "reason": "PVCNotReady", "message": "PVC is in phase Bound"}


def _detaching(entry: JsonObject, attachments: list[JsonObject]) -> JsonObject | None:
    """An entry whose volume left the spec: kept while an attachment pod still brings it."""
    name = get_str(entry, "name")
    if not any(_carries_one(pod, name) for pod in attachments):
        return None
    pod_name = get_str(entry, "hotplugVolume", "attachPodName")
    text = f"Deleted hotplug attachment pod {pod_name}, for volume {name}"
    return {**entry, "phase": "Detaching", "reason": "SuccessfulDelete", "message": text}


def _carries_one(pod: JsonObject, volume: str) -> bool:
    return any(get_str(item, "name") == volume for item in get_list(pod, "spec", "volumes"))


def _is_attachment_ready(pod: JsonObject) -> bool:
    statuses = get_list(pod, "status", "containerStatuses")
    return len(statuses) == 1 and statuses[0].get("ready") is True
