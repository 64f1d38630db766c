"""Dumps of the guest's memory into a claim (``status.memoryDumpRequest``).

The claim is a hotplugged volume of the instance while its node dumps, and a volume of the template until the
request is removed. What a phase asks of template and instance is done again in each pass, so that a pass that
was interrupted is made good by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_lost_race, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list
from kubecore.objects import meta, times
from kubecore.objects.structs import decode, encode
from kubecore.patch.guarded import guarded_patch, same_version
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineMemoryDumpRequest
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import as_written
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.status import SyncError
from virtplane.compute.hotplug import DUMP_FAILED, DUMPED

ASSOCIATING, IN_PROGRESS, UNMOUNTING = "Associating", "InProgress", "Unmounting"
COMPLETED, FAILED, DISSOCIATING = "Completed", "Failed", "Dissociating"

_MOUNTED = (ASSOCIATING, IN_PROGRESS)
"""Phases in which the instance has the claim."""

_STOPPED = "the virtual machine stopped before its memory was dumped"
_NO_DUMP = "Memory dump failed"
"""What the annotation of the claim says of a dump that failed."""


async def follow(cluster: Cluster, work: Draft, vmi: VirtualMachineInstance | None) -> SyncError | None:
    """Take the next step of the request, and note in the new status how far it is."""
    request = work.vm.observed.memory_dump_request
    if request is None:
        return None
    live = vmi if vmi is not None and _is_live(vmi) else None
    try:
        await _change_template(cluster, work, request)
        if live is not None:
            await _change_instance(cluster, live, request)
        if request.phase in (UNMOUNTING, FAILED):
            await _annotate_claim(cluster, work.vm.metadata.namespace, request)
    except StatusError as error:
        if is_lost_race(error):
            raise
        return SyncError("MemoryDumpError", f"Memory dump request error: {error.message}")
    fresh = next_request(request, live, times.now_rfc3339())
    if fresh is None:
        work.status.pop("memoryDumpRequest", None)
    else:
        work.status["memoryDumpRequest"] = encode(fresh)
    return None


def next_request(
    request: VirtualMachineMemoryDumpRequest, vmi: VirtualMachineInstance | None, now: str
) -> VirtualMachineMemoryDumpRequest | None:
    """The request after template and instance were changed for its phase; None once it is removed.

    `vmi` is None where no guest runs.
    """
    entry = _entry(request, vmi)
    if request.phase in _MOUNTED and vmi is None:
        return replace(request, phase=FAILED, message=_STOPPED, end_timestamp=now)
    if request.phase == ASSOCIATING:
        return replace(request, phase=IN_PROGRESS)
    if request.phase == IN_PROGRESS and entry is not None:
        return _ended(request, entry, now)
    if request.phase == UNMOUNTING and entry is None:
        return replace(request, phase=COMPLETED)
    if request.phase == DISSOCIATING and entry is None:
        return None
    return request


def _ended(
    request: VirtualMachineMemoryDumpRequest, entry: VolumeStatus, now: str
) -> VirtualMachineMemoryDumpRequest:
    """The request as the node reports its dump."""
    dump = entry.memory_dump_volume
    if dump is None or entry.phase not in (DUMPED, DUMP_FAILED):
        return request
    ended = replace(request, start_timestamp=dump.start_timestamp, end_timestamp=dump.end_timestamp or now)
    if entry.phase == DUMP_FAILED:
        return replace(ended, phase=FAILED, message=entry.message)
    return replace(ended, phase=UNMOUNTING, file_name=dump.target_file_name)


def _entry(
    request: VirtualMachineMemoryDumpRequest, vmi: VirtualMachineInstance | None
) -> VolumeStatus | None:
    entries = vmi.status.volume_status if vmi is not None else ()
    return next((each for each in entries if each.name == request.claim_name), None)


def _is_live(vmi: VirtualMachineInstance) -> bool:
    return not vmi.metadata.is_being_deleted and vmi.status.phase not in ("Succeeded", "Failed")


async def _change_template(cluster: Cluster, work: Draft, request: VirtualMachineMemoryDumpRequest) -> None:
    is_wanted = request.phase != DISSOCIATING
    if _has_volume(work.vm.spec.instance.volumes, request) == is_wanted:
        return
    before = await as_written(cluster, kinds.VIRTUAL_MACHINES, work.vm)
    after = deep_copy(before)
    _set_volume(after["spec"]["template"]["spec"], request.claim_name, is_wanted)
    operations = [*same_version(before), *guarded_patch(before, after, ("spec", "template", "spec"))]
    of = work.vm.metadata
    answer = await cluster.client.patch(
        kinds.VIRTUAL_MACHINES, of.name, operations, of.namespace, type="json"
    )
    work.vm = decode(VirtualMachine, answer)


async def _change_instance(
    cluster: Cluster, vmi: VirtualMachineInstance, request: VirtualMachineMemoryDumpRequest
) -> None:
    is_wanted = request.phase in _MOUNTED
    if _has_volume(vmi.spec.volumes, request) == is_wanted:
        return
    before = await as_written(cluster, kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    after = deep_copy(before)
    _set_volume(after["spec"], request.claim_name, is_wanted)
    kind, of = kinds.VIRTUAL_MACHINE_INSTANCES, vmi.metadata
    operations = guarded_patch(before, after, ("spec",))
    await cluster.client.patch(kind, of.name, operations, of.namespace, type="json")


def _has_volume(volumes: Iterable[Volume], request: VirtualMachineMemoryDumpRequest) -> bool:
    return any(each.memory_dump is not None and each.name == request.claim_name for each in volumes)


def _set_volume(spec: JsonObject, claim: str, is_wanted: bool) -> None:
    """Give a spec the volume of a dump, or take it away."""
    volumes = [
        item for item in get_list(spec, "volumes") if item.get("name") != claim or "memoryDump" not in item
    ]
    if is_wanted:
        volumes.append({"name": claim, "memoryDump": {"claimName": claim, "hotpluggable": True}})
    spec["volumes"] = volumes


async def _annotate_claim(cluster: Cluster, namespace: str, request: VirtualMachineMemoryDumpRequest) -> None:
    """Note on the claim which file of it has the dump."""
    text = _NO_DUMP if request.phase == FAILED else request.file_name or ""
    claim = cluster.claims_of(namespace).get(request.claim_name)
    if claim is None or meta.annotations(claim).get(labels.MEMORY_DUMP) == text:
        return
    mark = {"metadata": {"annotations": {labels.MEMORY_DUMP: text}}}
    kind = resources.PERSISTENT_VOLUME_CLAIMS
    try:
        await cluster.client.patch(kind, request.claim_name, mark, namespace, type="merge")
    except StatusError as error:
        if not is_not_found(error):
            raise
