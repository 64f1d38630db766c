"""Plugs CPU sockets and memory into a running guest, and memory out of it."""

from __future__ import annotations

import logging

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.hotplug import shape
from virtplane.compute.handler.hotplug.shape import Shape
from virtplane.compute.handler.libvirtd.calls import DaemonSilent, HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor

logger = logging.getLogger(__name__)


class CpuMemory:
    """The CPUs and memory of one guest as they were last seen."""

    def __init__(self, domain: str, vmi: str) -> None:
        self.shape: Shape | None = None
        self.memory_error = ""
        """Why libvirt refused to change the memory, or the empty string."""
        self._domain = domain
        self._vmi = vmi

    async def follow(self, vmi: VirtualMachineInstance, hypervisor: Hypervisor) -> None:
        """Bring the guest to the sockets and memory of its instance, as far as its pod has room for them.

        libvirt is asked only while something is to change, or has changed. Raises HypervisorError.
        """
        seen = self.shape
        is_moving = seen is not None and seen.requested_bytes != seen.current_bytes
        if seen is None or is_moving or hypervisor.shape_changed or shape.plan(vmi, seen) != shape.Plan():
            await self._look(hypervisor)
        if self.shape is None:
            return
        due = shape.plan(vmi, self.shape)
        if due.vcpus is not None:
            await hypervisor.set_vcpus(self._domain, due.vcpus)
            logger.info("CPUs were plugged in", extra={"vmi": self._vmi, "vcpus": due.vcpus})
        if due.requested_bytes is None:
            self.memory_error = ""
        else:
            await self._request_memory(vmi, self.shape, due.requested_bytes, hypervisor)
        if due != shape.Plan():
            await self._look(hypervisor)

    async def _look(self, hypervisor: Hypervisor) -> None:
        hypervisor.shape_changed = False
        self.shape = shape.read(await hypervisor.description(self._domain)) or self.shape

    async def _request_memory(
        self, vmi: VirtualMachineInstance, seen: Shape, count: int, hypervisor: Hypervisor
    ) -> None:
        try:
            await hypervisor.update_device(self._domain, shape.memory_update(vmi, seen, count))
        except DaemonSilent:
            raise
        except HypervisorError as error:
            # The owner is told, and must restart the guest; the CPUs and all else go on.
            if str(error) != self.memory_error:
                text = "Memory could not be plugged; the guest keeps what it has"
                logger.warning(text, extra={"vmi": self._vmi, "err": str(error)})
            self.memory_error = str(error)
            return
        self.memory_error = ""
        logger.info("The guest's memory changes", extra={"vmi": self._vmi, "requested": count})
