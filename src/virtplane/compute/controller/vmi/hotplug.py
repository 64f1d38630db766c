"""Hotplugged volumes of an instance: its attachment pods, and the entries in volume status.

One pod has all the volumes. When the set changes, another is created, and the old one stays until the new one
runs and nothing of the old one's volumes is left in the launcher's pod that the new one does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.storage_class import class_of
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import HotplugVolumeStatus, VolumeStatus
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.storage import populating
from virtplane.compute.hotplug import (
    ATTACHED,
    BOUND,
    DETACHING,
    ON_NODE,
    PENDING,
    UNMOUNTED,
    all_volumes,
    held_claim,
    hotplugged_volumes,
    is_leaving,
)
from virtplane.compute.launcherpod.attachment import render_attachment_pod, render_trigger_pod
from virtplane.compute.launcherpod.inputs import RenderInputs

_WAITING = ("WaitForFirstConsumer", "PendingPopulation")
"""Phases of a DataVolume whose claim is filled once a pod uses it."""

_HELD = (ATTACHED, *ON_NODE, DETACHING)
"""Phases in which the launcher's pod may have the volume."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The objects that decide which volumes a pod can mount."""

    claims: Mapping[str, JsonObject]
    data_volumes: Mapping[str, JsonObject]
    late_classes: frozenset[str] = frozenset()
    """Storage classes whose claims are bound once a pod uses them."""

    def is_ready(self, volume: Volume) -> bool:
        """Whether a pod can mount the volume: its claim is bound, and filled."""
        claim = self.claims.get(claim_name(volume))
        data_volume = self._data_volume(volume)
        is_filled = data_volume is None or get_str(data_volume, "status", "phase") == "Succeeded"
        return is_filled and _is_bound(claim)

    def waits_for_consumer(self, volume: Volume) -> bool:
        """Whether the claim is bound only once a pod uses it."""
        claim = self.claims.get(claim_name(volume))
        if claim is None or _is_bound(claim):
            return False
        data_volume = self._data_volume(volume)
        if data_volume is not None:
            return get_str(data_volume, "status", "phase") in _WAITING
        return class_of(claim) in self.late_classes

    def _data_volume(self, volume: Volume) -> JsonObject | None:
        name = claim_name(volume)
        return self.data_volumes.get(name) or populating(self.claims.get(name), self.data_volumes)


def storage_of(cluster: Cluster, namespace: str) -> Storage:
    """What the caches know of a namespace's storage."""
    classes = cluster.informer(resources.STORAGE_CLASSES).list()
    late = {
        meta.name(each) for each in classes if get_str(each, "volumeBindingMode") == "WaitForFirstConsumer"
    }
    return Storage(cluster.claims_of(namespace), cluster.data_volumes_of(namespace), frozenset(late))


def hotplug_volumes(vmi: VirtualMachineInstance) -> list[Volume]:
    """The volumes of the spec that attachment pods mount, except those whose former claim still leaves."""
    names = hotplugged_volumes(vmi) - {
        each.name for each in vmi.status.volume_status if is_leaving(each, vmi)
    }
    return [volume for volume in all_volumes(vmi) if volume.name in names and claim_name(volume)]


def carried(pod: JsonObject) -> dict[str, str]:
    """The claims of an attachment pod by volume."""
    return {
        get_str(item, "name"): get_str(item, "persistentVolumeClaim", "claimName")
        for item in get_list(pod, "spec", "volumes")
        if "persistentVolumeClaim" in item
    }


def current_pod(attachments: Iterable[JsonObject], volumes: Sequence[Volume]) -> JsonObject | None:
    """The attachment pod that has exactly these volumes; of several the one that runs, else the oldest."""
    wanted = {volume.name: claim_name(volume) for volume in volumes}
    fit = [pod for pod in attachments if carried(pod) == wanted and not pods.is_down(pod)]
    return min(
        fit, key=lambda pod: (not _runs(pod), meta.creation_timestamp(pod), meta.uid(pod)), default=None
    )


