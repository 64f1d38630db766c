"""Applies an instance type and a preference to an instance's spec."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode, encode
from virtplane.api.instancetype_v1beta1.instancetype import (
    MemoryInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virtplane.api.instancetype_v1beta1.preference import (
    ClockPreferences,
    CPUPreferences,
    DevicePreferences,
    FeaturePreferences,
    FirmwarePreferences,
    VirtualMachinePreferenceSpec,
)
from virtplane.api.kubevirt_v1.clock import Clock
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.firmware import Bootloader
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.instancetypes.conflicts import conflicts
from virtplane.instancetypes.topology import topology


class Conflicts(Exception):
    """The VM sets fields that its instance type sets; `fields` are their paths."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def apply(
    spec: JsonObject,
    metadata: JsonObject,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec | None,
) -> None:
    """Change an instance's `spec` and `metadata` in place: documents, because what is in them is kept.

    Raises Conflicts where the spec sets what the instance type gives, UnfitDocument where `spec` is none.
    """
    domain = spec.setdefault("domain", {})
    domain.setdefault("devices", {})
    if instancetype is not None:
        annotations = metadata.get("annotations") or {}
        found = conflicts(decode(VirtualMachineInstanceSpec, spec), annotations, instancetype)
        if found:
            raise Conflicts(found)
        _apply_instancetype(spec, metadata, instancetype, preference)
    if preference is not None:
        _apply_preference(spec, metadata, decode(VirtualMachineInstanceSpec, spec), preference)


# What is there is asked of the struct; values are put into the document, in which all else stays.

Value: TypeAlias = msgspec.Struct | str | int | bool | None


def _document(value: Value) -> Any:
    return encode(value) if isinstance(value, msgspec.Struct) else value


def _set(target: JsonObject, values: Mapping[str, Value]) -> None:
    """Set every field that is not None."""
    target.update({key: _document(value) for key, value in values.items() if value is not None})


def _fill(target: JsonObject, values: Mapping[str, Value]) -> None:
    """Set a field that is not set; None sets nothing."""
    _set(target, {key: value for key, value in values.items() if target.get(key) is None})


def _fill_empty(target: JsonObject, values: Mapping[str, str | None]) -> None:
    """Set a field that is not set or empty; None and empty values set nothing."""
    target.update({key: value for key, value in values.items() if value and not target.get(key)})


def _documents(values: Iterable[msgspec.Struct]) -> list[JsonObject]:
    return [encode(value) for value in values]


def _part(parent: JsonObject, name: str) -> JsonObject:
    """The object `name` of `parent`, which is created if absent."""
    part: JsonObject = parent.get(name) or {}
    parent[name] = part
    return part


def _annotate(metadata: JsonObject, annotations: Mapping[str, str]) -> None:
    for key, value in annotations.items():
        metadata.setdefault("annotations", {}).setdefault(key, value)


def _apply_instancetype(
    spec: JsonObject,
    metadata: JsonObject,
    wanted: VirtualMachineInstancetypeSpec,
    preference: VirtualMachinePreferenceSpec | None,
) -> None:
    domain = spec["domain"]
    cpu = _part(domain, "cpu")
    cpu.update(topology(wanted.cpu.guest, preference))
    _set(
        cpu,
        {
            "model": wanted.cpu.model,
            "dedicatedCpuPlacement": wanted.cpu.dedicated_cpu_placement,
            "isolateEmulatorThread": wanted.cpu.isolate_emulator_thread,
            "numa": wanted.cpu.numa,
            "realtime": wanted.cpu.realtime,
            "maxSockets": wanted.cpu.max_sockets,
        },
    )
    _apply_memory(domain, wanted.memory)
    _set(
        domain,
        {
            "ioThreadsPolicy": wanted.io_threads_policy,
            "ioThreads": wanted.io_threads,
            "launchSecurity": wanted.launch_security,
        },
    )
    if wanted.gpus:
        domain["devices"]["gpus"] = _documents(wanted.gpus)
    if wanted.host_devices:
        domain["devices"]["hostDevices"] = _documents(wanted.host_devices)
    if wanted.node_selector:
        spec["nodeSelector"] = dict(wanted.node_selector)
    if wanted.scheduler_name:
        spec["schedulerName"] = wanted.scheduler_name
    _annotate(metadata, wanted.annotations)


