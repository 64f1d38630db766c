"""What a guest boots with that is not on its disks, and the folders of what it keeps of that.

Blocks (runs in a thread); repeatable. QEMU opens all of these files itself, as the launcher's user and in the
launcher's file system: they are looked at here so that what is wrong with them has a name.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from virtplane.api import paths
from virtplane.api.kubevirt_v1.firmware import KernelBootContainer
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import kind_of
from virtplane.api.launcherpods import KERNEL_BOOT_VOLUME
from virtplane.compute.domain.context import BootFiles, FirmwareImage
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage.heldimages import HeldImage, NotHeld, mount_disk
from virtplane.compute.handler.storage.images import BadImage, find_container_disk
from virtplane.compute.handler.storage.volumes import VolumeNotReady

_SECURE = (
    ("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd"),
    ("OVMF_CODE.secboot.fd", "OVMF_VARS.secboot.fd"),
    ("OVMF_CODE.secboot.fd", "OVMF_VARS.ms.fd"),
)
"""Code and variables with the keys of Secure Boot, by Debian's, Fedora's and Debian's older names."""
_PLAIN = (("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"), ("OVMF_CODE.fd", "OVMF_VARS.fd"))

_TABLE_HEADER = 36
"""Bytes that every ACPI table begins with: its signature, its length, who made it."""
_TABLE_BYTES = 65535 - _TABLE_HEADER
"""QEMU counts the bytes of all given tables in 16 bits."""
_STATE_FOLDERS = ("libvirt", "libvirt/qemu", "libvirt/qemu/nvram", "libvirt/qemu/swtpm")
"""Below the private folder: where the claim for firmware and TPM is mounted, and what is above it."""


class MissingFirmware(Exception):
    """The launcher's image has no firmware of the kind that the guest asks for."""


def find(vmi: VirtualMachineInstance, root: Root, pod: PodPaths, ovmf_folder: str) -> BootFiles:
    """The files for `vmi`; `ovmf_folder` is the configured one.

    Raises MissingFirmware, VolumeNotReady, BadImage, OSError.
    """
    kernel, initrd = _kernel(vmi.spec.domain.firmware.kernel_boot.container, root, pod)
    acpi = vmi.spec.domain.firmware.acpi
    return BootFiles(
        uefi=_uefi(vmi, root, ovmf_folder),
        kernel=kernel,
        initrd=initrd,
        slic=_table(vmi, root, "slic", (acpi.slic_name_ref if acpi is not None else None) or ""),
        msdm=_table(vmi, root, "msdm", (acpi.msdm_name_ref if acpi is not None else None) or ""),
    )


def _uefi(vmi: VirtualMachineInstance, root: Root, ovmf_folder: str) -> FirmwareImage | None:
    efi = vmi.spec.domain.firmware.bootloader.efi
    if efi is None:
        return None
    is_secure = efi.secure_boot is not False
    folders = [ovmf_folder.rstrip("/")]
    if folders == [paths.OVMF_DIR]:
        folders.append(paths.DISTRIBUTION_OVMF_DIR)
    for folder in folders:
        for code, variables in _SECURE if is_secure else _PLAIN:
            image = FirmwareImage(f"{folder}/{code}", f"{folder}/{variables}")
            if root.is_file(image.code) and root.is_file(image.variables):
                return image
    kind = "with Secure Boot" if is_secure else "without Secure Boot"
    raise MissingFirmware(f"EFI OVMF rom missing: no firmware {kind} in {' or '.join(folders)}")


@dataclass(frozen=True, slots=True)
class _BootImage:
    """The image of kernel and initrd, as a volume of the pod or held by a container of it."""

    root: Root
    pod: PodPaths
    is_volume: bool

    def file(self, path: str, name: str) -> str:
        """The place of the image's file `path` in the launcher, where it is mounted as `name` if need be."""
        if self.is_volume:
            found = find_container_disk(self.root, paths.KERNEL_BOOT_DIR, path)
            return f"/{found.lstrip('/')}"
        held = HeldImage(self.pod.pod_uid, KERNEL_BOOT_VOLUME, path)
        try:
            mount_disk(held, self.pod.container_disks, f"{KERNEL_BOOT_VOLUME}-{name}")
        except (NotHeld, FileNotFoundError) as error:
            raise VolumeNotReady(KERNEL_BOOT_VOLUME, "its image is not mounted yet") from error
        return f"{paths.CONTAINER_DISK_DIR}/{KERNEL_BOOT_VOLUME}-{name}"


def _kernel(container: KernelBootContainer | None, root: Root, pod: PodPaths) -> tuple[str, str]:
    if container is None:
        return "", ""
    image = _BootImage(root, pod, root.is_folder(paths.KERNEL_BOOT_DIR))
    kernel, initrd = container.kernel_path or "", container.initrd_path or ""
    return (
        image.file(kernel, "kernel") if kernel else "",
        image.file(initrd, "initrd") if initrd else "",
    )


def _table(vmi: VirtualMachineInstance, root: Root, kind: str, volume: str) -> str:
    """The path of an ACPI table in the mounted secret of `volume`; empty without one. Raises BadImage."""
    found = next((each for each in vmi.spec.volumes if volume and each.name == volume), None)
    volume_kind = kind_of(found) if found is not None else None
    if volume_kind is None:
        return ""
    path = f"{volume_kind.mount(volume)}/{kind}.bin"
    if not root.is_file(path):
        raise BadImage(f"volume {volume}: the secret has no {kind}.bin")
    size = root.size(path)
    if not _TABLE_HEADER <= size <= _TABLE_BYTES:
        text = f"an ACPI table has {_TABLE_HEADER} to {_TABLE_BYTES} bytes"
        raise BadImage(f"volume {volume}: {kind}.bin has {size} bytes; {text}")
    header = root.head(path, _TABLE_HEADER)
    signature, length = header[:4], int.from_bytes(header[4:8], "little")
    if signature != kind.upper().encode() or length != size:
        raise BadImage(f"volume {volume}: {kind}.bin is not an ACPI table {kind.upper()} of {size} bytes")
    return path


def hand_over_state(vmi: VirtualMachineInstance, root: Root) -> None:
    """Give the folders of the state claim to QEMU's user: the container runtime made them as root.

    Raises OSError; ELOOP where the launcher has put a link in the place of one.
    """
    domain = vmi.spec.domain
    tpm, efi = domain.devices.tpm, domain.firmware.bootloader.efi
    if not ((tpm is not None and tpm.persistent) or (efi is not None and efi.persistent)):
        return
    with (
        root.opened(paths.PRIVATE_DIR, os.O_PATH | os.O_DIRECTORY) as descriptor,
        Root(descriptor) as private,
    ):
        for folder in _STATE_FOLDERS:
            with contextlib.suppress(FileNotFoundError):
                private.give_folder(folder)
