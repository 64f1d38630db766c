"""Disks and shared file systems: how volumes show up in the guest."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.features import FeatureState
from virtplane.api.markers import EMPTY_IS_SET, ZERO_IS_UNSET, ApiStruct, UInt, describe


class CustomBlockSize(ApiStruct, kw_only=True):
    """Block sizes in bytes, whatever the storage has."""

    discard_granularity: Annotated[
        UInt | None, describe("Bytes in whose multiples the guest discards; a multiple of logical.")
    ] = None
    logical: Annotated[
        UInt | None,
        describe(
            "What the guest addresses: a power of 2 from 512 to 2097152, at most physical. 512 on bus sata."
        ),
        ZERO_IS_UNSET,
    ] = None
    physical: Annotated[
        UInt | None,
        describe("What the storage writes at once, as the guest sees it: a power of 2 from 512 to 2097152."),
        ZERO_IS_UNSET,
    ] = None


class BlockSize(ApiStruct, kw_only=True):
    """Block sizes that the guest sees; QEMU's choice when absent."""

    custom: CustomBlockSize | None = None
    match_volume: Annotated[
        FeatureState | None, describe("Take the sizes of the volume's storage; not beside custom.")
    ] = None


class CDRomTarget(ApiStruct, kw_only=True):
    """The volume is a CD-ROM. Without a volume, the drive is empty."""

    bus: Annotated[str | None, describe("sata (when absent), scsi or usb.")] = None
    readonly: Annotated[bool | None, describe("The guest cannot write; true when absent.")] = None
    tray: Annotated[str | None, describe("closed (when absent) or open.")] = None


class DiskTarget(ApiStruct, kw_only=True):
    """The volume is a disk, as it is where no target is set."""

    bus: Annotated[str | None, describe("virtio, sata (when absent), scsi or usb.")] = None
    pci_address: Annotated[
        str | None, describe("The PCI address in the guest, such as 0000:81:01.0; bus virtio only.")
    ] = None
    readonly: Annotated[
        bool | None, describe("The guest cannot write; false when absent. Not on bus sata."), ZERO_IS_UNSET
    ] = None


class LunTarget(ApiStruct, kw_only=True):
    """The volume is a SCSI LUN whose commands are passed through; claims only."""

    bus: Annotated[str | None, describe("virtio, sata (when absent) or scsi.")] = None
    readonly: Annotated[
        bool | None, describe("The guest cannot write; false when absent."), ZERO_IS_UNSET
    ] = None
    reservation: Annotated[
        bool | None,
        describe(
            "The guest may reserve the LUN (SCSI persistent reservations), if the installation allows it."
        ),
        ZERO_IS_UNSET,
    ] = None


class Disk(ApiStruct, kw_only=True):
    """How a volume of the same name shows up in the guest: as disk, cdrom or lun."""

    block_size: BlockSize | None = None
    boot_order: Annotated[
        UInt | None, describe("The place in the boot order, from 1. Without any order, the first disk boots.")
    ] = None
    cache: Annotated[
        str | None,
        describe(
            "none, writethrough or writeback. When absent, none where the storage has direct I/O, else "
            "writethrough."
        ),
    ] = None
    cdrom: CDRomTarget | None = None
    changed_block_tracking: Annotated[
        bool | None, describe("Track changed blocks for incremental backups. No effect yet.")
    ] = None
    dedicated_io_thread: Annotated[
        bool | None, describe("Serve this disk by a thread of its own; bus virtio only.")
    ] = field(default=None, name="dedicatedIOThread")
    disk: DiskTarget | None = None
    error_policy: Annotated[
        str | None,
        describe(
            "What an I/O error does: stop (pauses the guest; when absent), report (to the guest), "
            "ignore, or enospace (stop if storage is full, else report)."
        ),
        EMPTY_IS_SET,
    ] = None
    io: Annotated[
        str | None,
        describe(
            "native or threads. When absent, native without cache on storage that is allocated, else threads."
        ),
    ] = None
    lun: LunTarget | None = None
    name: Annotated[str, describe("The volume that the disk shows.")]
    serial: Annotated[
        str | None, describe("The serial number that the guest sees: up to 256 letters, digits and _.+-.")
    ] = None
    shareable: Annotated[
        bool | None, describe("Other machines may use the volume at the same time; cache must be none.")
    ] = None
    tag: Annotated[
        str | None, describe("Tells the guest what the disk is for, in the metadata of its config drive.")
    ] = None


class FilesystemVirtiofs(ApiStruct, kw_only=True):
    """Shared by virtiofs."""


class Filesystem(ApiStruct, kw_only=True):
    """A volume that the guest mounts as a file system."""

    name: Annotated[str, describe("The volume; the guest mounts it by this name.")]
    virtiofs: FilesystemVirtiofs
