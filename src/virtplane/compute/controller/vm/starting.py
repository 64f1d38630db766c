"""The instance that a VM starts, and the revision that remembers what it was started from."""

from __future__ import annotations

import uuid

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.compute.controller.vm.strategy import first_request
from virtplane.compute.controller.vmi.phases import RECEIVER_ANNOTATION, VM_FINALIZER
from virtplane.instancetypes.defaults import default_disks

GENERATION_ANNOTATION = wellknown.VM_GENERATION
_FIRMWARE_NAMESPACE = uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")


def firmware_uuid(name: str) -> str:
    """The firmware's UUID of a VM that names none: always the same for one name."""
    return str(uuid.uuid5(_FIRMWARE_NAMESPACE, name))


def revision_name(vm: JsonObject) -> str:
    """The name of the ControllerRevision for the VM's present generation."""
    return f"revision-start-vm-{meta.uid(vm)}-{meta.generation(vm)}"


def generation_of_revision(name: str) -> int | None:
    """The VM's generation that a revision's name tells."""
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else None


def start_revision(vm: JsonObject) -> JsonObject:
    """The ControllerRevision that keeps the VM's spec as it is started now."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(vm),
            "namespace": meta.namespace(vm),
            "ownerReferences": [meta.new_controller_ref(vm, kinds.VIRTUAL_MACHINES)],
        },
        "data": {"spec": deep_copy(get_object(vm, "spec"))},
        "revision": meta.generation(vm),
    }


def new_instance(vm: JsonObject, *, is_receiver: bool = False) -> JsonObject:
    """The VirtualMachineInstance for the VM's template, before instance type and admission."""
    template = get_object(vm, "spec", "template")
    spec = deep_copy(get_object(template, "spec"))
    labels = dict(get_object(template, "metadata", "labels"))
    annotations = dict(get_object(template, "metadata", "annotations"))
    annotations[GENERATION_ANNOTATION] = str(meta.generation(vm))
    if is_receiver:
        annotations[RECEIVER_ANNOTATION] = "true"
    domain = spec.setdefault("domain", {})
    domain.setdefault("firmware", {}).setdefault("uuid", firmware_uuid(meta.name(vm)))
    if get_str(first_request(vm), "data", "paused") == "true":
        spec["startStrategy"] = "Paused"
    _drop_memory_dumps(spec)
    domain.setdefault("devices", {})
    default_disks(spec)
    metadata: JsonObject = {
        "name": meta.name(vm),
        "namespace": meta.namespace(vm),
        "annotations": annotations,
        "finalizers": [VM_FINALIZER],
        "ownerReferences": [meta.new_controller_ref(vm, kinds.VIRTUAL_MACHINES)],
    }
    if labels:
        metadata["labels"] = labels
    instance: JsonObject = {
        "apiVersion": kinds.VIRTUAL_MACHINE_INSTANCES.api_version,
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": spec,
        "status": {"virtualMachineRevisionName": revision_name(vm)},
    }
    tracking = get_object(vm, "status", "changedBlockTracking")
    if tracking.get("state") in ("Initializing", "Enabled", "PendingRestart"):
        instance["status"]["changedBlockTracking"] = {"state": "Initializing"}
    return instance


def _drop_memory_dumps(spec: JsonObject) -> None:
    if "volumes" in spec:
        spec["volumes"] = [item for item in get_list(spec, "volumes") if "memoryDump" not in item]


def set_default_input(spec: JsonObject) -> None:
    """Adds the input device that was asked for without naming one; preference or admission gives its type."""
    devices = spec["domain"].setdefault("devices", {})
    if devices.get("autoattachInputDevice") is True and not get_list(devices, "inputs"):
        devices["inputs"] = [{"name": "default-0", "type": ""}]
