"""Events about hotplugged volumes."""

from __future__ import annotations

import pytest

from virtplane.api.kubevirt_v1.vmi_status import (
    HotplugVolumeStatus,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)
from virtplane.compute.handler.hotplug import reports


def _status(phase: str, reason: str = "") -> VirtualMachineInstanceStatus:
    entry = VolumeStatus(
        name="data", target="", phase=phase, reason=reason, hotplug_volume=HotplugVolumeStatus()
    )
    return VirtualMachineInstanceStatus(volume_status=(entry,))


@pytest.mark.parametrize(
    ("before", "reasons"),
    [
        ("AttachedToNode", ["VolumeMountedToPod", "VolumeReady"]),
        ("MountedToPod", ["VolumeReady"]),
        ("Ready", []),
    ],
)
def test_a_volume_that_got_ready_was_mounted_before(before: str, reasons: list[str]) -> None:
    found = reports.events(_status(before), _status("Ready", "VolumeReady"))
    assert [reason for reason, _ in found] == reasons
