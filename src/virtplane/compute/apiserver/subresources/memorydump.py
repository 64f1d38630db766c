"""Requests for memory dumps: what they need, and the operations that note them in the VM's status."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources.refusals import machine_conflict

_EXTRA_BYTES = 100 * 1024 * 1024
_OVERHEAD = 0.055
_PATH = "/status/memoryDumpRequest"


def claim_to_use(vm: JsonObject, options: JsonObject) -> str:
    """The claim for the dump: named in this request, or in an earlier one."""
    present = get_object(vm, "status", "memoryDumpRequest")
    associated = get_str(present, "claimName")
    asked = get_str(options, "claimName")
    if not asked and not associated:
        raise errors.bad_request("Memory dump requires claim name to be set")
    if asked and associated and asked != associated:
        text = f"can't request memory dump for pvc [{asked}] while pvc [{associated}] is still associated"
        raise machine_conflict(meta.name(vm), f"{text} as the memory dump pvc")
    claim = asked or associated
    if present.get("remove") is True or get_str(present, "phase") == "Dissociating":
        text = f"can't dump memory for pvc [{claim}] a remove memory dump request is in progress"
        raise machine_conflict(meta.name(vm), text)
    if present and get_str(present, "phase") not in ("Completed", "Failed"):
        text = f"memory dump request for pvc [{claim}] already in progress"
        raise machine_conflict(meta.name(vm), text)
    return claim


def check_claim(vm: JsonObject, vmi: VirtualMachineInstance, claim: JsonObject) -> None:
    """Raises when a dump does not fit or cannot be written."""
    name = meta.name(vm)
    if get_str(claim, "spec", "volumeMode") == "Block":
        raise machine_conflict(name, "pvc should be filesystem pvc")
    if get_list(claim, "spec", "accessModes") == ["ReadOnlyMany"]:
        raise machine_conflict(name, "pvc access mode can't be read only")
    domain = vmi.spec.domain
    memory = domain.resources.requests.get("memory") or domain.memory.guest or 0
    needed = int((Quantity.parse(memory).value + _EXTRA_BYTES) * (1 + _OVERHEAD))
    size = get_object(claim, "spec", "resources", "requests").get("storage") or 0
    if Quantity.parse(size).value // 1000 < needed // 1000:
        raise machine_conflict(name, f"pvc size [{size}] should be bigger then [{needed}]")


def request_operations(vm: JsonObject, claim: str) -> list[JsonObject]:
    """Operations that note a new request."""
    return _set(vm, {"claimName": claim, "phase": "Associating"})


def removal_operations(vm: JsonObject) -> list[JsonObject]:
    """The operations that record the removal of the claim."""
    present = get_object(vm, "status", "memoryDumpRequest")
    claim = get_str(present, "claimName")
    if not claim:
        text = f"can't remove memory dump association for vm {meta.name(vm)}, no association found"
        raise machine_conflict(meta.name(vm), text)
    if present.get("remove") is True:
        text = f"memory dump remove request for pvc [{claim}] already exists"
        raise machine_conflict(meta.name(vm), text)
    return _set(vm, {"claimName": claim, "phase": "Dissociating", "remove": True})


def _set(vm: JsonObject, value: JsonObject) -> list[JsonObject]:
    present = get_object(vm, "status").get("memoryDumpRequest")
    if present is None:
        return [{"op": "add", "path": _PATH, "value": value}]
    return [
        {"op": "test", "path": _PATH, "value": present},
        {"op": "replace", "path": _PATH, "value": value},
    ]
