"""Rules on firmware, inputs, sound, video and other devices."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.volumes import DISK_CLAIMS
from virtplane.compute.apiserver.admission.response import REQUIRED, Cause
from virtplane.compute.apiserver.admission.rules.volumes import inner_path


def is_enabled(feature: object) -> bool:
    """Whether a feature state is on: present, and not switched off."""
    return isinstance(feature, dict) and feature.get("enabled") is not False


def firmware_acpi(path: str, spec: JsonObject) -> Iterator[Cause]:
    """ACPI tables come from secret volumes that exist."""
    acpi = get_object(spec, "domain", "firmware").get("acpi")
    if not isinstance(acpi, dict):
        return
    field = f"{path}.acpi"
    references = {key: get_str(acpi, key) for key in ("slicNameRef", "msdmNameRef")}
    if not any(references.values()):
        yield Cause("ACPI was set but no SLIC nor MSDM volume reference was set", field)
        return
    volumes = {get_str(volume, "name"): volume for volume in get_list(spec, "volumes")}
    for key, name in references.items():
        if not name:
            continue
        volume = volumes.get(name)
        if volume is None:
            yield Cause(f"{field} does not have a matching Volume.", f"{field}.{key}")
        elif "secret" not in volume:
            yield Cause(f"{field} refers to Volume of unsupported type.", f"{field}.{key}")


def firmware(path: str, spec: JsonObject) -> Iterator[Cause]:
    """One boot loader, kernels from images, secure boot with system management mode."""
    domain = get_object(spec, "domain")
    settings = get_object(domain, "firmware")
    loader = get_object(settings, "bootloader")
    field = f"{path}.domain.firmware"
    if loader.get("efi") is not None and loader.get("bios") is not None:
        yield Cause(
            f"{field}.bootloader has both EFI and BIOS configured, but they are mutually exclusive.",
            f"{field}.bootloader",
        )
    yield from _kernel_boot(f"{field}.kernelBoot", settings.get("kernelBoot"))
    if isinstance(loader.get("efi"), dict) and loader["efi"].get("secureBoot") is not False:
        is_tdx = get_object(domain, "launchSecurity").get("tdx") is not None
        if not is_tdx and not is_enabled(get_object(domain, "features").get("smm")):
            yield Cause(
                f"{path}.domain has EFI SecureBoot enabled."
                " SecureBoot requires SMM, which is currently disabled.",
                f"{path}.domain",
            )


def _kernel_boot(field: str, boot: object) -> Iterator[Cause]:
    if not isinstance(boot, dict):
        return
    container = boot.get("container")
    if not isinstance(container, dict):
        if get_str(boot, "kernelArgs"):
            yield Cause(
                "kernel arguments cannot be provided without an external kernel", f"{field}.kernelArgs"
            )
        return
    where = f"{field}.container"
    if not get_str(container, "image"):
        yield Cause(f"{where} must be defined with an image", f"{where}.image", REQUIRED)
    if not get_str(container, "kernelPath") and not get_str(container, "initrdPath"):
        yield Cause(
            f"{where} must be defined with at least one of the following: kernelPath, initrdPath",
            where,
            REQUIRED,
        )
    for key in ("kernelPath", "initrdPath"):
        yield from inner_path(f"{where}.{key}", get_str(container, key))


def inputs(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Tablets on virtio or USB."""
    for index, device in enumerate(get_list(spec, "domain", "devices", "inputs")):
        field = f"{path}.domain.devices.inputs[{index}]"
        if get_str(device, "bus") not in ("", "virtio", "usb"):
            yield Cause("Input device can have only virtio or usb bus.", f"{field}.bus")
        if get_str(device, "type") != "tablet":
            yield Cause("Input device can have only tablet type.", f"{field}.type")


def mediated_displays(path: str, spec: JsonObject) -> Iterator[Cause]:
    """One virtual GPU at most shows the boot messages."""
    displays = 0
    for gpu in get_list(spec, "domain", "devices", "gpus"):
        display = get_object(gpu, "virtualGPUOptions").get("display")
        if not isinstance(display, dict) or display.get("enabled") is False:
            continue
        ram_fb = display.get("ramFB")
        displays += ram_fb is None or is_enabled(ram_fb)
    if displays > 1:
        yield Cause("configuring multiple displays with ramfb is not valid ", f"{path}.GPUs")


