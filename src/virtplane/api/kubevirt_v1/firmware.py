"""Firmware and direct kernel boot."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ApiStruct, describe, requested_one_of


class ACPI(ApiStruct, kw_only=True):
    """ACPI tables taken from volumes."""

    msdm_name_ref: str | None = None
    slic_name_ref: str | None = None


class BIOS(ApiStruct, kw_only=True):
    """Boot with SeaBIOS."""

    use_serial: bool | None = None


class EFI(ApiStruct, kw_only=True):
    """Boot with UEFI firmware."""

    persistent: Annotated[bool | None, describe("Keep EFI variables over restarts.")] = None
    secure_boot: Annotated[bool | None, describe("Boot signed loaders only; true when absent.")] = None


class Bootloader(ApiStruct, kw_only=True):
    """BIOS or EFI; one of them."""

    bios: BIOS | None = None
    efi: EFI | None = None


class KernelBootContainer(ApiStruct, kw_only=True):
    """The image that holds kernel and initrd."""

    image: str
    image_pull_policy: Annotated[str | None, requested_one_of("Always", "IfNotPresent", "Never")] = None
    image_pull_secret: str | None = None
    initrd_path: str | None = None
    kernel_path: str | None = None


class KernelBoot(ApiStruct, kw_only=True):
    """Boot a kernel given from outside the guest's disks."""

    container: KernelBootContainer | None = None
    kernel_args: str | None = None


class Firmware(ApiStruct, kw_only=True):
    """What the guest boots with: BIOS or EFI, identity, direct kernel boot."""

    acpi: ACPI | None = None
    bootloader: Bootloader = Bootloader()
    kernel_boot: KernelBoot = KernelBoot()
    serial: Annotated[str | None, describe("The serial number that SMBIOS shows.")] = None
    uuid: Annotated[str | None, describe("The UUID that SMBIOS shows; made at random when absent.")] = None
