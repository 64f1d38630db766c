"""The two demo guests: one that starts fast, and one whose kernel knows the hardware that QEMU emulates.

They differ in nothing but the kernel; docs/decisions/043 has what that costs.
"""

from __future__ import annotations

from dataclasses import dataclass

_VIRTIO = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_scsi",
    "virtio_balloon",
    "virtio_rng",
    "virtio_mem",
    "sd_mod",
    "sr_mod",
    "isofs",
    "virtiofs",
    "evdev",
    "button",
)
_EMULATED = (
    # Disks and CD-ROMs on SATA, IDE and USB; generic SCSI for LUNs.
    "ahci",
    "ata_piix",
    "xhci_pci",
    "ehci_pci",
    "uhci_hcd",
    "usb_storage",
    "uas",
    "sg",
    # Network cards.
    "e1000",
    "e1000e",
    "8139cp",
    "8139too",
    "pcnet32",
    # Input, sound (codecs before their controller), watchdog, notices of crashes, variables of the firmware.
    "usbhid",
    "hid_generic",
    "virtio_input",
    "psmouse",
    "snd_hda_codec_generic",
    "snd_hda_intel",
    "snd_intel8x0",
    "i6300esb",
    "pvpanic_mmio",
    "pvpanic_pci",
    "efivarfs",
    # The disk's own partition.
    "vfat",
    "nls_cp437",
    "nls_ascii",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """One demo guest."""

    reference: str
    """The name of its image."""

    kernels: tuple[str, ...]
    """Meta packages of its kernel: Debian's, Ubuntu's."""

    modules: tuple[str, ...]
    """Drivers that it loads; those that the kernel has built in or lacks are passed over."""

    has_boot_files: bool = False
    """Whether the image also has kernel and initramfs as files, for `kernelBoot`."""


CLOUD = Variant(
    "virtplane.local/demo-guest:latest", ("linux-image-cloud-amd64", "linux-image-virtual"), _VIRTIO
)
"""Knows virtio only, and is the one that examples, ``virtplane demo`` and most tests start."""

FULL = Variant(
    "virtplane.local/demo-guest-full:latest",
    ("linux-image-amd64", "linux-image-generic"),
    (*_VIRTIO, *_EMULATED),
    has_boot_files=True,
)
"""Knows every bus and card that a virtual machine may have, and starts some seconds later under emulation."""
