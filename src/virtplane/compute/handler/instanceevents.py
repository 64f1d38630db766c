"""Events about instances: what a change of their status means to their owners."""

from __future__ import annotations

from typing import Literal

from kubecore.runtime import EventRecorder, key_of
from kubecore.runtime.metrics import RecentCounts
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.compute.handler import status
from virtplane.compute.handler.hotplug import reports

_MOST_COUNTED = 1000
"""Guests of which it is remembered that they crashed."""
_UNKNOWN = "unknown"


class InstanceEvents:
    """Records events about instances."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self.panics = RecentCounts(
            "kubevirt_vmi_guest_os_panic_total",
            "How often the kernel of a guest has said that it crashed",
            ("namespace", "name", "type", "bugcheck_code"),
            _MOST_COUNTED,
        )

    def send(
        self, vmi: VirtualMachineInstance, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record one event."""
        metadata = {
            "namespace": vmi.metadata.namespace,
            "name": vmi.metadata.name,
            "uid": vmi.metadata.uid,
            "resourceVersion": vmi.metadata.resource_version,
        }
        about = {"apiVersion": vmi.api_version, "kind": vmi.kind, "metadata": metadata}
        self._recorder.event(about, kind, reason, message)

    def tell_panic(self, vmi: VirtualMachineInstance) -> None:
        """Record and count that the guest's kernel has crashed. Its panic device tells no details."""
        self.panics.add(*key_of(vmi), _UNKNOWN, _UNKNOWN)
        self.send(vmi, "Warning", "GuestPanicked", "GuestPanicked (details unavailable)")

    def announce(self, vmi: VirtualMachineInstance, fresh: VirtualMachineInstanceStatus) -> None:
        """Record what changes as the status of `vmi` becomes `fresh`."""
        self._announce_phase(vmi, fresh.phase)
        self._announce_credentials(vmi, fresh)
        for reason, text in reports.events(vmi.status, fresh):
            self.send(vmi, "Normal", reason, text)

    def _announce_phase(self, vmi: VirtualMachineInstance, phase: str | None) -> None:
        if phase == vmi.status.phase:
            return
        if phase == "Running":
            self.send(vmi, "Normal", "Started", "VirtualMachineInstance started.")
        elif phase == "Succeeded":
            self.send(vmi, "Normal", "Stopped", "The VirtualMachineInstance was shut down.")
        elif phase == "Failed":
            self.send(vmi, "Warning", "Stopped", "The VirtualMachineInstance crashed.")

    def _announce_credentials(self, vmi: VirtualMachineInstance, fresh: VirtualMachineInstanceStatus) -> None:
        before, after = (status.condition(each, status.CREDENTIALS) for each in (vmi.status, fresh))
        if after is None or (before is not None and status.says_same(before, after)):
            return
        if after.status == "True":
            text = "Access credentials sync successful."
            self.send(vmi, "Normal", "AccessCredentialsSyncSuccess", text)
        else:
            text = f"Access credentials sync failed: {after.message or ''}"
            self.send(vmi, "Warning", "AccessCredentialsSyncFailed", text)
