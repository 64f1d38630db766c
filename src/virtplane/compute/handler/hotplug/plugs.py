"""The hotplugged volumes of one guest: brought to its pod, plugged, unplugged and taken away again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.compute import hotplug
from virtplane.compute.domain import plugs as disks
from virtplane.compute.domain.context import DiskSource
from virtplane.compute.domain.plugs import LiveDisk
from virtplane.compute.handler.hotplug import dumps, mapped, permissions
from virtplane.compute.handler.hotplug.dumps import Dump, MemoryDumps
from virtplane.compute.handler.hotplug.folder import Folder, is_name
from virtplane.compute.handler.hotplug.sources import Claim, NotOnNode, held_claim
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import IS_LEAVING, Hypervisor
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import claims
from virtplane.compute.handler.storage.claims import ClaimSettings, NotEnoughSpace
from virtplane.compute.handler.storage.images import BadImage
from virtplane.compute.handler.storage.volumes import VolumeNotReady
from virtplane.compute.handler.threads import StepBlocked, Steps

logger = logging.getLogger(__name__)

_STEP = "hotplug"


@dataclass(frozen=True, slots=True)
class Plugged:
    """What is there of hotplugged volumes."""

    in_pod: frozenset[str] = frozenset()
    """Volumes that the launcher's pod has."""
    in_guest: Mapping[str, str] | None = None
    """The targets (``sda``) of the guest's plugged disks, by volume; None while the domain was not read."""
    dumps: Mapping[str, Dump] = field(default_factory=dict)
    """The dumps of the guest's memory, by volume."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The ways to one running guest."""

    launcher: Process
    hypervisor: Hypervisor