def _apply_memory(domain: JsonObject, wanted: MemoryInstancetype) -> None:
    memory = _part(domain, "memory")
    _set(memory, {"guest": wanted.guest, "hugepages": wanted.hugepages, "maxGuest": wanted.max_guest})
    percent = wanted.overcommit_percent or 0
    if percent > 0:
        guest = Quantity.parse(wanted.guest)
        share = _single(1 - _single(percent / 100))
        request = Quantity.of(int(_single(_single(guest.value) * share)), guest.format)
        _part(_part(domain, "resources"), "requests")["memory"] = str(request)


def _single(value: float) -> float:
    """`value` in single precision, in which KubeVirt computes requests: quotas count exact bytes."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _apply_preference(
    spec: JsonObject,
    metadata: JsonObject,
    present: VirtualMachineInstanceSpec,
    preference: VirtualMachinePreferenceSpec,
) -> None:
    domain = spec["domain"]
    _cpu_features(domain, present.domain.cpu, preference.cpu)
    _devices(domain["devices"], present, preference.devices)
    _features(domain, preference.features)
    _firmware(domain, present.domain.firmware.bootloader, preference.firmware)
    machine = preference.machine.preferred_machine_type
    if machine and not present.domain.machine.type:
        _part(domain, "machine")["type"] = machine
    _clock(domain, present.domain.clock, preference.clock)
    _fill(
        spec,
        {
            "subdomain": preference.preferred_subdomain,
            "terminationGracePeriodSeconds": preference.preferred_termination_grace_period_seconds,
            "architecture": preference.preferred_architecture,
        },
    )
    _annotate(metadata, preference.annotations)
    _fill(domain, {"launchSecurity": preference.preferred_launch_security})


def _cpu_features(domain: JsonObject, present: CPU, preference: CPUPreferences) -> None:
    wanted = preference.preferred_cpu_features
    if not wanted:
        return
    cpu, known = _part(domain, "cpu"), {feature.name for feature in present.features}
    missing = _documents(feature for feature in wanted if feature.name not in known)
    cpu["features"] = [*(cpu.get("features") or ()), *missing]


def _devices(devices: JsonObject, present: VirtualMachineInstanceSpec, preference: DevicePreferences) -> None:
    if preference == DevicePreferences():
        return
    _fill(
        devices,
        {
            "useVirtioTransitional": preference.preferred_use_virtio_transitional,
            "blockMultiQueue": preference.preferred_block_multi_queue,
            "networkInterfaceMultiqueue": preference.preferred_network_interface_multi_queue,
            "rng": preference.preferred_rng,
            "tpm": preference.preferred_tpm,
        },
    )
    prefer_attached(devices, preference)
    _set(devices, {"disableHotplug": preference.preferred_disable_hotplug})
    given = present.domain.devices
    if given.sound is not None:
        _fill(devices["sound"], {"model": preference.preferred_sound_model})
    if preference.preferred_video_type is not None:
        _fill_empty(_part(devices, "video"), {"type": preference.preferred_video_type})
    if preference.preferred_panic_device_model is not None:
        devices["panicDevices"] = devices.get("panicDevices") or [{}]
        for device in devices["panicDevices"]:
            _fill(device, {"model": preference.preferred_panic_device_model})
    for gpu in devices.get("gpus") or ():
        _fill(gpu, {"virtualGPUOptions": preference.preferred_virtual_gpu_options})
    for disk, document in zip(given.disks, devices.get("disks") or (), strict=True):
        _disk(disk, document, preference)
    for device in devices.get("inputs") or ():
        preferred = {"bus": preference.preferred_input_bus, "type": preference.preferred_input_type}
        _fill_empty(device, preferred)
    pod_networks = {network.name for network in present.networks if network.pod is not None}
    for interface, document in zip(given.interfaces, devices.get("interfaces") or (), strict=True):
        _interface(interface, document, pod_networks, preference)


def prefer_attached(devices: JsonObject, preference: DevicePreferences) -> None:
    """Apply the preference for automatically attached devices where `devices` does not set it."""
    _fill(
        devices,
        {
            "autoattachInputDevice": preference.preferred_autoattach_input_device,
            "autoattachGraphicsDevice": preference.preferred_autoattach_graphics_device,
            "autoattachMemBalloon": preference.preferred_autoattach_mem_balloon,
            "autoattachPodInterface": preference.preferred_autoattach_pod_interface,
            "autoattachSerialConsole": preference.preferred_autoattach_serial_console,
        },
    )


def _disk(disk: Disk, document: JsonObject, preference: DevicePreferences) -> None:
    is_disk = disk.disk is not None or (disk.cdrom is None and disk.lun is None)
    for is_there, target, bus in (
        (is_disk, "disk", preference.preferred_disk_bus),
        (disk.cdrom is not None, "cdrom", preference.preferred_cdrom_bus),
        (disk.lun is not None, "lun", preference.preferred_lun_bus),
    ):
        if is_there:
            _fill_empty(_part(document, target), {"bus": bus})
    if not is_disk:
        return
    _fill(document, {"blockSize": preference.preferred_disk_block_size})
    _fill_empty(document, {"cache": preference.preferred_disk_cache, "io": preference.preferred_disk_io})
    if ((disk.disk.bus if disk.disk is not None else None) or preference.preferred_disk_bus) == "virtio":
        _fill(document, {"dedicatedIOThread": preference.preferred_disk_dedicated_io_thread})


def _interface(
    interface: Interface, document: JsonObject, pod_networks: Container[str], preference: DevicePreferences
) -> None:
    _fill_empty(document, {"model": preference.preferred_interface_model})
    bindings = (
        *(interface.bridge, interface.masquerade, interface.sriov, interface.passt_binding),
        *(interface.binding, interface.slirp, interface.macvtap, interface.passt),
    )
    has_binding = any(binding is not None for binding in bindings)
    masquerade = preference.preferred_interface_masquerade
    if masquerade is not None and not has_binding and interface.name in pod_networks:
        document["masquerade"] = encode(masquerade)


def _features(domain: JsonObject, preference: FeaturePreferences) -> None:
    if preference == FeaturePreferences():
        return
    features = _part(domain, "features")
    _set(features, {"acpi": preference.preferred_acpi})
    _fill(
        features,
        {
            "apic": preference.preferred_apic,
            "kvm": preference.preferred_kvm,
            "pvspinlock": preference.preferred_pvspinlock,
            "smm": preference.preferred_smm,
        },
    )
    if preference.preferred_hyperv is not None:
        own = {key: value for key, value in (features.get("hyperv") or {}).items() if value is not None}
        features["hyperv"] = {**encode(preference.preferred_hyperv), **own}


def _firmware(domain: JsonObject, present: Bootloader, wanted: FirmwarePreferences) -> None:
    if wanted == FirmwarePreferences():
        return
    loader = _part(_part(domain, "firmware"), "bootloader")
    is_open = present.bios is None and present.efi is None
    if present.bios is not None or (is_open and wanted.preferred_use_bios):
        _fill(_part(loader, "bios"), {"useSerial": wanted.preferred_use_bios_serial})
        is_open = False
    if is_open and wanted.preferred_efi is not None:
        loader["efi"] = encode(wanted.preferred_efi)
    elif present.efi is not None or (is_open and wanted.preferred_use_efi):
        _fill(_part(loader, "efi"), {"secureBoot": wanted.preferred_use_secure_boot})


def _clock(domain: JsonObject, present: Clock, preference: ClockPreferences) -> None:
    if preference == ClockPreferences():
        return
    clock = _part(domain, "clock")
    offset = preference.preferred_clock_offset
    if offset is not None and present.utc is None and present.timezone is None:
        clock.update(encode(offset))
    _fill(clock, {"timer": preference.preferred_timer})
