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
    """The names of the snapshot and of the restore that lock a VM."""

    restore_in_progress: str | None = None
    snapshot_in_progress: str | None = None


class HeldMachine(ApiStruct, kw_only=True):
    """The fields of a VM that locking needs: a VM whose spec cannot be decoded can still be unlocked."""

    metadata: ObjectMeta = ObjectMeta()
    status: Holders | None = None

    @property
    def holders(self) -> Holders:
        """The holders of the VM's lock; the VM may have no status yet."""
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
    """The operations that lock a VM. They test its resourceVersion, since a holder could use the other
    field.
    """
    before, after = encode(machine), encode(replace(machine, status=holders))
    return [*same_version(before), *guarded_patch(before, after, ("status",))]


def release_patch(machine: HeldMachine, field: str, holder: str) -> list[JsonObject]:
    """The operations that remove `holder` from the `field` of the status (its name in JSON)."""
    path = f"/status/{field}"
    return [
        *same_object(encode(machine)),
        {"op": "test", "path": path, "value": holder},
        {"op": "remove", "path": path},
    ]