class Plugs:
    """Keeps one guest's plugged volumes as its instance describes them.

    Each volume goes its own way: one that cannot be plugged holds up no other. `on_remark` gets what its
    owner should know of claims that are smaller than requested, `on_change` is called when a dump of the
    guest's memory has ended. `proc` and `host` are for tests.
    """

    def __init__(
        self,
        domain: str,
        vmi: str,
        paths: PodPaths,
        steps: Steps,
        on_remark: Callable[[str], None],
        on_change: Callable[[], None] = lambda: None,
        proc: Path = Path("/proc"),
        host: Path = Path("/proc/self"),
    ) -> None:
        self.found = Plugged()
        self._domain = domain
        self._vmi = vmi
        self._folder = Folder(paths.hotplug_disks)
        self._path = paths.hotplug_disks
        self._pod = paths.root
        self._steps = steps
        self._on_remark = on_remark
        self._dumps = MemoryDumps(domain, vmi, on_change)
        self._proc = proc
        self._host = host
        self._is_clean = False
        """Whether nothing was left of volumes that are not wanted when it was last looked."""
        self._numbers: dict[str, int] = {}
        """The devices of block claims by volume, from their attachment pods."""
        self._allowed: frozenset[int] | None = None
        """The devices that were allowed last; None after a start, when that is not known."""

    async def bring_all(
        self, vmi: VirtualMachineInstance, launcher: Process, settings: ClaimSettings
    ) -> dict[str, DiskSource]:
        """Bring every hotplugged volume to the pod, before the guest starts.

        Raises VolumeNotReady until all are there, BadImage, NotEnoughSpace, StepBlocked and OSError.
        """
        wanted = hotplug.plugged_volumes(vmi)
        if not wanted:
            return {}

        def bring() -> dict[str, DiskSource]:
            self._clear_folder(keep=wanted)
            return {name: self._bring(entry, settings) for name, entry in wanted.items()}

        sources = await self._steps.run(_STEP, bring)
        await self._steps.run(_STEP, self._permit, launcher, _blocks(wanted))
        self.found = Plugged(frozenset(sources))
        return sources

    async def follow(self, vmi: VirtualMachineInstance, guest: Guest, settings: ClaimSettings) -> None:
        """Take the steps that the running guest lacks. Raises the first error after all were tried.

        Raises HypervisorError, VolumeNotReady, BadImage, NotEnoughSpace, StepBlocked and OSError.
        """
        wanted, dumped = hotplug.plugged_volumes(vmi), hotplug.dump_volumes(vmi)
        utility = hotplug.utility_volumes(vmi)
        beside = _blocks(utility)
        is_known = any(entry.hotplug_volume is not None for entry in vmi.status.volume_status)
        if not wanted and not is_known and self._is_clean:
            return
        errors: list[Exception] = []
        live = await self._unplug_all(wanted, guest, errors)
        in_guest = {disk.name for disk in live if disk.is_plugged}
        kept = {*wanted, *in_guest, *dumped, *self._dumps.running, *beside}
        cleared = await self._steps.run(_STEP, self._clear_folder, kept, utility.keys() - beside)
        self._dumps.forget(dumped)
        for entry in utility.values():
            await _collected(errors, self._add_utility(vmi, entry))
        if wanted or is_known or cleared:
            in_use = {disk.name for disk in live if disk.is_plugged and disk.is_block}
            if self._allowed is None and not beside <= self._numbers.keys():
                in_use |= beside  # the launcher may have them since before virt-handler was started
            await self._steps.run(_STEP, self._learn, vmi, in_use)
            known = (_blocks(wanted) | beside) & self._numbers.keys()
            await self._steps.run(_STEP, self._permit, guest.launcher, known | in_use)
        for name, entry in wanted.items():
            if name not in in_guest:
                await _collected(errors, self._plug(vmi, entry, guest, settings))
        for entry in dumped.values():
            await _collected(errors, self._dump(vmi, entry, guest))
        await self._look(guest)
        self._is_clean = not self.found.in_pod and not self.found.in_guest
        if errors:
            raise errors[0]

    async def clear(self) -> None:
        """Take everything out of the pod of a guest that has ended. Raises StepBlocked, OSError."""
        await self._steps.run(_STEP, self._clear_folder, frozenset[str]())
        self.found = Plugged(in_guest={})

    async def _look(self, guest: Guest) -> None:
        live = await self._live(guest)
        in_pod = await self._steps.run(_STEP, self._in_pod)
        in_guest = {disk.name: disk.target for disk in live if disk.is_plugged}
        self.found = Plugged(frozenset(in_pod), in_guest, self._dumps.found)

    async def _live(self, guest: Guest) -> list[LiveDisk]:
        return disks.live_disks(await guest.hypervisor.description(self._domain))

    async def _unplug_all(
        self, wanted: Collection[str], guest: Guest, errors: list[Exception]
    ) -> list[LiveDisk]:
        """Ask the guest for what it is to have no longer; returns the disks that it has then."""
        live = await self._live(guest)
        leaving = [disk for disk in live if disk.is_plugged and disk.name not in wanted]
        for disk in leaving:
            await _collected(errors, self._unplug(disk, guest))
        return await self._live(guest) if leaving else live

    async def _unplug(self, disk: LiveDisk, guest: Guest) -> None:
        """Ask the guest for the disk. It may take its time; an event comes when it has released it."""
        hypervisor = guest.hypervisor
        if disk.device == "cdrom":
            await hypervisor.update_device(self._domain, disks.ejected(disk))
        else:
            try:
                if not await hypervisor.detach_device(self._domain, f"ua-{disk.name}"):
                    return
            except HypervisorError as error:
                is_gone = all(each.name != disk.name for each in await self._live(guest))
                if not is_gone and IS_LEAVING not in error.why:
                    raise
                return
        logger.info("A volume is being unplugged", extra={"vmi": self._vmi, "volume": disk.name})

    async def _plug(
        self, vmi: VirtualMachineInstance, entry: VolumeStatus, guest: Guest, settings: ClaimSettings
    ) -> None:
        attached = entry.hotplug_volume
        in_pod = await self._steps.run(_STEP, self._in_pod)
        if entry.name not in in_pod and (attached is None or not attached.attach_pod_uid):
            return  # virt-controller says when the attachment pod is there
        source = await self._steps.run(_STEP, self._bring, entry, settings)
        live = await self._live(guest)
        if source.block:
            blocks = {entry.name, *(each.name for each in live if each.is_plugged and each.is_block)}
            blocks |= _blocks(hotplug.utility_volumes(vmi)) & self._numbers.keys()
            await self._steps.run(_STEP, self._permit, guest.launcher, blocks)
        disk = next(each for each in vmi.spec.domain.devices.disks if each.name == entry.name)
        drive = next((each for each in live if each.name == entry.name and each.device == "cdrom"), None)
        if drive is not None:
            await guest.hypervisor.update_device(self._domain, disks.inserted(drive, source))
        else:
            xml = disks.plugged_disk(vmi, disk, source, live)
            await guest.hypervisor.attach_device(self._domain, xml)
        logger.info("A volume was plugged", extra={"vmi": self._vmi, "volume": entry.name})

    async def _add_utility(self, vmi: VirtualMachineInstance, entry: VolumeStatus) -> None:
        """Have the claim in the launcher's pod, for QEMU to write to; the guest has none of it."""
        attached, name = entry.hotplug_volume, entry.name
        if attached is None or not attached.attach_pod_uid:
            return  # virt-controller says when the attachment pod is there
        is_read_only = any(each.name == name and each.read_only for each in vmi.spec.utility_volumes)
        await self._steps.run(_STEP, self._bring_utility, entry, is_read_only)

    def _bring_utility(self, entry: VolumeStatus, is_read_only: bool) -> None:
        name, info = entry.name, entry.persistent_volume_claim_info
        if not is_name(name) or info is None:
            raise VolumeNotReady(name, "its claim is not known yet")
        if info.volume_mode == "Block":
            self._bring_device(entry)
        elif name not in self._folder.folders():
            with self._claim(entry) as claim:
                self._folder.mount_folder(name, claim.clone_folder(is_read_only))

    def _bring_device(self, entry: VolumeStatus) -> None:
        """The device node of a block claim in the launcher's pod."""
        if entry.name not in self._numbers:
            with self._claim(entry) as claim:
                self._numbers[entry.name] = claim.device()
        self._folder.make_device(entry.name, self._numbers[entry.name])

    async def _dump(self, vmi: VirtualMachineInstance, entry: VolumeStatus, guest: Guest) -> None:
        """Take the next step of a dump of the guest's memory."""
        if dumps.is_over(entry):
            return
        attached = entry.hotplug_volume
        if entry.name not in self._dumps.found and (attached is None or not attached.attach_pod_uid):
            return  # virt-controller says when the attachment pod is there
        await self._steps.run(_STEP, self._bring_dump, vmi.metadata.name, entry)
        await self._dumps.follow(entry, guest.hypervisor)

    def _bring_dump(self, instance: str, entry: VolumeStatus) -> None:
        """Mount the dump's file in the launcher's pod, unless it is there already."""
        name, is_new = entry.name, entry.name not in self._dumps.found
        if not is_name(name):
            raise VolumeNotReady(name, "it cannot be the name of a file")
        is_there = name in self._folder.files()
        if is_there and (not is_new or entry.phase == hotplug.DUMPING):
            self._dumps.plan(instance, entry)
            return
        with self._claim(entry) as claim:
            file = self._dumps.plan(instance, entry)
            if is_there:
                self._folder.remove(name)  # of a dump whose name was lost
            claim.prepare_dump(file, dumps.SUFFIX)
            self._folder.mount(name, claim.clone_file(file))

    async def close(self) -> None:
        """Leave everything as it is."""
        await self._dumps.close()

    def _bring(self, entry: VolumeStatus, settings: ClaimSettings) -> DiskSource:
        """The volume's disk in the launcher's pod, brought there unless it is there already."""
        name, info = entry.name, entry.persistent_volume_claim_info
        if not is_name(name) or info is None:
            raise VolumeNotReady(name, "its claim is not known yet")
        device, file = hotplug.plug_places(name)
        if info.volume_mode == "Block":
            self._bring_device(entry)
            return DiskSource(device, block=True, direct_io=True, preallocated=claims.is_preallocated(info))
        if name not in self._folder.files():
            with self._claim(entry) as claim:
                remark = claim.prepare_file(info, settings)
                self._folder.mount(name, claim.clone_file())
            if remark:
                self._on_remark(remark)
        with Root(self._path, beneath=True) as root:
            return DiskSource(
                file,
                direct_io=root.takes_direct_io(f"{name}.img"),
                preallocated=claims.is_preallocated(info),
                allocated=claims.is_allocated(root, f"{name}.img"),
            )

    def _learn(self, vmi: VirtualMachineInstance, blocks: Collection[str]) -> None:
        """Ask attachment pods for the devices that the guest has since before virt-handler was started."""
        for entry in vmi.status.volume_status:
            if entry.name in blocks and entry.name not in self._numbers:
                with contextlib.suppress(VolumeNotReady), self._claim(entry) as claim:
                    self._numbers[entry.name] = claim.device()

    @contextlib.contextmanager
    def _claim(self, entry: VolumeStatus) -> Iterator[Claim]:
        """The claim in the attachment pod. Raises VolumeNotReady while that does not have it."""
        attached, info = entry.hotplug_volume, entry.persistent_volume_claim_info
        pod_uid = attached.attach_pod_uid if attached is not None else None
        if not pod_uid:
            raise VolumeNotReady(entry.name, "its attachment pod is not ready yet")
        is_block = info is not None and info.volume_mode == "Block"
        try:
            pod = self._pod.parent / pod_uid
            with held_claim(pod, entry.name, block=is_block, proc=self._proc) as claim:
                yield claim
        except (NotOnNode, FileNotFoundError) as error:
            raise VolumeNotReady(entry.name, f"its attachment pod does not have it: {error}") from error

    def _in_pod(self) -> set[str]:
        return self._folder.devices().union(*self._folder.mounted())

    def _clear_folder(self, keep: Collection[str], keep_folders: Collection[str] = ()) -> bool:
        """Take away what is not to be kept; returns whether there was anything."""
        files, folders = self._folder.mounted()
        gone = (files | self._folder.devices()) - set(keep)
        gone_folders = folders - set(keep_folders)
        for name in gone:
            self._folder.remove(name)
        for name in gone_folders:
            self._folder.remove_folder(name)
        for name in gone | gone_folders:
            logger.info("A volume was taken out of the pod", extra={"vmi": self._vmi, "volume": name})
        return bool(gone | gone_folders)

    def _permit(self, launcher: Process, blocks: Collection[str]) -> None:
        """Allow the devices of these volumes, and no others.

        A number is never taken from the launcher's folder, where a launcher that runs as root could put any.
        After a restart those of disks that the guest has already are unknown until their claims are asked
        again: then nothing is taken back either. The numbers of volumes that have gone are forgotten in any
        case: the next volume of such a name has another claim.
        """
        for name in self._numbers.keys() - set(blocks):
            del self._numbers[name]
        if any(name not in self._numbers for name in blocks):
            return
        numbers = frozenset(self._numbers[name] for name in blocks)
        if numbers != self._allowed:
            permissions.allow(launcher, numbers, mapped.devices_of(self._pod), self._host)
            self._allowed = numbers


def _blocks(entries: Mapping[str, VolumeStatus]) -> set[str]:
    """The volumes that are block devices."""
    infos = {name: entry.persistent_volume_claim_info for name, entry in entries.items()}
    return {name for name, info in infos.items() if info is not None and info.volume_mode == "Block"}


async def _collected(errors: list[Exception], step: Awaitable[None]) -> None:
    """Take a step; what it raises is kept for later."""
    try:
        await step
    except (HypervisorError, VolumeNotReady, BadImage, NotEnoughSpace, StepBlocked, OSError) as error:
        errors.append(error)
