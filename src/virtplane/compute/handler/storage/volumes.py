"""Every volume of an instance, made a disk that QEMU can open. Blocks (runs in a thread); repeatable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.compute.domain.context import EPHEMERAL_DIRECTORY, PRIVATE_DIRECTORY, DiskSource
from virtplane.compute.handler.settings import QEMU_USER, PodPaths
from virtplane.compute.handler.storage import cloudinit, images
from virtplane.compute.handler.storage.rooted import resolve_inside

_IMAGE_VOLUMES = "var/run/kubevirt-image-volume"
_CONTAINER_DISKS = "var/run/kubevirt/container-disks"


class VolumeNotReady(Exception):
    """Something that others bring (an image, a claim) is not there yet; try again soon."""

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(f"volume {volume}: {why}")
        self.volume = volume


class UnsupportedVolume(Exception):
    """The instance has a volume of a kind that this node cannot prepare."""

    def __init__(self, volume: str, kind: str) -> None:
        super().__init__(f"volume {volume}: {kind} is not supported yet")
        self.volume = volume


@dataclass(frozen=True, slots=True)
class VolumePreparer:
    """Prepares the volumes of one pod; `root` is the launcher's file system."""

    vmi: JsonObject
    pod: PodPaths
    root: Path

    def prepare(self) -> dict[str, DiskSource]:
        """Disk sources by volume name.

        Raises VolumeNotReady, UnsupportedVolume, images.BadImage and cloudinit.CloudInitError.
        """
        sources = {}
        for index, volume in enumerate(get_list(self.vmi, "spec", "volumes")):
            name = get_str(volume, "name")
            source = self._prepare(index, name, volume)
            if source is not None:
                sources[name] = source
        return sources

    def _inside(self, path: str) -> Path:
        return resolve_inside(self.root, path)

    def _prepare(self, index: int, name: str, volume: JsonObject) -> DiskSource | None:
        if "containerDisk" in volume:
            return self._container_disk(index, name, get_object(volume, "containerDisk"))
        if "cloudInitNoCloud" in volume or "cloudInitConfigDrive" in volume:
            return self._cloud_init(name, volume)
        if "emptyDisk" in volume:
            return self._empty_disk(name, get_object(volume, "emptyDisk"))
        if "hostDisk" in volume:
            return self._host_disk(name, get_object(volume, "hostDisk"))
        if "persistentVolumeClaim" in volume or "dataVolume" in volume:
            return self._claim(name)
        if "ephemeral" in volume:
            return self._overlay(name, self._claim(name))
        kind = next((key for key in volume if key != "name"), "nothing")
        raise UnsupportedVolume(name, kind)

    def _container_disk(self, index: int, name: str, source: JsonObject) -> DiskSource:
        folder = self._inside(f"{_IMAGE_VOLUMES}/volume_{index}")
        if folder.is_dir():
            disk = images.find_container_disk(folder, get_str(source, "path"))
            inside = f"/{disk.relative_to(self.root)}"
        else:
            disk = self._inside(f"{_CONTAINER_DISKS}/disk_{index}.img")
            inside = f"/{_CONTAINER_DISKS}/disk_{index}.img"
            if not disk.exists():
                raise VolumeNotReady(name, "its image is not there yet")
        info = images.inspect(disk)
        return self._overlay(name, DiskSource(inside, info.format), size=info.virtual_size)

    def _overlay(self, name: str, base: DiskSource, *, size: int = 0) -> DiskSource:
        """A scratch layer that is lost with the pod."""
        relative = Path("disk-data") / name / "disk.qcow2"
        overlay = self.pod.ephemeral / relative
        if not overlay.exists():
            if not size:
                size = images.inspect(self._inside(base.path)).virtual_size
            images.create_overlay(overlay, backing=base.path, backing_format=base.format, size=size)
        return DiskSource(
            f"{EPHEMERAL_DIRECTORY}/{relative}",
            "qcow2",
            backing_path=base.path,
            backing_format=base.format,
        )

    def _cloud_init(self, name: str, volume: JsonObject) -> DiskSource:
        no_cloud = "cloudInitNoCloud" in volume
        source = get_object(volume, "cloudInitNoCloud" if no_cloud else "cloudInitConfigDrive")
        secrets = self._inside(f"{PRIVATE_DIRECTORY}/secret")
        data = cloudinit.read_data(source, secrets / name)
        keys = cloudinit.public_keys(self.vmi, secrets)
        namespace, instance = (get_str(self.vmi, "metadata", key) for key in ("namespace", "name"))
        file_name = "noCloud.iso" if no_cloud else "configdrive.iso"
        relative = Path("cloud-init-data") / namespace / instance / file_name
        path = self.pod.ephemeral / relative
        if not path.exists():
            files = cloudinit.no_cloud_files if no_cloud else cloudinit.config_drive_files
            cloudinit.write_iso(path, "cidata" if no_cloud else "config-2", files(self.vmi, data, keys))
            images.hand_over(path)
        return DiskSource(f"{EPHEMERAL_DIRECTORY}/{relative}", "raw")

    def _empty_disk(self, name: str, source: JsonObject) -> DiskSource:
        path = self.pod.empty_dir("empty-disks") / f"{name}.qcow2"
        if not path.exists():
            images.create_empty(path, Quantity.parse(source.get("capacity", "0")).value)
        return DiskSource(f"/var/run/libvirt/empty-disks/{name}.qcow2", "qcow2")

    def _host_disk(self, name: str, source: JsonObject) -> DiskSource:
        file_name = Path(get_str(source, "path")).name
        inside = f"{PRIVATE_DIRECTORY}/vmi-disks/{name}/{file_name}"
        path = self._inside(inside)
        if not path.exists():
            if get_str(source, "type") != "DiskOrCreate":
                raise VolumeNotReady(name, f"{get_str(source, 'path')} does not exist on this node")
            with path.open("xb") as disk:
                disk.truncate(Quantity.parse(source.get("capacity", "0")).value)
        os.chown(path, QEMU_USER, QEMU_USER, follow_symlinks=False)
        return DiskSource(inside, images.inspect(path).format)

    def _claim(self, name: str) -> DiskSource:
        device = self._inside(f"/dev/{name}")
        if device.is_block_device():
            os.chown(device, QEMU_USER, QEMU_USER, follow_symlinks=False)
            return DiskSource(f"/dev/{name}", block=True)
        inside = f"{PRIVATE_DIRECTORY}/vmi-disks/{name}/disk.img"
        path = self._inside(inside)
        if not path.exists():
            raise VolumeNotReady(name, "the claim holds no disk.img")
        os.chown(path, QEMU_USER, QEMU_USER, follow_symlinks=False)
        return DiskSource(inside, images.inspect(path).format)
