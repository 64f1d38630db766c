"""When the node hooks of plugins hear of a guest's life.

A hook that may not fail holds up the start and the stop of its guest; the step is repeated. What has happened
already is told once, and a failure of that is an event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from kubecore.runtime import Key, key_of
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.api.plugin_v1alpha1.plugin import Plugin
from virtplane.compute.handler import decisions
from virtplane.compute.handler.hooks.plugins import PluginError
from virtplane.compute.handler.instanceevents import InstanceEvents
from virtplane.compute.handler.machine import Machine
from virtplane.compute.handler.words import repeatable
from virtplane.compute.plugins.hooks import POST_START, POST_STOP, PRE_STOP

logger = logging.getLogger(__name__)


class Lifecycle:
    """Tells plugins of guests; `plugins` gives those that are in force."""

    def __init__(self, plugins: Callable[[], Sequence[Plugin]], events: InstanceEvents) -> None:
        self.plugins = plugins
        self._events = events
        self._ended: dict[Key, str] = {}
        """The instances, by UID, of whose end all have heard. A machine does not outlive its pod."""

    async def before_stop(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        """Somebody wants the guest to end. Raises PluginError."""
        await machine.plugins.tell_once(self.plugins(), PRE_STOP, vmi)

    async def before_release(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        """The launcher may end; if the instance has, so has its guest. Raises PluginError."""
        if decisions.is_final(vmi):
            await self._tell_of_end(machine, vmi)

    async def after_end(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        """The guest has ended, and its launcher with it."""
        try:
            await self._tell_of_end(machine, vmi)
        except PluginError as error:
            self._report(vmi, error)

    async def _tell_of_end(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        if self._ended.get(key_of(vmi)) != vmi.metadata.uid:
            await machine.plugins.tell(self.plugins(), POST_STOP, vmi)
            self._ended[key_of(vmi)] = vmi.metadata.uid

    def forget(self, key: Key) -> None:
        """There is no instance of that name any more."""
        self._ended.pop(key, None)

    async def after_write(
        self, machine: Machine, vmi: VirtualMachineInstance, fresh: VirtualMachineInstanceStatus
    ) -> None:
        """The status of `vmi` has become `fresh`: the guest may have begun to run."""
        if fresh.phase != "Running" or vmi.status.phase == "Running":
            return
        try:
            running = msgspec.structs.replace(vmi, status=fresh)
            await machine.plugins.tell(self.plugins(), POST_START, running)
        except PluginError as error:
            self._report(vmi, error)

    def _report(self, vmi: VirtualMachineInstance, error: PluginError) -> None:
        why = repeatable(error)
        text = "A plugin did not hear of its guest; see to its service on the node"
        guest = "/".join(key_of(vmi))
        logger.warning(text, extra={"vmi": guest, "err": why})
        self._events.send(vmi, "Warning", "SyncFailed", why)
