"""Rules on firmware, inputs, sound, video and other devices."""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.features import is_on
from virtplane.api.kubevirt_v1.firmware import KernelBoot
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import is_disk_claim
from virtplane.compute.apiserver.admission.rules.volumes import inner_path
from virtplane.serving.responses import REQUIRED, Cause


def firmware_acpi(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """ACPI tables come from secret volumes that exist."""
    acpi = spec.domain.firmware.acpi
    if acpi is None:
        return
    field = f"{path}.acpi"
    if not acpi.slic_name_ref and not acpi.msdm_name_ref:
        yield Cause("ACPI was set but no SLIC nor MSDM volume reference was set", field)
        return
    volumes = {volume.name: volume for volume in spec.volumes}
    for key, name in (("slicNameRef", acpi.slic_name_ref), ("msdmNameRef", acpi.msdm_name_ref)):
        if not name:
            continue
        volume = volumes.get(name)
        if volume is None:
            yield Cause(f"{field} does not have a matching Volume.", f"{field}.{key}")
        elif volume.secret is None:
            yield Cause(f"{field} refers to Volume of unsupported type.", f"{field}.{key}")


def firmware(path: str, domain: DomainSpec) -> Iterator[Cause]:
    """One boot loader, kernels from images, secure boot with system management mode."""
    loader, field = domain.firmware.bootloader, f"{path}.domain.firmware"
    if loader.efi is not None and loader.bios is not None:
        yield Cause(
            f"{field}.bootloader has both EFI and BIOS configured, but they are mutually exclusive.",
            f"{field}.bootloader",
        )
    yield from _kernel_boot(f"{field}.kernelBoot", domain.firmware.kernel_boot)
    if loader.efi is not None and loader.efi.secure_boot is not False:
        is_tdx = domain.launch_security is not None and domain.launch_security.tdx is not None
        if not is_tdx and not is_on(domain.features.smm):
            yield Cause(
                f"{path}.domain has EFI SecureBoot enabled."
                " SecureBoot requires SMM, which is currently disabled.",
                f"{path}.domain",
            )


def _kernel_boot(field: str, boot: KernelBoot) -> Iterator[Cause]:
    container = boot.container
    if container is None:
        if boot.kernel_args:
            yield Cause(
                "kernel arguments cannot be provided without an external kernel", f"{field}.kernelArgs"
            )
        return
    where = f"{field}.container"
    if not container.image:
        yield Cause(f"{where} must be defined with an image", f"{where}.image", REQUIRED)
    if not container.kernel_path and not container.initrd_path:
        yield Cause(
            f"{where} must be defined with at least one of the following: kernelPath, initrdPath",
            where,
            REQUIRED,
        )
    yield from inner_path(f"{where}.kernelPath", container.kernel_path)
    yield from inner_path(f"{where}.initrdPath", container.initrd_path)


def inputs(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Tablets on virtio or USB."""
    for index, device in enumerate(spec.domain.devices.inputs):
        field = f"{path}.domain.devices.inputs[{index}]"
        if device.bus not in (None, "", "virtio", "usb"):
            yield Cause("Input device can have only virtio or usb bus.", f"{field}.bus")
        if device.type != "tablet":
            yield Cause("Input device can have only tablet type.", f"{field}.type")


def mediated_displays(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """One virtual GPU at most shows the boot messages."""
    displays = 0
    for gpu in spec.domain.devices.gpus:
        display = gpu.virtual_gpu_options.display if gpu.virtual_gpu_options is not None else None
        if display is not None and display.enabled is not False:
            displays += display.ram_fb is None or display.ram_fb.is_on
    if displays > 1:
        yield Cause("configuring multiple displays with ramfb is not valid ", f"{path}.GPUs")


def host_devices(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Passing devices of the node through needs its gate."""
    if spec.domain.devices.host_devices and not config.gate("HostDevices"):
        yield Cause("Host Devices feature gate is not enabled in kubevirt-config", f"{path}.HostDevices")


def sound(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """A known model, and a name."""
    device = spec.domain.devices.sound
    if device is None:
        return
    if device.model not in (None, "", "ich9", "ac97"):
        yield Cause("Sound device type is not supported. Options: 'ich9' or 'ac97'", f"{path}.Sound")
    if not device.name:
        yield Cause("Sound device requires a name field.", f"{path}.Sound")


def gated(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Devices whose feature must be on."""
    devices, base = spec.domain.devices, f"{path}.domain.devices"
    if devices.autoattach_vsock and not config.gate("VSOCK"):
        yield Cause("VSOCK feature gate is not enabled in kubevirt-config", f"{base}.autoattachVSOCK")
    if not config.persistent_reservation and any(
        disk.lun is not None and disk.lun.reservation for disk in devices.disks
    ):
        yield Cause(
            "persistent reservation is not enabled in kubevirt config", f"{base}.disks.luns.reservation"
        )
    if devices.downward_metrics is not None and not config.gate("DownwardMetrics"):
        yield Cause(
            "downwardMetrics virtio serial is not allowed: DownwardMetrics feature gate is not enabled",
            f"{base}.downwardMetrics",
        )
    claims = {volume.name for volume in spec.volumes if is_disk_claim(volume)}
    for entry in () if config.gate("EnableVirtioFsStorageVolumes") else devices.filesystems:
        if entry.name in claims:
            yield Cause(
                "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC", f"{base}.filesystems"
            )


def video(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """No video card where no graphics device is wanted."""
    devices = spec.domain.devices
    if devices.video is not None and devices.autoattach_graphics_device is False:
        yield Cause(
            "Video configuration is not allowed when autoattachGraphicsDevice is set to false",
            f"{path}.video",
        )


def panic_devices(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Known models, and not on s390x, which has its own."""
    devices = spec.domain.devices.panic_devices
    field = f"{path}.domain.devices.panicDevices"
    if devices and spec.architecture == "s390x":
        yield Cause("custom panic devices are not supported on s390x architecture", field)
        return
    for index, device in enumerate(devices):
        if device.model not in (None, "hyperv", "isa", "pvpanic"):
            yield Cause(f"invalid PanicDeviceModel({device.model})", f"{field}[{index}].model")


def launch_security(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Confidential guests: one technology, its feature gate, and incompatible settings."""
    security, field = spec.domain.launch_security, f"{path}.launchSecurity"
    architecture = spec.architecture or ""
    if security is None or architecture == "s390x":
        return
    if architecture != "amd64":
        yield Cause(f"No launchSecurity support for architecture: {architecture}", f"{path}.architecture")
        return
    technologies = {"SEV": security.sev, "SNP": security.snp, "TDX": security.tdx}
    chosen = [kind for kind, settings in technologies.items() if settings is not None]
    if len(chosen) != 1:
        yield Cause("One and only one launchSecurity type can be set", field, "FieldValueForbidden")
        return
    kind = chosen[0]
    gate = "WorkloadEncryptionTDX" if kind == "TDX" else "WorkloadEncryptionSEV"
    if not config.gate(gate):
        yield Cause(f"{gate} feature gate is not enabled in kubevirt-config", field)
        return
    yield from _encrypted(field, spec, kind)
    is_attested = security.sev is not None and security.sev.attestation is not None
    if kind == "SEV" and is_attested and spec.start_strategy != "Paused":
        yield Cause("SEV attestation requires VMI StartStrategy 'Paused'", field)
    for interface in spec.domain.devices.interfaces:
        if interface.boot_order is not None:
            yield Cause(f"{kind} does not work with bootable NICs: {interface.name}", field)


def _encrypted(field: str, spec: VirtualMachineInstanceSpec, kind: str) -> Iterator[Cause]:
    efi = spec.domain.firmware.bootloader.efi
    if kind == "TDX" and is_on(spec.domain.features.smm):
        yield Cause("TDX does not work along with SMM", field)
    if efi is None:
        yield Cause(f"{kind} requires OVMF (UEFI)", field)
    else:
        if kind != "TDX" and efi.secure_boot is not False:
            yield Cause(f"{kind} does not work along with SecureBoot", field)
        if kind != "SEV" and efi.persistent:
            yield Cause(f"{kind} does not work along with Persistent EFI variables", field)
