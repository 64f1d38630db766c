"""A VM during its reconcile: the VM from the cache, and its new status."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import decode, encode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.cluster.objects import condition_documents, status_patch


@dataclass(slots=True)
class Draft:
    """The VM and its new status. The status is built as a document."""

    vm: VirtualMachine
    """As the server last told, without what `status` changes."""
    status: JsonObject
    conditions: list[JsonObject]
    """The conditions of `status`."""

    def read(self) -> VirtualMachine:
        """The VM with its new status, as a struct."""
        return replace(self.vm, status=decode(VirtualMachineStatus, self.status))

    def operations(self) -> list[JsonObject]:
        """The patch that writes the new status; empty if it is unchanged."""
        return status_patch(self.vm, VirtualMachineStatus, self.vm.status, self.status)


def begin(vm: VirtualMachine) -> Draft:
    """Start with the current status."""
    known = condition_documents(vm.observed.conditions)
    return Draft(vm, {**encode(vm.observed), "conditions": known}, known)
