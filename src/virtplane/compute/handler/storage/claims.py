"""Disks in claims: an empty claim with a file system gets one, and disks grow with their claims.

Blocks (runs in a thread). The sizes are KubeVirt's (VML-36): whole MiB, never more than was requested; a disk
on the node has the bytes that its owner names.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import PersistentVolumeClaimInfo
from virtplane.api.kubevirt_v1.volumes import kind_of
from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.handler.rooted import Root
from virtplane.compute.hotplug import READY, hotplugged_volumes, plugged_volumes

_MIB = 1 << 20
_BLOCK = 512
"""The unit of st_blocks."""


class NotEnoughSpace(Exception):
    """A claim, or the node, has no room for the disk that was requested."""


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """How much smaller than requested a claim may be, and what stays free in it."""

    tolerated_percent: int = 10
    reserved_bytes: int = 131072


def info_of(vmi: VirtualMachineInstance, volume: str) -> PersistentVolumeClaimInfo | None:
    """What virt-controller found out about the claim of a volume."""
    found = (each.persistent_volume_claim_info for each in vmi.status.volume_status if each.name == volume)
    return next(found, None)


def is_preallocated(info: PersistentVolumeClaimInfo | None) -> bool:
    """Whether the blocks of a claim are to stay allocated."""
    return info is not None and bool(info.preallocated)


def is_allocated(root: Root, path: str) -> bool:
    """Whether the disk in the file `path` has all its blocks."""
    with root.opened_disk(path, os.O_RDONLY) as descriptor:
        return _has_all_blocks(os.fstat(descriptor))


def growing_volumes(vmi: VirtualMachineInstance) -> dict[str, PersistentVolumeClaimInfo]:
    """The claims that are the guest's disks, by volume; they may grow while it runs.

    A hotplugged one is a disk once the guest has it.
    """
    waiting = hotplugged_volumes(vmi) - {
        name for name, entry in plugged_volumes(vmi).items() if entry.phase == READY
    }
    found = {}
    for volume in vmi.spec.volumes:
        kind, info = kind_of(volume), info_of(vmi, volume.name)
        if kind is not None and kind.claim_is == "disk" and info is not None:
            found[volume.name] = info
    return {name: info for name, info in found.items() if name not in waiting}


def requested_bytes(info: PersistentVolumeClaimInfo) -> int:
    """The size of the claim: its request, or its capacity if that is less."""
    sizes = [sizes.get("storage") for sizes in (info.requests, info.capacity)]
    return min((Quantity.parse(size).value for size in sizes if size is not None), default=0)


def guest_bytes(info: PersistentVolumeClaimInfo, usable: int) -> int:
    """How large a disk in the file system of a claim may be, where the file system has room for `usable`."""
    share = 1 - float(info.filesystem_overhead or 0)
    return whole_mib(int(share * min(usable, requested_bytes(info))))


def make_disk(root: Root, path: str, info: PersistentVolumeClaimInfo, settings: ClaimSettings) -> str:
    """Make the disk of an empty claim; returns a remark for the owner where it is smaller than requested.

    Raises NotEnoughSpace.
    """
    wanted = whole_mib(requested_bytes(info))
    if not wanted:
        raise NotEnoughSpace(f"the size for {path} is too low, must be at least 1MiB")
    return make_file(root, path, wanted, settings)


def make_file(root: Root, path: str, wanted: int, settings: ClaimSettings) -> str:
    """Make a disk of `wanted` bytes, none of them allocated, or a smaller one if that is tolerated.

    Returns a remark for the owner where it is smaller. Raises NotEnoughSpace.
    """
    with root.opened(path.rpartition("/")[0], os.O_RDONLY | os.O_DIRECTORY) as folder:
        available = _available(folder) - settings.reserved_bytes
    size, remark = wanted, ""
    if wanted > available:
        percent = settings.tolerated_percent
        if wanted * (100 - percent) // 100 > available:
            raise NotEnoughSpace(
                f"unable to create {path}, not enough space, demanded size {wanted} B is bigger than"
                f" available space {available} B, also after taking {percent} % toleration into account"
            )
        size = available
        remark = (
            f"PV size too small: expected {wanted} B, found {available} B."
            f" Using it anyway, it is within {percent} % toleration"
        )
    root.create(path, lambda descriptor: os.truncate(descriptor, size))
    return remark


def grow_file(root: Root, path: str, info: PersistentVolumeClaimInfo, settings: ClaimSettings) -> None:
    """Let the disk fill its claim; one that has all its blocks gets those of the new part, too.

    A file that QEMU may not write to stays as it is.
    """
    with root.opened_disk(path, os.O_RDWR) as descriptor:
        status = os.fstat(descriptor)
        if not _is_for_qemu(status):
            return
        size = guest_bytes(info, _usable(descriptor) - settings.reserved_bytes)
        if size <= status.st_size:
            return
        if _has_all_blocks(status):
            os.posix_fallocate(descriptor, status.st_size, size - status.st_size)
        else:
            os.truncate(descriptor, size)


def room(root: Root, path: str, info: PersistentVolumeClaimInfo, settings: ClaimSettings) -> int:
    """The size in bytes that the disk in the file `path` can have now."""
    with root.opened_disk(path, os.O_RDONLY) as descriptor:
        return guest_bytes(info, _usable(descriptor) - settings.reserved_bytes)


def _usable(descriptor: int) -> int:
    """What the file system has room for, with what the disk itself takes of it."""
    return _available(descriptor) + os.fstat(descriptor).st_blocks * _BLOCK


def _available(descriptor: int) -> int:
    figures = os.fstatvfs(descriptor)
    return figures.f_bavail * figures.f_frsize


def _has_all_blocks(status: os.stat_result) -> bool:
    return status.st_blocks * _BLOCK >= status.st_size > 0


def _is_for_qemu(status: os.stat_result) -> bool:
    """Whether QEMU's user may write to a file."""
    if status.st_uid == QEMU_USER:
        return bool(status.st_mode & stat.S_IWUSR)
    return bool(status.st_mode & (stat.S_IWGRP if status.st_gid == QEMU_USER else stat.S_IWOTH))


def whole_mib(size: int) -> int:
    """The bytes of a disk of at most `size`: images end at a whole MiB."""
    return size // _MIB * _MIB
