"""An instance type and a preference put into an instance's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.instancetypes.conflicts import conflicts
from virtplane.instancetypes.topology import topology


class Conflicts(Exception):
    """The machine sets what its instance type gives; `fields` are the paths."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def apply(
    spec: JsonObject,
    metadata: JsonObject,
    instancetype: JsonObject | None,
    preference: JsonObject | None,
) -> None:
    """Change an instance's `spec` and `metadata` in place.

    Raises Conflicts where the spec sets what the instance type gives, TopologyError where virtual CPUs cannot
    be spread.
    """
    domain = spec.setdefault("domain", {})
    domain.setdefault("devices", {})
    if instancetype is not None:
        found = conflicts(spec, get_object(metadata, "annotations"), instancetype)
        if found:
            raise Conflicts(found)
        _apply_instancetype(spec, metadata, instancetype, preference)
    if preference is not None:
        _apply_preference(spec, metadata, preference)


def _copy(value: Any) -> Any:
    return deep_copy({"value": value})["value"]


def _fill(target: JsonObject, key: str, value: Any) -> None:
    """Set what is open; None sets nothing."""
    if value is not None and target.get(key) is None:
        target[key] = _copy(value)


def _annotate(metadata: JsonObject, annotations: Mapping[str, str]) -> None:
    for key, value in annotations.items():
        metadata.setdefault("annotations", {}).setdefault(key, value)


def _apply_instancetype(
    spec: JsonObject, metadata: JsonObject, wanted: JsonObject, preference: JsonObject | None
) -> None:
    domain = spec["domain"]
    cpu_wanted = get_object(wanted, "cpu")
    cpu = domain["cpu"] = {
        **get_object(domain, "cpu"),
        **topology(get_int(cpu_wanted, "guest"), preference),
    }
    for field, given in (
        ("model", "model"),
        ("dedicatedCpuPlacement", "dedicatedCPUPlacement"),
        ("isolateEmulatorThread", "isolateEmulatorThread"),
        ("numa", "numa"),
        ("realtime", "realtime"),
        ("maxSockets", "maxSockets"),
    ):
        if cpu_wanted.get(given) is not None:
            cpu[field] = _copy(cpu_wanted[given])
    _apply_memory(domain, get_object(wanted, "memory"))
    for field in ("ioThreadsPolicy", "ioThreads", "launchSecurity"):
        if wanted.get(field) is not None:
            domain[field] = _copy(wanted[field])
    for field in ("gpus", "hostDevices"):
        if wanted.get(field):
            domain["devices"][field] = _copy(wanted[field])
    for field in ("nodeSelector", "schedulerName"):
        if wanted.get(field):
            spec[field] = _copy(wanted[field])
    _annotate(metadata, get_object(wanted, "annotations"))


def _apply_memory(domain: JsonObject, wanted: JsonObject) -> None:
    memory = domain["memory"] = {**get_object(domain, "memory"), "guest": wanted.get("guest")}
    for field in ("hugepages", "maxGuest"):
        if wanted.get(field) is not None:
            memory[field] = _copy(wanted[field])
    percent = get_int(wanted, "overcommitPercent")
    if percent > 0 and memory["guest"] is not None:
        guest = Quantity.parse(memory["guest"])
        request = Quantity.of(int(guest.value * (1 - percent / 100)), "BinarySI")
        domain.setdefault("resources", {}).setdefault("requests", {})["memory"] = str(request)


def _apply_preference(spec: JsonObject, metadata: JsonObject, preference: JsonObject) -> None:
    domain = spec["domain"]
    _cpu_features(domain, get_object(preference, "cpu"))
    _devices(spec, domain["devices"], get_object(preference, "devices"))
    _features(domain, get_object(preference, "features"))
    _firmware(domain, preference)
    machine = get_str(preference, "machine", "preferredMachineType")
    if machine and not get_str(domain, "machine", "type"):
        domain["machine"] = {**get_object(domain, "machine"), "type": machine}
    _clock(domain, get_object(preference, "clock"))
    _fill(spec, "subdomain", preference.get("preferredSubdomain"))
    _fill(spec, "terminationGracePeriodSeconds", preference.get("preferredTerminationGracePeriodSeconds"))
    _fill(spec, "architecture", preference.get("preferredArchitecture"))
    _annotate(metadata, get_object(preference, "annotations"))
    _fill(domain, "launchSecurity", preference.get("preferredLaunchSecurity"))


def _cpu_features(domain: JsonObject, preference: JsonObject) -> None:
    wanted = get_list(preference, "preferredCPUFeatures")
    if not wanted:
        return
    cpu = domain["cpu"] = get_object(domain, "cpu")
    present = {get_str(feature, "name") for feature in get_list(cpu, "features")}
    missing = [feature for feature in wanted if get_str(feature, "name") not in present]
    cpu["features"] = [*get_list(cpu, "features"), *_copy(missing)]


_DEVICE_FIELDS: tuple[tuple[str, str], ...] = (
    ("useVirtioTransitional", "preferredUseVirtioTransitional"),
    ("blockMultiQueue", "preferredBlockMultiQueue"),
    ("networkInterfaceMultiqueue", "preferredNetworkInterfaceMultiQueue"),
    ("autoattachInputDevice", "preferredAutoattachInputDevice"),
    ("autoattachGraphicsDevice", "preferredAutoattachGraphicsDevice"),
    ("autoattachMemBalloon", "preferredAutoattachMemBalloon"),
    ("autoattachPodInterface", "preferredAutoattachPodInterface"),
    ("autoattachSerialConsole", "preferredAutoattachSerialConsole"),
    ("rng", "preferredRng"),
    ("tpm", "preferredTPM"),
)


