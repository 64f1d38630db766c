"""Applies an instance type and a preference to an instance's spec."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from kubecore.json import JsonObject, get_list, get_object, get_str
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
        annotations = get_object(metadata, "annotations")
        found = conflicts(decode(VirtualMachineInstanceSpec, spec), annotations, instancetype)
        if found:
            raise Conflicts(found)
        _apply_instancetype(spec, metadata, instancetype, preference)
    if preference is not None:
        _apply_preference(spec, metadata, preference)


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
    cpu = domain["cpu"] = {**get_object(domain, "cpu"), **topology(wanted.cpu.guest, preference)}
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
    memory = domain["memory"] = {**get_object(domain, "memory"), "guest": wanted.guest}
    _set(memory, {"hugepages": wanted.hugepages, "maxGuest": wanted.max_guest})
    percent = wanted.overcommit_percent or 0
    if percent > 0:
        guest = Quantity.parse(wanted.guest)
        share = _single(1 - _single(percent / 100))
        request = Quantity.of(int(_single(_single(guest.value) * share)), guest.format)
        domain.setdefault("resources", {}).setdefault("requests", {})["memory"] = str(request)


def _single(value: float) -> float:
    """`value` in single precision, in which KubeVirt computes requests: quotas count exact bytes."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _apply_preference(
    spec: JsonObject, metadata: JsonObject, preference: VirtualMachinePreferenceSpec
) -> None:
    domain = spec["domain"]
    _cpu_features(domain, preference.cpu)
    _devices(spec, domain["devices"], preference.devices)
    _features(domain, preference.features)
    _firmware(domain, preference.firmware)
    machine = preference.machine.preferred_machine_type
    if machine and not get_str(domain, "machine", "type"):
        domain["machine"] = {**get_object(domain, "machine"), "type": machine}
    _clock(domain, preference.clock)
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


def _cpu_features(domain: JsonObject, preference: CPUPreferences) -> None:
    wanted = preference.preferred_cpu_features
    if not wanted:
        return
    cpu = domain["cpu"] = get_object(domain, "cpu")
    present = {get_str(feature, "name") for feature in get_list(cpu, "features")}
    missing = _documents(feature for feature in wanted if feature.name not in present)
    cpu["features"] = [*get_list(cpu, "features"), *missing]


def _devices(spec: JsonObject, devices: JsonObject, preference: DevicePreferences) -> None:
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
    sound = devices.get("sound")
    if isinstance(sound, dict) and not sound.get("model"):
        _fill(sound, {"model": preference.preferred_sound_model})
    if preference.preferred_video_type is not None:
        devices["video"] = devices.get("video") or {}
        _fill_empty(devices["video"], {"type": preference.preferred_video_type})
    if preference.preferred_panic_device_model is not None:
        devices["panicDevices"] = devices.get("panicDevices") or [{}]
        for device in devices["panicDevices"]:
            _fill(device, {"model": preference.preferred_panic_device_model})
    for gpu in get_list(devices, "gpus"):
        _fill(gpu, {"virtualGPUOptions": preference.preferred_virtual_gpu_options})
    for disk in get_list(devices, "disks"):
        _disk(disk, preference)
    for device in get_list(devices, "inputs"):
        preferred = {"bus": preference.preferred_input_bus, "type": preference.preferred_input_type}
        _fill_empty(device, preferred)
    _interfaces(spec, devices, preference)


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


def _disk(disk: JsonObject, preference: DevicePreferences) -> None:
    buses = {
        "disk": preference.preferred_disk_bus,
        "cdrom": preference.preferred_cdrom_bus,
        "lun": preference.preferred_lun_bus,
    }
    if not any(isinstance(disk.get(target), dict) for target in buses):
        disk["disk"] = {}
    for target, bus in buses.items():
        settings = disk.get(target)
        if isinstance(settings, dict):
            _fill_empty(settings, {"bus": bus})
    if not isinstance(disk.get("disk"), dict):
        return
    _fill(disk, {"blockSize": preference.preferred_disk_block_size})
    _fill_empty(disk, {"cache": preference.preferred_disk_cache, "io": preference.preferred_disk_io})
    if disk["disk"].get("bus") == "virtio":
        _fill(disk, {"dedicatedIOThread": preference.preferred_disk_dedicated_io_thread})


_BINDINGS = ("bridge", "masquerade", "sriov", "passtBinding", "binding", "slirp", "macvtap", "passt")


def _interfaces(spec: JsonObject, devices: JsonObject, preference: DevicePreferences) -> None:
    pod_networks = {get_str(network, "name") for network in get_list(spec, "networks") if "pod" in network}
    for interface in get_list(devices, "interfaces"):
        _fill_empty(interface, {"model": preference.preferred_interface_model})
        has_binding = any(interface.get(binding) is not None for binding in _BINDINGS)
        masquerade = preference.preferred_interface_masquerade
        if masquerade is not None and not has_binding and get_str(interface, "name") in pod_networks:
            interface["masquerade"] = encode(masquerade)


def _features(domain: JsonObject, preference: FeaturePreferences) -> None:
    if preference == FeaturePreferences():
        return
    features = domain["features"] = get_object(domain, "features")
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
        own = {key: value for key, value in get_object(features, "hyperv").items() if value is not None}
        features["hyperv"] = {**encode(preference.preferred_hyperv), **own}


def _firmware(domain: JsonObject, wanted: FirmwarePreferences) -> None:
    if wanted == FirmwarePreferences():
        return
    firmware = get_object(domain, "firmware")
    loader = get_object(firmware, "bootloader")
    bios, efi = loader.get("bios"), loader.get("efi")
    if wanted.preferred_use_bios and bios is None and efi is None:
        bios = {}
    if bios is not None:
        _fill(bios, {"useSerial": wanted.preferred_use_bios_serial})
    is_open = bios is None and efi is None
    if is_open and wanted.preferred_efi is not None:
        efi = encode(wanted.preferred_efi)
    else:
        if is_open and wanted.preferred_use_efi:
            efi = {}
        if efi is not None:
            _fill(efi, {"secureBoot": wanted.preferred_use_secure_boot})
    chosen = {key: value for key, value in (("bios", bios), ("efi", efi)) if value is not None}
    domain["firmware"] = {**firmware, "bootloader": {**loader, **chosen}}


def _clock(domain: JsonObject, preference: ClockPreferences) -> None:
    if preference == ClockPreferences():
        return
    clock = domain["clock"] = get_object(domain, "clock")
    offset = preference.preferred_clock_offset
    if offset is not None and clock.get("utc") is None and clock.get("timezone") is None:
        clock.update(encode(offset))
    _fill(clock, {"timer": preference.preferred_timer})
