"""A VM while it is reconciled: as it was read, and the status that will be written."""

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
    """What is known of a VM, and what its status shall say. Statuses are made as documents."""

    vm: VirtualMachine
    """As the server last told, without what `status` changes."""
    status: JsonObject
    conditions: list[JsonObject]
    """The conditions of `status`."""

    def read(self) -> VirtualMachine:
        """The VM with the status that will be written."""
        return replace(self.vm, status=decode(VirtualMachineStatus, self.status))

    def operations(self) -> list[JsonObject]:
        """The patch that writes the status; empty where it says what is there."""
        return status_patch(self.vm, VirtualMachineStatus, self.vm.status, self.status)


def begin(vm: VirtualMachine) -> Draft:
    """The status is as it was."""
    known = condition_documents(vm.observed.conditions)
    return Draft(vm, {**encode(vm.observed), "conditions": known}, known)
