"""The instance that a VM starts, and the revision that records the spec it was started from."""

from __future__ import annotations

import uuid

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode, part
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.caches import OBSERVED
from virtplane.cluster.objects import described
from virtplane.compute import amounts
from virtplane.compute.controller.vm import interfaces
from virtplane.compute.controller.vm.strategy import RECEIVER_ANNOTATION, first_request
from virtplane.instancetypes.defaults import default_disks

GENERATION_ANNOTATION = wellknown.VM_GENERATION
VM_FINALIZER = wellknown.FINALIZER_MACHINE
_FIRMWARE_NAMESPACE = uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")


def firmware_uuid(name: str) -> str:
    """The firmware UUID of a VM that has none: derived from its name."""
    return str(uuid.uuid5(_FIRMWARE_NAMESPACE, name))


def revision_name(vm: VirtualMachine) -> str:
    """The name of the ControllerRevision for the VM's current generation."""
    return f"{revision_prefix(vm)}{vm.metadata.generation}"


def revision_prefix(vm: VirtualMachine) -> str:
    """The prefix of the names of the VM's ControllerRevisions."""
    return f"revision-start-vm-{vm.metadata.uid}-"


def generation_of_revision(name: str) -> int | None:
    """The VM's generation in the name of a revision."""
    return amounts.whole(name.rpartition("-")[2])


# Revisions and instances hold what the user wrote, fields unknown here too: they are copied from `written`,
# the document that `vm` was read from.


def start_revision(vm: VirtualMachine, written: JsonObject) -> JsonObject:
    """The ControllerRevision of the VM's spec at its start."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(vm),
            "namespace": vm.metadata.namespace,
            "ownerReferences": [meta.new_controller_ref(described(vm), kinds.VIRTUAL_MACHINES)],
        },
        "data": {"spec": deep_copy(part(written, VirtualMachine, lambda vm: vm.spec))},
        "revision": vm.metadata.generation,
    }


def new_instance(vm: VirtualMachine, written: JsonObject, *, is_receiver: bool = False) -> JsonObject:
    """The instance from the VM's template, before instance type and admission."""
    template = decode(ObjectMeta, vm.spec.template.metadata or {})
    spec = deep_copy(part(written, VirtualMachine, lambda vm: vm.spec.template.spec))
    annotations = {**template.annotations, **OBSERVED, GENERATION_ANNOTATION: str(vm.metadata.generation)}
    if is_receiver:
        annotations[RECEIVER_ANNOTATION] = "true"
    domain = spec.setdefault("domain", {})
    domain.setdefault("firmware", {}).setdefault("uuid", firmware_uuid(vm.metadata.name))
    if first_request(vm).data.get("paused") == "true":
        spec["startStrategy"] = "Paused"
    if "volumes" in spec:
        written_volumes = zip(vm.spec.instance.volumes, spec["volumes"] or (), strict=True)
        spec["volumes"] = [item for volume, item in written_volumes if volume.memory_dump is None]
    domain.setdefault("devices", {})
    interfaces.drop_absent(spec)
    default_disks(spec)
    metadata: JsonObject = {
        "name": vm.metadata.name,
        "namespace": vm.metadata.namespace,
        "annotations": annotations,
        "finalizers": [VM_FINALIZER],
        "ownerReferences": [meta.new_controller_ref(described(vm), kinds.VIRTUAL_MACHINES)],
    }
    if template.labels:
        metadata["labels"] = dict(template.labels)
    status: JsonObject = {"virtualMachineRevisionName": revision_name(vm)}
    tracking = vm.observed.changed_block_tracking
    if tracking is not None and tracking.state in ("Initializing", "Enabled", "PendingRestart"):
        status["changedBlockTracking"] = {"state": "Initializing"}
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_INSTANCES.api_version,
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def set_default_input(spec: JsonObject) -> None:
    """Add the input device for autoattachInputDevice; preference or admission sets its type and bus."""
    devices = decode(VirtualMachineInstanceSpec, spec).domain.devices
    if devices.autoattach_input_device is True and not devices.inputs:
        spec["domain"].setdefault("devices", {})["inputs"] = [{"name": "default-0", "type": ""}]
