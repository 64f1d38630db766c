"""The state change requests (start, stop) of a VM that are not fulfilled yet."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStateChangeRequest
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import strategy


async def open_requests(
    client: Client, vm: VirtualMachine, cached: VirtualMachineInstance | None
) -> Sequence[VirtualMachineStateChangeRequest]:
    """The requests that are not yet fulfilled.

    Users ask by what they see, and the cache may show an older instance or none yet: before a request is
    dropped, the server is asked for the instance. Raises StatusError, UnfitDocument.
    """
    remaining = strategy.open_requests(vm, cached)
    if remaining == vm.observed.state_change_requests:
        return remaining
    return strategy.open_requests(vm, await _live_instance(client, vm))


async def _live_instance(client: Client, vm: VirtualMachine) -> VirtualMachineInstance | None:
    name, namespace = vm.metadata.name, vm.metadata.namespace
    try:
        found = await client.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, namespace)
    except StatusError as error:
        if is_not_found(error):
            return None
        raise
    vmi = decode(VirtualMachineInstance, found)
    return vmi if vmi.metadata.is_controlled_by(vm.metadata) else None
