"""Firmware and direct kernel boot."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ApiStruct, describe, requested_one_of


class ACPI(ApiStruct, kw_only=True):
    """ACPI tables taken from volumes with secrets; at least one is named."""

    msdm_name_ref: Annotated[
        str | None, describe("The secret volume that holds table MSDM (the product key of Windows).")
    ] = None
    slic_name_ref: Annotated[
        str | None, describe("The secret volume that holds table SLIC (the volume license of Windows).")
    ] = None


class BIOS(ApiStruct, kw_only=True):
    """Boot with SeaBIOS."""

    use_serial: Annotated[
        bool | None, describe("Show the messages of the BIOS on the serial console, too; false when absent.")
    ] = None


class EFI(ApiStruct, kw_only=True):
    """Boot with UEFI firmware (OVMF)."""

    persistent: Annotated[
        bool | None,
        describe(
            "Keep EFI variables over restarts, in a claim that virt-controller makes; false when absent."
        ),
    ] = None
    secure_boot: Annotated[
        bool | None, describe("Boot signed loaders only; true when absent, and features.smm must be on then.")
    ] = None


class Bootloader(ApiStruct, kw_only=True):
    """BIOS or EFI, one of them; BIOS when absent."""

    bios: BIOS | None = None
    efi: EFI | None = None


class KernelBootContainer(ApiStruct, kw_only=True):
    """The image that holds kernel and initrd; at least one path is named."""

    image: Annotated[str, describe("The name of the image.")]
    image_pull_policy: Annotated[
        str | None,
        describe("When nodes pull the image: Always, IfNotPresent or Never."),
        requested_one_of("Always", "IfNotPresent", "Never"),
    ] = None
    image_pull_secret: Annotated[
        str | None, describe("The secret, in the same namespace, for the image's registry.")
    ] = None
    initrd_path: Annotated[str | None, describe("Where the image has the initrd, as an absolute path.")] = (
        None
    )
    kernel_path: Annotated[str | None, describe("Where the image has the kernel, as an absolute path.")] = (
        None
    )


class KernelBoot(ApiStruct, kw_only=True):
    """Boot a kernel given from outside the guest's disks."""

    container: KernelBootContainer | None = None
    kernel_args: Annotated[str | None, describe("The kernel's command line; needs container.")] = None


class Firmware(ApiStruct, kw_only=True):
    """What the guest boots with: BIOS or EFI, identity, direct kernel boot."""

    acpi: ACPI | None = None
    bootloader: Bootloader = Bootloader()
    kernel_boot: KernelBoot = KernelBoot()
    serial: Annotated[
        str | None,
        describe("The serial number that SMBIOS shows; VirtualMachines without one get one at random."),
    ] = None
    uuid: Annotated[
        str | None,
        describe("The UUID that SMBIOS shows and cloud-init data have; made at random when absent."),
    ] = None
