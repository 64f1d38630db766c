"""Prepares every volume of an instance as a disk that QEMU can open. Blocks (runs in a thread); repeatable.

Disks that a guest can write to are always raw, because the guest controls their first bytes. A guest that
wrote a qcow2 header there would otherwise choose which files of the pod QEMU reads for it after the next
start.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volume_sources import (
    ContainerDiskSource,
    EmptyDiskSource,
    HostDisk,
)
from virtplane.api.kubevirt_v1.volumes import Volume, kind_of
from virtplane.compute.domain import devicetags, filesystems, metrics
from virtplane.compute.domain.context import EPHEMERAL_DIRECTORY, PRIVATE_DIRECTORY, BlockSizes, DiskSource
from virtplane.compute.handler.downwardmetrics import provider
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import blocksizes, claims, cloudinit, configuration, images
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.heldimages import HeldImage, NotHeld, mount_disk
from virtplane.compute.hotplug import hotplugged_volumes

_IMAGE_VOLUMES = "var/run/kubevirt-image-volume"
_CONTAINER_DISKS = "var/run/kubevirt/container-disks"
_MOST_BYTES = (1 << 63) - 1


class VolumeNotReady(Exception):
    """Something that others bring (an image, a claim) is not there yet; try again soon."""

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(f"volume {volume}: {why}")
        self.volume = volume


class VolumeBlocked(VolumeNotReady):
    """The storage of a volume hangs: preparing it takes longer than the caller waits."""

    def __init__(self, volume: str) -> None:
        super().__init__(volume, "its storage does not answer; the guest starts when it does")


class UnsupportedVolume(Exception):
    """The instance has a volume of a kind that this node cannot prepare."""

    def __init__(self, volume: str, kind: str) -> None:
        super().__init__(f"volume {volume}: {kind} is not supported yet")
        self.volume = volume


def claim_places(volume: str) -> tuple[str, str]:
    """Where the launcher has a claim: as a device, or as a disk in the claim's file system."""
    return f"/dev/{volume}", f"{PRIVATE_DIRECTORY}/vmi-disks/{volume}/disk.img"