def obsolete_pods(
    current: JsonObject | None, attachments: Iterable[JsonObject], entries: Iterable[VolumeStatus]
) -> list[JsonObject]:
    """Attachment pods to delete: each but the current one, once nothing depends on it.

    A volume that may be in the launcher's pod needs another running pod that has it: taken from its node, it
    would be taken from the guest.
    """
    held = {
        (entry.name, held_claim(entry)) for entry in entries if entry.hotplug_volume and entry.phase in _HELD
    }
    kept = set(carried(current).items()) if current is not None and _runs(current) else set()
    return [
        pod
        for pod in attachments
        if pod is not current
        and not meta.is_being_deleted(pod)
        and (pods.is_finished(pod) or not (held & set(carried(pod).items())) - kept)
    ]


class AttachmentPods:
    """Creates and deletes the attachment pods of one instance. `creating` is put around each creation."""

    def __init__(
        self,
        cluster: Cluster,
        vmi: VirtualMachineInstance,
        launcher: JsonObject,
        creating: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._cluster = cluster
        self._vmi = vmi
        self._launcher = launcher
        self._creating = creating

    async def sync(self, own: Iterable[JsonObject]) -> SyncError | None:
        """Create the missing pods among `own`, the instance's, and delete obsolete ones."""
        vmi, launcher = self._vmi, self._launcher
        if vmi.status.phase not in ("Scheduled", "Running") or pods.is_down(launcher):
            return None
        storage = storage_of(self._cluster, vmi.metadata.namespace)
        found = [pod for pod in own if pods.is_attachment(pod)]
        attachments = [pod for pod in found if not pods.is_temporary(pod)]
        wanted = [volume for volume in hotplug_volumes(vmi) if storage.is_ready(volume)]
        current = current_pod(attachments, wanted) if wanted else None
        for pod in obsolete_pods(current, attachments, vmi.status.volume_status):
            await self._delete(pod)
        if not get_str(launcher, "spec", "nodeName"):
            return None
        error = await self._trigger(storage, [pod for pod in found if pods.is_temporary(pod)])
        if wanted and current is None:
            error = error or await self._attach(wanted)
        return error

    async def _trigger(self, storage: Storage, triggers: Sequence[JsonObject]) -> SyncError | None:
        """Let claims be bound to storage that the launcher's node can reach."""
        waiting = {
            volume.name: volume for volume in hotplug_volumes(self._vmi) if storage.waits_for_consumer(volume)
        }
        for pod in triggers:
            if not waiting.keys() & carried(pod).keys() and not meta.is_being_deleted(pod):
                await self._delete(pod)
        served = {name for pod in triggers if not pods.is_finished(pod) for name in carried(pod)}
        for name, volume in waiting.items():
            if name not in served:
                pod = render_trigger_pod(self._inputs(), self._launcher, volume)
                error = await self._create(pod, f"Created hotplug trigger pod for volume {name}")
                if error is not None:
                    return error
        return None

    async def _attach(self, wanted: Sequence[Volume]) -> SyncError | None:
        mounted = frozenset(item.name for item in self._vmi.status.volume_status if item.phase in ON_NODE)
        return await self._create(render_attachment_pod(self._inputs(), self._launcher, wanted, mounted))

    async def _create(self, pod: JsonObject, text: str = "") -> SyncError | None:
        event = self._cluster.recorder.event
        try:
            with self._creating():
                created = await self._cluster.client.create(resources.PODS, pod)
        except StatusError as error:
            text = f"Error creating attachment pod: {error.message}"
            event(described(self._vmi), "Warning", "FailedCreate", text)
            return SyncError("FailedHotplugSync", text)
        text = text or f"Created attachment pod {meta.name(created)}"
        event(described(self._vmi), "Normal", "SuccessfulCreate", text)
        return None

    async def _delete(self, pod: JsonObject) -> None:
        name, namespace = meta.name(pod), meta.namespace(pod)
        delete = self._cluster.client.delete
        try:
            await delete(resources.PODS, name, namespace, grace_period_seconds=0, uid=meta.uid(pod))
        except StatusError as error:
            if not is_not_found(error):
                raise
            return
        event = self._cluster.recorder.event
        event(described(self._vmi), "Normal", "SuccessfulDelete", f"Deleted attachment pod {name}")

    def _inputs(self) -> RenderInputs:
        cluster = self._cluster
        return RenderInputs(
            vmi=self._vmi,
            settings=cluster.settings(),
            images=cluster.images,
            claims=cluster.claims_of(self._vmi.metadata.namespace),
        )


def with_attachment(
    entries: Iterable[VolumeStatus],
    vmi: VirtualMachineInstance,
    attachments: Iterable[JsonObject],
    claims: Mapping[str, JsonObject],
) -> list[VolumeStatus]:
    """Volume status entries with the state of attachment pods. Phases set by virt-handler are kept."""
    sources = {volume.name: volume for volume in hotplug_volumes(vmi)}
    found = [pod for pod in attachments if not pods.is_temporary(pod)]
    result: list[VolumeStatus] = []
    for entry in entries:
        volume = sources.get(entry.name)
        if entry.hotplug_volume is None:
            result.append(entry)
        elif volume is not None:
            result.append(_attached(entry, claim_name(volume), found, claims))
        elif not _has_left(entry, found):
            result.append(_detaching(entry, entry.hotplug_volume))
    return result


def _has_left(entry: VolumeStatus, attachments: Iterable[JsonObject]) -> bool:
    """Whether neither a pod nor the launcher has the volume any more."""
    return entry.phase not in _HELD and not any(_carries_one(pod, entry) for pod in attachments)


def _attached(
    entry: VolumeStatus, claim: str, attachments: Iterable[JsonObject], claims: Mapping[str, JsonObject]
) -> VolumeStatus:
    carriers = [pod for pod in attachments if carried(pod).get(entry.name) == claim and not pods.is_down(pod)]
    pod = max(
        carriers, key=lambda each: (_is_attachment_ready(each), meta.creation_timestamp(each)), default=None
    )
    if pod is None:
        if entry.phase in ON_NODE:
            # Until another pod has the volume, its status names the last one, as KubeVirt's does.
            last = entry.hotplug_volume.attach_pod_name if entry.hotplug_volume else None
            return replace(entry, hotplug_volume=HotplugVolumeStatus(attach_pod_name=last))
        new = replace(entry, hotplug_volume=HotplugVolumeStatus())
        return _waiting(new, claims.get(claim), claim)
    uid = meta.uid(pod) if _is_attachment_ready(pod) else None
    new = replace(
        entry, hotplug_volume=HotplugVolumeStatus(attach_pod_name=meta.name(pod), attach_pod_uid=uid)
    )
    if entry.phase in ON_NODE:
        return new
    text = f"Created hotplug attachment pod {meta.name(pod)}, for volume {entry.name}"
    return replace(new, phase=ATTACHED, reason="SuccessfulCreate", message=text)


def _waiting(entry: VolumeStatus, claim: JsonObject | None, name: str) -> VolumeStatus:
    if claim is None:
        return replace(entry, phase=PENDING, reason="FailedPvcNotFound", message=f"PVC {name} not found")
    phase = BOUND if _is_bound(claim) else PENDING
    return replace(entry, phase=phase, reason="PVCNotReady", message=f"PVC is in phase {phase}")


def _detaching(entry: VolumeStatus, attached: HotplugVolumeStatus) -> VolumeStatus:
    """The entry of a volume that leaves; virt-handler says when the launcher's pod is rid of it."""
    if entry.phase == UNMOUNTED:
        return entry
    text = f"Deleted hotplug attachment pod {attached.attach_pod_name or ''}, for volume {entry.name}"
    return replace(entry, phase=DETACHING, reason="SuccessfulDelete", message=text)


def _carries_one(pod: JsonObject, entry: VolumeStatus) -> bool:
    claim = carried(pod).get(entry.name)
    return claim is not None and held_claim(entry) in ("", claim)


def _is_bound(claim: JsonObject | None) -> bool:
    return get_str(claim, "status", "phase") == "Bound"


def _runs(pod: JsonObject) -> bool:
    return get_str(pod, "status", "phase") == "Running"


def _is_attachment_ready(pod: JsonObject) -> bool:
    statuses = get_list(pod, "status", "containerStatuses")
    return len(statuses) == 1 and statuses[0].get("ready") is True
