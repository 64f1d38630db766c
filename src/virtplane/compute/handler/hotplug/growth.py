"""Lets a running guest see the room that its claims have gained."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import PersistentVolumeClaimInfo
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.storage import claims, images
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.volumes import claim_places
from virtplane.compute.handler.threads import Steps
from virtplane.compute.hotplug import hotplugged_volumes, plug_places

logger = logging.getLogger(__name__)


class DiskGrowth:
    """The disks of one guest, and the sizes of their claims when they were last looked at."""

    def __init__(self, domain: str, vmi: str) -> None:
        self._domain = domain
        self._vmi = vmi
        self._seen: Mapping[str, int] = {}

    async def follow(
        self,
        vmi: VirtualMachineInstance,
        launcher: Process,
        hypervisor: Hypervisor,
        steps: Steps,
        settings: ClaimSettings,
    ) -> None:
        """Resize the disks whose claims have changed since the last look. Never makes a disk smaller.

        Raises HypervisorError, StepBlocked and OSError.
        """
        found = claims.growing_volumes(vmi)
        sizes = {name: claims.requested_bytes(info) for name, info in found.items()}
        changed = {name: found[name] for name, size in sizes.items() if size != self._seen.get(name)}
        if not changed:
            return
        places = {name: plug_places(name) for name in hotplugged_volumes(vmi)}
        rooms = await steps.run("disk sizes", _rooms, launcher, changed, places, settings)
        for place, room in rooms.items():
            if room > await hypervisor.disk_capacity(self._domain, place):
                await hypervisor.resize_disk(self._domain, place, room)
                extra = {"vmi": self._vmi, "disk": place, "bytes": room}
                logger.info("The disk grew with its claim", extra=extra)
        self._seen = sizes


def _rooms(
    launcher: Process,
    changed: Mapping[str, PersistentVolumeClaimInfo],
    places: Mapping[str, tuple[str, str]],
    settings: ClaimSettings,
) -> dict[str, int]:
    """The sizes that disks can have now, by their paths in the launcher."""
    rooms = {}
    with launcher.root() as root:
        for name, info in changed.items():
            device, file = places.get(name) or claim_places(name)
            if root.is_block_device(device):
                rooms[device] = images.raw_size(root, device, block=True)
            elif root.is_file(file):
                rooms[file] = claims.room(root, file, info, settings)
    return rooms
