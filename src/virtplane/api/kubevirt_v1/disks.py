"""Disks and shared file systems: how volumes show up in the guest."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.features import FeatureState
from virtplane.api.markers import EMPTY_IS_SET, ZERO_IS_UNSET, ApiStruct, UInt, describe


class CustomBlockSize(ApiStruct, kw_only=True):
    """Explicit block sizes in bytes."""

    discard_granularity: UInt | None = None
    logical: Annotated[UInt | None, ZERO_IS_UNSET] = None
    physical: Annotated[UInt | None, ZERO_IS_UNSET] = None


class BlockSize(ApiStruct, kw_only=True):
    """Block sizes that the guest sees."""

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class CDRomTarget(ApiStruct, kw_only=True):
    """The volume is a CD-ROM."""

    bus: Annotated[str | None, describe("sata, scsi or usb.")] = None
    readonly: bool | None = None
    tray: Annotated[str | None, describe("closed or open.")] = None


class DiskTarget(ApiStruct, kw_only=True):
    """The volume is a disk."""

    bus: Annotated[str | None, describe("virtio, sata, scsi or usb.")] = None
    pci_address: str | None = None
    readonly: Annotated[bool | None, describe("The guest cannot write."), ZERO_IS_UNSET] = None


class LunTarget(ApiStruct, kw_only=True):
    """The volume is a SCSI LUN, commands passed through."""

    bus: Annotated[str | None, describe("virtio, sata or scsi.")] = None
    readonly: Annotated[bool | None, ZERO_IS_UNSET] = None
    reservation: Annotated[bool | None, ZERO_IS_UNSET] = None


class Disk(ApiStruct, kw_only=True):
    """How a volume shows up in the guest; the volume has the same name."""

    block_size: BlockSize | None = None
    boot_order: Annotated[UInt | None, describe("The place in the boot order, from 1.")] = None
    cache: Annotated[str | None, describe("Cache mode: none, writethrough or writeback.")] = None
    cdrom: CDRomTarget | None = None
    changed_block_tracking: bool | None = None
    dedicated_io_thread: Annotated[bool | None, describe("Serve this disk by a thread of its own.")] = field(
        default=None, name="dedicatedIOThread"
    )
    disk: DiskTarget | None = None
    error_policy: Annotated[
        str | None, describe("What an I/O error does: stop, ignore, report or enospace."), EMPTY_IS_SET
    ] = None
    io: Annotated[str | None, describe("I/O mode: native or threads.")] = None
    lun: LunTarget | None = None
    name: Annotated[str, describe("The volume shown through this disk.")]
    serial: Annotated[str | None, describe("The serial number that the guest sees.")] = None
    shareable: Annotated[bool | None, describe("Other machines may use the volume at the same time.")] = None
    tag: Annotated[str | None, describe("Passed to the guest by cloud-init's metadata.")] = None


class FilesystemVirtiofs(ApiStruct, kw_only=True):
    """Shared through virtiofs."""


class Filesystem(ApiStruct, kw_only=True):
    """A volume shared with the guest as a file system."""

    name: str
    virtiofs: FilesystemVirtiofs
