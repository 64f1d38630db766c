"""Reading documents as structs, and the patches that several controllers of storage write."""

from __future__ import annotations

from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import UnfitDocument, decode, encode, readable
from kubecore.patch.guarded import guarded_patch, same_object, same_version
from kubecore.runtime import Informer
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class Holders(ApiStruct, kw_only=True):
    """Names of the snapshot and the restore that hold a machine."""

    restore_in_progress: str | None = None
    snapshot_in_progress: str | None = None


class HeldMachine(ApiStruct, kw_only=True):
    """What holding needs of a VirtualMachine: one whose spec cannot be read can still be released."""

    metadata: ObjectMeta = ObjectMeta()
    status: Holders | None = None

    @property
    def holders(self) -> Holders:
        """Who holds the machine; the status may still be absent."""
        return self.status or Holders()


def held_machine(vms: Informer[VirtualMachine], namespace: str, name: str) -> HeldMachine | None:
    """The machine, readable or not. Raises UnfitDocument where not even its metadata can be read."""
    try:
        vm = vms.get(namespace, name)
    except UnfitDocument as error:
        return decode(HeldMachine, error.document)
    return _held(vm) if vm is not None else None


def held_machines(vms: Informer[VirtualMachine], namespace: str) -> list[HeldMachine]:
    """The machines of a namespace, readable or not."""
    unread = (error.document for error in vms.unfit.values() if error.namespace == namespace)
    return [*map(_held, vms.list(namespace)), *readable(HeldMachine, unread)]


def _held(vm: VirtualMachine) -> HeldMachine:
    if vm.status is None:
        return HeldMachine(metadata=vm.metadata)
    holders = Holders(
        restore_in_progress=vm.status.restore_in_progress,
        snapshot_in_progress=vm.status.snapshot_in_progress,
    )
    return HeldMachine(metadata=vm.metadata, status=holders)


def hold_patch(machine: HeldMachine, holders: Holders) -> list[JsonObject]:
    """Operations that hold a machine, at this very version: another may be taking hold by the other field."""
    before, after = encode(machine), encode(replace(machine, status=holders))
    return [*same_version(before), *guarded_patch(before, after, ("status",))]


def release_patch(machine: HeldMachine, field: str, holder: str) -> list[JsonObject]:
    """Operations that take `holder` out of the status' `field` (its wire name)."""
    path = f"/status/{field}"
    return [
        *same_object(encode(machine)),
        {"op": "test", "path": path, "value": holder},
        {"op": "remove", "path": path},
    ]