def _devices(spec: JsonObject, devices: JsonObject, preference: JsonObject) -> None:
    for field, preferred in _DEVICE_FIELDS:
        _fill(devices, field, preference.get(preferred))
    if preference.get("preferredDisableHotplug") is not None:
        devices["disableHotplug"] = preference["preferredDisableHotplug"]
    sound = devices.get("sound")
    if isinstance(sound, dict) and not sound.get("model"):
        _fill(sound, "model", preference.get("preferredSoundModel"))
    shows = devices.get("video") is None and devices.get("autoattachGraphicsDevice") is not False
    if shows and preference.get("preferredVideoType") is not None:
        devices["video"] = {"type": preference["preferredVideoType"]}
    if preference.get("preferredPanicDeviceModel") is not None and not devices.get("panicDevices"):
        devices["panicDevices"] = [{"model": preference["preferredPanicDeviceModel"]}]
    for gpu in get_list(devices, "gpus"):
        _fill(gpu, "virtualGPUOptions", preference.get("preferredVirtualGPUOptions"))
    for disk in get_list(devices, "disks"):
        _disk(disk, preference)
    for device in get_list(devices, "inputs"):
        for field, preferred in (("bus", "preferredInputBus"), ("type", "preferredInputType")):
            if not device.get(field) and preference.get(preferred):
                device[field] = preference[preferred]
    _interfaces(spec, devices, preference)


def _disk(disk: JsonObject, preference: JsonObject) -> None:
    for target, preferred in (
        ("disk", "preferredDiskBus"),
        ("cdrom", "preferredCdromBus"),
        ("lun", "preferredLunBus"),
    ):
        bus = preference.get(preferred)
        settings = disk.get(target)
        if isinstance(settings, dict) and bus and not settings.get("bus"):
            settings["bus"] = bus
    is_plain = not any(isinstance(disk.get(target), dict) for target in ("disk", "cdrom", "lun"))
    if is_plain and preference.get("preferredDiskBus"):
        disk["disk"] = {"bus": preference["preferredDiskBus"]}
    if not isinstance(disk.get("disk"), dict):
        return
    _fill(disk, "blockSize", preference.get("preferredDiskBlockSize"))
    for field, preferred in (("cache", "preferredDiskCache"), ("io", "preferredDiskIO")):
        if not disk.get(field) and preference.get(preferred):
            disk[field] = preference[preferred]
    if disk["disk"].get("bus") == "virtio":
        _fill(disk, "dedicatedIOThread", preference.get("preferredDiskDedicatedIoThread"))


_BINDINGS = ("bridge", "masquerade", "sriov", "passtBinding", "binding", "slirp", "macvtap", "passt")


def _interfaces(spec: JsonObject, devices: JsonObject, preference: JsonObject) -> None:
    pod_networks = {get_str(network, "name") for network in get_list(spec, "networks") if "pod" in network}
    for interface in get_list(devices, "interfaces"):
        if not interface.get("model") and preference.get("preferredInterfaceModel"):
            interface["model"] = preference["preferredInterfaceModel"]
        has_binding = any(interface.get(binding) is not None for binding in _BINDINGS)
        masquerade = preference.get("preferredInterfaceMasquerade")
        if masquerade is not None and not has_binding and get_str(interface, "name") in pod_networks:
            interface["masquerade"] = _copy(masquerade)


def _features(domain: JsonObject, preference: JsonObject) -> None:
    if not preference:
        return
    features = domain["features"] = get_object(domain, "features")
    if preference.get("preferredAcpi") is not None:
        features["acpi"] = _copy(preference["preferredAcpi"])
    for field, preferred in (
        ("apic", "preferredApic"),
        ("kvm", "preferredKvm"),
        ("pvspinlock", "preferredPvspinlock"),
        ("smm", "preferredSmm"),
    ):
        _fill(features, field, preference.get(preferred))
    hyperv = preference.get("preferredHyperv")
    if isinstance(hyperv, dict):
        own = features["hyperv"] = get_object(features, "hyperv")
        for name, value in hyperv.items():
            _fill(own, name, value)


def _firmware(domain: JsonObject, preference: JsonObject) -> None:
    wanted = get_object(preference, "firmware")
    if not wanted:
        return
    firmware = get_object(domain, "firmware")
    loader = get_object(firmware, "bootloader")
    bios, efi = loader.get("bios"), loader.get("efi")
    if get_bool(wanted, "preferredUseBios") and bios is None and efi is None:
        bios = {"useSerial": True} if get_bool(wanted, "preferredUseBiosSerial") else {}
    if bios is None and efi is None:
        if wanted.get("preferredEfi") is not None:
            efi = _copy(wanted["preferredEfi"])
        elif get_bool(wanted, "preferredUseEfi"):
            efi = {}
            if wanted.get("preferredUseSecureBoot") is not None:
                efi["secureBoot"] = wanted["preferredUseSecureBoot"]
    chosen = {key: value for key, value in (("bios", bios), ("efi", efi)) if value is not None}
    if chosen:
        domain["firmware"] = {**firmware, "bootloader": {**loader, **chosen}}


def _clock(domain: JsonObject, preference: JsonObject) -> None:
    if not preference:
        return
    clock = get_object(domain, "clock")
    offset = preference.get("preferredClockOffset")
    if isinstance(offset, dict) and clock.get("utc") is None and clock.get("timezone") is None:
        clock = {**clock, **_copy(offset)}
    timer = preference.get("preferredTimer")
    if isinstance(timer, dict):
        own = get_object(clock, "timer")
        clock = {**clock, "timer": {**_copy(timer), **own}}
    if clock:
        domain["clock"] = clock
