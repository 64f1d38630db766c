"""Requests to add and remove volumes (``status.volumeRequests``, with the gate HotplugVolumes).

Each request changes the VM's template, and the running instance as well. It is dropped once both are as it
asks: an interrupted change is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.errors import StatusError, is_lost_race
from kubecore.json import JsonObject, deep_copy, get_list
from kubecore.objects.structs import decode, encode
from kubecore.patch.guarded import guarded_patch
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineVolumeRequest
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import as_written
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.status import SyncError

_FINAL = ("Succeeded", "Failed")


async def fulfil(cluster: Cluster, work: Draft, vmi: VirtualMachineInstance | None) -> SyncError | None:
    """Change template and instance as requested, and drop the requests from the new status."""
    requests = work.vm.observed.volume_requests
    if not requests:
        return None
    is_live = vmi is not None and not vmi.metadata.is_being_deleted and vmi.status.phase not in _FINAL
    if vmi is not None and is_live and vmi.status.phase != "Running":
        return None  # a guest that starts gets them once it runs
    try:
        await _change_template(cluster, work, requests)
        if vmi is not None and is_live:
            await _change_instance(cluster, vmi, requests)
    except StatusError as error:
        if is_lost_race(error):
            raise
        text = f"Error encountered while handling volume hotplug requests: {error.message}"
        return SyncError("HotPlugVolumeError", text)
    work.status.pop("volumeRequests", None)
    return None


async def _change_template(
    cluster: Cluster, work: Draft, requests: Sequence[VirtualMachineVolumeRequest]
) -> None:
    before = await as_written(cluster, kinds.VIRTUAL_MACHINES, work.vm)
    after = deep_copy(before)
    apply(after["spec"]["template"]["spec"], requests)
    patch = guarded_patch(before, after, ("spec", "template", "spec"))
    if patch:
        of = work.vm.metadata
        answer = await cluster.client.patch(kinds.VIRTUAL_MACHINES, of.name, patch, of.namespace, type="json")
        work.vm = decode(VirtualMachine, answer)


async def _change_instance(
    cluster: Cluster, vmi: VirtualMachineInstance, requests: Sequence[VirtualMachineVolumeRequest]
) -> None:
    before = await as_written(cluster, kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    after = deep_copy(before)
    apply(after["spec"], requests)
    patch = guarded_patch(before, after, ("spec",))
    if patch:
        of = vmi.metadata
        kind = kinds.VIRTUAL_MACHINE_INSTANCES
        await cluster.client.patch(kind, of.name, patch, of.namespace, type="json")


def apply(spec: JsonObject, requests: Sequence[VirtualMachineVolumeRequest]) -> None:
    """Change a spec as requested; what is so already stays as it is."""
    for request in requests:
        add, remove = request.add_volume_options, request.remove_volume_options
        if add is not None:
            _add(spec, add.name, {"name": add.name, **encode(add.volume_source)}, encode(add.disk))
        elif remove is not None:
            _remove(spec, remove.name)


def _add(spec: JsonObject, name: str, volume: JsonObject, disk: JsonObject) -> None:
    volumes, devices = spec.setdefault("volumes", []), spec["domain"].setdefault("devices", {})
    disks = devices.setdefault("disks", [])
    if all(item.get("name") != name for item in volumes):
        volumes.append(volume)
    if all(item.get("name") != name for item in disks):
        disks.append({**disk, "name": name})


def _remove(spec: JsonObject, name: str) -> None:
    gone = {item["name"] for item in get_list(spec, "volumes") if name in (item["name"], *_sources(item))}
    devices = spec["domain"].get("devices", {})
    for holder, key in ((spec, "volumes"), (devices, "disks")):
        if key in holder:
            holder[key] = [item for item in holder[key] if item.get("name") not in gone]


def _sources(volume: JsonObject) -> list[str]:
    """The claim or DataVolume of a volume, by which it may be named."""
    found = [
        volume.get("dataVolume", {}).get("name"),
        volume.get("persistentVolumeClaim", {}).get("claimName"),
    ]
    return [name for name in found if name]
