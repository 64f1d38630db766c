"""What the guest boots with: UEFI or BIOS, a kernel from outside its disks, ACPI tables."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.firmware import EFI
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import PRIVATE_DIRECTORY, BootFiles, DomainContext
from virtplane.compute.domain.xml import Element, element, yes_no

_NVRAM_FOLDERS = {True: "/var/lib/libvirt/qemu/nvram", False: f"{PRIVATE_DIRECTORY}/libvirt/qemu/nvram"}
"""Where libvirt keeps UEFI's variables in the launcher's container: as root, and as another user."""

_BOOT_MENU_MILLISECONDS = 10000


def render_os(vmi: VirtualMachineInstance, context: DomainContext) -> Element:
    """``<os>``: architecture, machine type, firmware, kernel, boot menu, ACPI tables."""
    domain = vmi.spec.domain
    machine = domain.machine.type or "q35"
    node = element("os", {}, element("type", {"arch": "x86_64", "machine": machine}, "hvm"))
    bootloader = domain.firmware.bootloader
    if bootloader.efi is not None:
        node.extend(_efi(bootloader.efi, vmi, context.boot))
    elif bootloader.bios is not None and bootloader.bios.use_serial:
        node.append(element("bios", {"useserial": "yes"}))
    if context.boot.kernel:
        node.append(element("kernel", {}, context.boot.kernel))
    if context.boot.initrd:
        node.append(element("initrd", {}, context.boot.initrd))
    if domain.firmware.kernel_boot.kernel_args:
        node.append(element("cmdline", {}, domain.firmware.kernel_boot.kernel_args))
    if vmi.spec.start_strategy == "Paused":
        node.append(element("bootmenu", {"enable": "yes", "timeout": _BOOT_MENU_MILLISECONDS}))
    node.append(element("smbios", {"mode": "sysinfo"}))
    if context.boot.slic:
        node.append(element("acpi", {}, element("table", {"type": "slic"}, context.boot.slic)))
    return node


def _efi(efi: EFI, vmi: VirtualMachineInstance, boot: BootFiles) -> list[Element]:
    assert boot.uefi is not None, "virt-handler looks for it first"
    secure = efi.secure_boot is not False
    loader = {"readonly": "yes", "secure": yes_no(secure), "type": "pflash"}
    own = f"{_NVRAM_FOLDERS[vmi.status.runtime_user == 0]}/{vmi.metadata.name}_VARS.fd"
    variables = element("nvram", {"template": boot.uefi.variables}, own)
    return [element("loader", loader, boot.uefi.code), variables]


def acpi_arguments(boot: BootFiles) -> list[str]:
    """Arguments of QEMU for the tables that libvirt 9 does not know."""
    return ["-acpitable", f"file={boot.msdm}"] if boot.msdm else []