@dataclass(frozen=True, slots=True)
class VolumePreparer:
    """Prepares the volumes of one pod.

    `root` is the launcher's file system, `scratch` the folder for what is lost with the pod, `pod` the pod's
    folders on the node. `on_volume` is called with the name of each volume before it is prepared,
    `on_small_claim` with a remark on each disk that has a little less room than was requested.
    `change_cloud_init` makes of cloud-init data what hook sidecars want of it.
    """

    vmi: VirtualMachineInstance
    root: Root
    scratch: Root
    pod: PodPaths
    on_volume: Callable[[str], None] = lambda _: None
    on_small_claim: Callable[[str], None] = lambda _: None
    claim_settings: ClaimSettings = field(default_factory=ClaimSettings)
    change_cloud_init: Callable[[cloudinit.CloudInitData], cloudinit.CloudInitData] = lambda data: data

    def prepare(self) -> dict[str, DiskSource]:
        """Disk sources by volume name; hotplugged volumes are not the launcher's, and have none.

        Raises VolumeNotReady, UnsupportedVolume, images.BadImage, claims.NotEnoughSpace and
        cloudinit.CloudInitError.
        """
        sources = {}
        hotplugged = hotplugged_volumes(self.vmi)
        shared = {filesystem.name for filesystem in self.vmi.spec.domain.devices.filesystems}
        for index, volume in enumerate(self.vmi.spec.volumes):
            self.on_volume(volume.name)
            if volume.name in shared:
                self._await_server(volume.name)
            elif volume.name not in hotplugged:
                sources[volume.name] = self._prepare(index, volume.name, volume)
        return sources

    def _prepare(self, index: int, name: str, volume: Volume) -> DiskSource:
        if volume.container_disk is not None:
            return self._container_disk(index, name, volume.container_disk)
        if volume.cloud_init_no_cloud is not None or volume.cloud_init_config_drive is not None:
            return self._cloud_init(volume)
        if configuration.is_configuration(volume):
            return DiskSource(configuration.create_disk(self.root, volume), "raw")
        if volume.downward_metrics is not None:
            provider.create_disk(self.root)
            return DiskSource(metrics.DISK, "raw", read_only=True)
        if volume.empty_disk is not None:
            return self._empty_disk(name, volume.empty_disk)
        if volume.host_disk is not None:
            return self._host_disk(name, volume.host_disk)
        kind = kind_of(volume)
        if kind is not None and kind.claim_is == "disk":
            return self._claim(name)
        if kind is not None and kind.claim_is == "base":
            return self._overlay(name, self._claim(name, is_base=True))
        raise UnsupportedVolume(name, kind.name if kind is not None else "nothing")

    def _await_server(self, name: str) -> None:
        """A volume that is shared as a file system is the matter of its server. Raises VolumeNotReady."""
        if not stat.S_ISSOCK(self.root.mode(filesystems.socket_path(name))):
            raise VolumeNotReady(name, "the server of its file system does not listen yet")

    def _container_disk(self, index: int, name: str, source: ContainerDiskSource) -> DiskSource:
        folder = f"{_IMAGE_VOLUMES}/volume_{index}"
        if self.root.is_folder(folder):
            disk = images.find_container_disk(self.root, folder, source.path or "")
        else:
            disk = f"{_CONTAINER_DISKS}/disk_{index}.img"
            held = HeldImage(self.pod.pod_uid, name, source.path or "")
            try:
                mount_disk(held, self.pod.container_disks, f"disk_{index}.img")
            except (NotHeld, FileNotFoundError) as error:
                raise VolumeNotReady(name, "its image is not mounted yet") from error
        info = images.inspect(self.root, disk)
        return self._overlay(name, DiskSource(f"/{disk}", info.format), size=info.virtual_size)

    def _overlay(self, name: str, base: DiskSource, *, size: int = 0) -> DiskSource:
        """A scratch layer that is lost with the pod; `size` is the guest's, 0 for that of a raw base."""
        overlay = f"disk-data/{name}/disk.qcow2"
        if not self.scratch.is_file(overlay):
            size = size or images.raw_size(self.root, base.path, block=base.block)
            images.create_overlay(
                self.scratch, overlay, backing=base.path, backing_format=base.format, size=size
            )
        return DiskSource(
            f"{EPHEMERAL_DIRECTORY}/{overlay}",
            "qcow2",
            backing_path=base.path,
            backing_format=base.format,
            backing_block=base.block,
        )

    def write_config_drives(self, devices: Sequence[Mapping[str, object]]) -> None:
        """Write the config drives that list `devices`: of a guest with tags, once its domain is defined.

        Raises what `prepare` raises for cloud-init data.
        """
        for volume in self.vmi.spec.volumes:
            if volume.cloud_init_config_drive is not None:
                self._cloud_init(volume, devices)

    def _cloud_init(
        self, volume: Volume, devices: Sequence[Mapping[str, object]] | None = None
    ) -> DiskSource:
        source = volume.cloud_init_no_cloud or volume.cloud_init_config_drive
        assert source is not None
        no_cloud = volume.cloud_init_no_cloud is not None
        secrets = f"{PRIVATE_DIRECTORY}/secret"
        data = cloudinit.read_data(source, self.root, f"{secrets}/{volume.name}")
        keys = cloudinit.public_keys(self.vmi, self.root, secrets)
        file_name = "noCloud.iso" if no_cloud else "configdrive.iso"
        path = f"cloud-init-data/{self.vmi.metadata.namespace}/{self.vmi.metadata.name}/{file_name}"
        is_later = not no_cloud and devices is None and devicetags.is_tagged(self.vmi)
        if devices is not None or not (is_later or self.scratch.is_file(path)):
            data = self.change_cloud_init(data)
            if no_cloud:
                label, content = "cidata", cloudinit.no_cloud_files(self.vmi, data, keys)
            else:
                content = cloudinit.config_drive_files(self.vmi, data, keys, devices or ())
                label = "config-2"

            def write(descriptor: int) -> None:
                with os.fdopen(descriptor, "wb", closefd=False) as file:
                    cloudinit.write_iso(file, label, content)

            self.scratch.create(path, write)
        return DiskSource(f"{EPHEMERAL_DIRECTORY}/{path}", "raw")

    def _empty_disk(self, name: str, source: EmptyDiskSource) -> DiskSource:
        disk, size = f"{name}.qcow2", claims.whole_mib(Quantity.parse(source.capacity).value)
        if not size:
            raise images.BadImage(f"volume {name}: {source.capacity} is too small, must be at least 1MiB")
        with Root(self.pod.empty_disks) as folder:
            if not folder.is_file(disk):
                images.create_empty(folder, disk, size)
        return DiskSource(f"/var/run/libvirt/empty-disks/{disk}", "qcow2")

    def _host_disk(self, name: str, source: HostDisk) -> DiskSource:
        file_name = Path(source.path).name
        path = f"{PRIVATE_DIRECTORY}/vmi-disks/{name}/{file_name}"
        if not self.root.mode(path):
            if source.type != "DiskOrCreate":
                raise VolumeNotReady(name, f"{source.path} does not exist on this node")
            size = Quantity.parse(source.capacity or 0).value
            if size > _MOST_BYTES:
                raise images.BadImage(f"volume {name}: no file can have {source.capacity} bytes")
            self._tell(claims.make_file(self.root, path, size, self.claim_settings))
        return self._raw_file(name, path)

    def _claim(self, name: str, *, is_base: bool = False) -> DiskSource:
        device, path = claim_places(name)
        info = claims.info_of(self.vmi, name)
        preallocated = claims.is_preallocated(info)
        if self.root.is_block_device(device):
            self.root.give(device, block=True)
            direct_io = self.root.takes_direct_io(device, block=True)
            sizes = self._block_sizes(name, device, block=True)
            return DiskSource(
                device, block=True, direct_io=direct_io, preallocated=preallocated, block_sizes=sizes
            )
        if not self.root.mode(path):
            if info is None or is_base:
                raise VolumeNotReady(name, "the claim contains no disk.img")
            self._tell(claims.make_disk(self.root, path, info, self.claim_settings))
        source = self._raw_file(name, path)
        if info is not None and not is_base:
            claims.grow_file(self.root, path, info, self.claim_settings)
        return replace(source, preallocated=preallocated)

    def _tell(self, remark: str) -> None:
        if remark:
            self.on_small_claim(remark)

    def _raw_file(self, name: str, path: str) -> DiskSource:
        """A disk in a file that outlives the guest; its owner stays who made it.

        A file that QEMU's user may not open is refused to the guest: whoever may only name it, by a volume of
        the node for instance, is not to read it so. Pods of the claim hand their files over by fsGroup.
        Raises BadImage for a link, which could name any file, and for what is no file: a device could be any.
        """
        try:
            direct_io = self.root.takes_direct_io(path)
            allocated = claims.is_allocated(self.root, path)
        except OSError as error:
            kind = {errno.ELOOP: "a link", errno.ENODEV: "no file"}.get(error.errno or 0)
            if kind is None:
                raise
            raise images.BadImage(f"volume {name}: {Path(path).name} is {kind}, not a disk") from error
        sizes = self._block_sizes(name, path, block=False)
        return DiskSource(path, "raw", direct_io=direct_io, allocated=allocated, block_sizes=sizes)

    def _block_sizes(self, name: str, path: str, *, block: bool) -> BlockSizes | None:
        """The storage's block sizes, where the guest is to see them."""
        disk = next((disk for disk in self.vmi.spec.domain.devices.disks if disk.name == name), None)
        matched = (
            disk is not None and disk.block_size is not None and disk.block_size.match_volume is not None
        )
        return blocksizes.of_volume(self.root, path, block=block) if matched else None
