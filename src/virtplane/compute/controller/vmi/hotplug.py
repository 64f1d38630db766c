"""Hotplugged volumes of an instance: its attachment pod, and the entries in volume status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import HotplugVolumeStatus, VolumeStatus
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.hotplug import hotplugged_volumes
from virtplane.compute.launcherpod.attachment import render_attachment_pod
from virtplane.compute.launcherpod.inputs import RenderInputs

NOT_PLUGGED = "HotplugNotSupported"
"""Reason of the event that tells of a volume which is accepted but never plugged into the guest."""

_ON_NODE = ("Ready", "MountedToPod", "HotplugVolumeMounted", "VolumeReady")


def hotplug_volumes(vmi: VirtualMachineInstance) -> list[Volume]:
    """The volumes of the spec that an attachment pod mounts."""
    names = hotplugged_volumes(vmi)
    return [volume for volume in vmi.spec.volumes if volume.name in names and claim_name(volume)]


def ready_volumes(vmi: VirtualMachineInstance, claims: Mapping[str, JsonObject]) -> list[Volume]:
    """The volumes whose claims are bound, so that a pod can mount them."""
    return [
        volume
        for volume in hotplug_volumes(vmi)
        if get_str(claims.get(claim_name(volume)), "status", "phase") == "Bound"
    ]


def carries(pod: JsonObject, volumes: list[Volume]) -> bool:
    """Whether an attachment pod has exactly these volumes."""
    carried = {
        get_str(item, "name"): get_str(item, "persistentVolumeClaim", "claimName")
        for item in get_list(pod, "spec", "volumes")
        if "persistentVolumeClaim" in item
    }
    return carried == {volume.name: claim_name(volume) for volume in volumes}


def obsolete_pods(
    current: JsonObject | None, attachments: list[JsonObject], wanted: bool
) -> list[JsonObject]:
    """Attachment pods to delete: all except the current one, once that one runs (or none is needed)."""
    others = [pod for pod in attachments if pod is not current and not meta.is_being_deleted(pod)]
    if not wanted or (current is not None and get_str(current, "status", "phase") == "Running"):
        return others
    return []


async def sync(
    cluster: Cluster, vmi: VirtualMachineInstance, launcher: JsonObject, own: list[JsonObject]
) -> SyncError | None:
    """Create the missing attachment pod, and delete obsolete ones."""
    attachments = [pod for pod in own if pods.is_attachment(pod)]
    if vmi.status.phase not in ("Scheduled", "Running") or pods.is_down(launcher):
        return None
    claims = cluster.claims_of(vmi.metadata.namespace)
    wanted = ready_volumes(vmi, claims)
    current = next((pod for pod in attachments if carries(pod, wanted) and not pods.is_down(pod)), None)
    for pod in obsolete_pods(current, attachments, bool(wanted)):
        await _delete(cluster, vmi, pod)
    if wanted and current is None and get_str(launcher, "spec", "nodeName"):
        return await _create(cluster, vmi, launcher, wanted)
    return None


async def _create(
    cluster: Cluster, vmi: VirtualMachineInstance, launcher: JsonObject, wanted: list[Volume]
) -> SyncError | None:
    inputs = RenderInputs(
        vmi=vmi,
        settings=cluster.settings(),
        images=cluster.images,
        claims=cluster.claims_of(vmi.metadata.namespace),
    )
    mounted = frozenset(item.name for item in vmi.status.volume_status if item.phase in _ON_NODE)
    rendered = render_attachment_pod(inputs, launcher, wanted, mounted)
    try:
        created = await cluster.client.create(resources.PODS, rendered)
    except StatusError as error:
        text = f"Error creating attachment pod: {error.message}"
        cluster.recorder.event(described(vmi), "Warning", "FailedCreate", text)
        return SyncError("FailedHotplugSync", text)
    cluster.recorder.event(
        described(vmi), "Normal", "SuccessfulCreate", f"Created attachment pod {meta.name(created)}"
    )
    names = ", ".join(volume.name for volume in wanted)
    cluster.recorder.event(
        described(vmi), "Warning", NOT_PLUGGED, f"{names}: no volume reaches a running guest yet"
    )
    return None


async def _delete(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
    try:
        await cluster.client.delete(
            resources.PODS, meta.name(pod), meta.namespace(pod), grace_period_seconds=0, uid=meta.uid(pod)
        )
    except StatusError as error:
        if not is_not_found(error):
            raise
        return
    cluster.recorder.event(
        described(vmi), "Normal", "SuccessfulDelete", f"Deleted attachment pod {meta.name(pod)}"
    )


def with_attachment(
    entries: Iterable[VolumeStatus],
    vmi: VirtualMachineInstance,
    attachments: list[JsonObject],
    claims: Mapping[str, JsonObject],
) -> list[VolumeStatus]:
    """Volume status entries with the state of attachment pods. Phases set by virt-handler are kept."""
    sources = {volume.name: volume for volume in hotplug_volumes(vmi)}
    result: list[VolumeStatus] = []
    for entry in entries:
        volume = sources.get(entry.name)
        if entry.hotplug_volume is None:
            result.append(entry)
        elif volume is not None:
            result.append(_attached(entry, claim_name(volume), attachments, claims))
        elif any(_carries_one(pod, entry.name) for pod in attachments):
            result.append(_detaching(entry, entry.hotplug_volume))
    return result


def _attached(
    entry: VolumeStatus, claim: str, attachments: list[JsonObject], claims: Mapping[str, JsonObject]
) -> VolumeStatus:
    carriers = [pod for pod in attachments if _carries_one(pod, entry.name) and not pods.is_down(pod)]
    pod = max(carriers, key=meta.creation_timestamp, default=None)
    if pod is None:
        new = replace(entry, hotplug_volume=HotplugVolumeStatus())
        return new if entry.phase in _ON_NODE else _waiting(new, claims.get(claim), claim)
    uid = meta.uid(pod) if _is_attachment_ready(pod) else None
    new = replace(
        entry, hotplug_volume=HotplugVolumeStatus(attach_pod_name=meta.name(pod), attach_pod_uid=uid)
    )
    if entry.phase in _ON_NODE:
        return new
    text = f"Created hotplug attachment pod {meta.name(pod)}, for volume {entry.name}"
    return replace(new, phase="AttachedToNode", reason="SuccessfulCreate", message=text)


def _waiting(entry: VolumeStatus, claim: JsonObject | None, name: str) -> VolumeStatus:
    if claim is None:
        return replace(entry, phase="Pending", reason="FailedPvcNotFound", message=f"PVC {name} not found")
    phase = "Bound" if get_str(claim, "status", "phase") == "Bound" else "Pending"
    return replace(entry, phase=phase, reason="PVCNotReady", message=f"PVC is in phase {phase}")


def _detaching(entry: VolumeStatus, attached: HotplugVolumeStatus) -> VolumeStatus:
    """The entry of a volume that left the spec: kept while an attachment pod still has it."""
    text = f"Deleted hotplug attachment pod {attached.attach_pod_name or ''}, for volume {entry.name}"
    return replace(entry, phase="Detaching", reason="SuccessfulDelete", message=text)


def _carries_one(pod: JsonObject, volume: str) -> bool:
    return any(get_str(item, "name") == volume for item in get_list(pod, "spec", "volumes"))


def _is_attachment_ready(pod: JsonObject) -> bool:
    statuses = get_list(pod, "status", "containerStatuses")
    return len(statuses) == 1 and statuses[0].get("ready") is True