def host_devices(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Passing devices of the node through needs its gate."""
    if get_object(spec, "domain", "devices").get("hostDevices") is None:
        return
    if not config.gate("HostDevices"):
        yield Cause("Host Devices feature gate is not enabled in kubevirt-config", f"{path}.HostDevices")


def sound(path: str, spec: JsonObject) -> Iterator[Cause]:
    """A known model, and a name."""
    device = get_object(spec, "domain", "devices").get("sound")
    if not isinstance(device, dict):
        return
    if get_str(device, "model") not in ("", "ich9", "ac97"):
        yield Cause("Sound device type is not supported. Options: 'ich9' or 'ac97'", f"{path}.Sound")
    if not get_str(device, "name"):
        yield Cause("Sound device requires a name field.", f"{path}.Sound")


def gated(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Devices whose feature must be on."""
    devices = get_object(spec, "domain", "devices")
    base = f"{path}.domain.devices"
    if get_bool(devices, "autoattachVSOCK") and not config.gate("VSOCK"):
        yield Cause("VSOCK feature gate is not enabled in kubevirt-config", f"{base}.autoattachVSOCK")
    if not config.persistent_reservation and any(
        get_bool(disk, "lun", "reservation") for disk in get_list(devices, "disks")
    ):
        yield Cause(
            "persistent reservation is not enabled in kubevirt config", f"{base}.disks.luns.reservation"
        )
    if devices.get("downwardMetrics") is not None and not config.gate("DownwardMetrics"):
        yield Cause(
            "downwardMetrics virtio serial is not allowed: DownwardMetrics feature gate is not enabled",
            f"{base}.downwardMetrics",
        )
    volumes = get_list(spec, "volumes")
    claims = {get_str(volume, "name") for volume in volumes if not DISK_CLAIMS.isdisjoint(volume)}
    for entry in () if config.gate("EnableVirtioFsStorageVolumes") else get_list(devices, "filesystems"):
        if get_str(entry, "name") in claims:
            yield Cause(
                "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC", f"{base}.filesystems"
            )


def video(path: str, spec: JsonObject) -> Iterator[Cause]:
    """No video card where no graphics device is wanted."""
    devices = get_object(spec, "domain", "devices")
    if devices.get("video") is not None and devices.get("autoattachGraphicsDevice") is False:
        yield Cause(
            "Video configuration is not allowed when autoattachGraphicsDevice is set to false",
            f"{path}.video",
        )


def panic_devices(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Known models, and not on s390x, which has its own."""
    devices = get_list(spec, "domain", "devices", "panicDevices")
    field = f"{path}.domain.devices.panicDevices"
    if devices and get_str(spec, "architecture") == "s390x":
        yield Cause("custom panic devices are not supported on s390x architecture", field)
        return
    for index, device in enumerate(devices):
        model = device.get("model")
        if model is not None and model not in ("hyperv", "isa", "pvpanic"):
            yield Cause(f"invalid PanicDeviceModel({model})", f"{field}[{index}].model")


def launch_security(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Encrypted guests: one technology, its gate, and what it does not work with."""
    domain = get_object(spec, "domain")
    security = domain.get("launchSecurity")
    if not isinstance(security, dict):
        return
    field = f"{path}.launchSecurity"
    architecture = get_str(spec, "architecture")
    if architecture == "s390x":
        return
    if architecture != "amd64":
        yield Cause(f"No launchSecurity support for architecture: {architecture}", f"{path}.architecture")
        return
    chosen = [kind for kind in ("sev", "snp", "tdx") if security.get(kind) is not None]
    if len(chosen) != 1:
        yield Cause("One and only one launchSecurity type can be set", field, "FieldValueForbidden")
        return
    kind = chosen[0].upper()
    gate = "WorkloadEncryptionTDX" if kind == "TDX" else "WorkloadEncryptionSEV"
    if not config.gate(gate):
        yield Cause(f"{gate} feature gate is not enabled in kubevirt-config", field)
        return
    yield from _encrypted(field, spec, kind)


def _encrypted(field: str, spec: JsonObject, kind: str) -> Iterator[Cause]:
    domain = get_object(spec, "domain")
    efi = get_object(domain, "firmware", "bootloader").get("efi")
    if kind == "TDX" and is_enabled(get_object(domain, "features").get("smm")):
        yield Cause("TDX does not work along with SMM", field)
    if not isinstance(efi, dict):
        yield Cause(f"{kind} requires OVMF (UEFI)", field)
    else:
        if kind != "TDX" and efi.get("secureBoot") is not False:
            yield Cause(f"{kind} does not work along with SecureBoot", field)
        if kind != "SEV" and efi.get("persistent"):
            yield Cause(f"{kind} does not work along with Persistent EFI variables", field)
    attested = get_object(domain, "launchSecurity", "sev").get("attestation") is not None
    if kind == "SEV" and attested and get_str(spec, "startStrategy") != "Paused":
        yield Cause("SEV attestation requires VMI StartStrategy 'Paused'", field)
    for interface in get_list(domain, "devices", "interfaces"):
        if interface.get("bootOrder") is not None:
            yield Cause(f"{kind} does not work with bootable NICs: {get_str(interface, 'name')}", field)
