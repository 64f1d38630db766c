"""Defaults of an instance's spec, in the order of their dependencies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api import labels
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.rules.compute import memory_hotplug_problem, quantity
from virtplane.compute.apiserver.admission.rules.platform import HYPERV_NEEDS
from virtplane.instancetypes.defaults import default_spec

MAX_VCPUS = 512
"""Most virtual CPUs that headroom for plugging sockets in may lead to."""
SPINLOCK_RETRIES = 4096
PCI_TOPOLOGY = "v3"
RUNTIME_USER = 107
"""The uid of qemu in launcher pods."""
_ARCHITECTURE_BUS = {"arm64": "virtio", "s390x": "virtio"}


def default_instance(instance: JsonObject, config: ClusterConfig, now: str) -> None:
    """Everything that an instance gets when it is created. `now` is RFC 3339.

    Raises DefaultingError.
    """
    spec = instance["spec"]
    default_spec(spec, config)
    domain = spec["domain"]
    if spec["architecture"] == "s390x" and get_object(domain, "features", "acpi").get("enabled") is None:
        domain.setdefault("features", {})["acpi"] = {"enabled": False}
    _default_firmware(domain)
    _default_features(domain)
    _default_devices(spec)
    _default_probes(spec)
    _default_hyperv(domain)
    _default_architecture(spec, config)
    _default_status(instance, config, now)
    if config.live_update and spec["architecture"] != "arm64":
        _default_headroom(spec, config)
    _default_metadata(instance, config)


def _default_firmware(domain: JsonObject) -> None:
    firmware = domain.setdefault("firmware", {})
    if not firmware.get("uuid"):
        firmware["uuid"] = str(uuid.uuid4())


def _is_enabled(feature: object) -> bool:
    return isinstance(feature, dict) and feature.get("enabled") is not False


def _target_of(disk: JsonObject) -> str:
    return next((target for target in ("disk", "lun", "cdrom") if isinstance(disk.get(target), dict)), "")


def _switches(features: JsonObject) -> Iterator[JsonObject]:
    """Every feature that is present without a value, which means enabled."""
    for name in ("acpi", "apic", "pvspinlock", "smm"):
        if isinstance(features.get(name), dict):
            yield features[name]
    hyperv = get_object(features, "hyperv")
    for name, switch in hyperv.items():
        if not isinstance(switch, dict):
            continue
        yield switch
        for part in ("direct", "extended"):
            if name in ("synictimer", "tlbflush") and isinstance(switch.get(part), dict):
                yield switch[part]


def _default_features(domain: JsonObject) -> None:
    features = domain.setdefault("features", {})
    features.setdefault("acpi", {})
    for switch in _switches(features):
        if switch.get("enabled") is None:
            switch["enabled"] = True
    spinlocks = get_object(features, "hyperv").get("spinlocks")
    if isinstance(spinlocks, dict) and spinlocks.get("enabled") and spinlocks.get("spinlocks") is None:
        spinlocks["spinlocks"] = SPINLOCK_RETRIES


def _default_devices(spec: JsonObject) -> None:
    domain = spec["domain"]
    devices = domain["devices"]
    for disk in get_list(devices, "disks"):
        if not _target_of(disk):
            disk["disk"] = {}
        cdrom = disk.get("cdrom")
        if isinstance(cdrom, dict):
            if cdrom.get("readonly") is None:
                cdrom["readonly"] = True
            cdrom["tray"] = cdrom.get("tray") or "closed"
    for device in get_list(devices, "inputs"):
        device["bus"] = device.get("bus") or "usb"
        device["type"] = device.get("type") or "tablet"
    for timer in get_object(domain, "clock", "timer").values():
        if isinstance(timer, dict) and timer.get("present") is None:
            timer["present"] = True


def _default_probes(spec: JsonObject) -> None:
    defaults = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    for name in ("readinessProbe", "livenessProbe"):
        probe = spec.get(name)
        if isinstance(probe, dict):
            for key, value in defaults.items():
                if get_int(probe, key) < 1:
                    probe[key] = value


def _default_hyperv(domain: JsonObject) -> None:
    """Enable the enlightenments that others depend on; a conflict stops this and is refused later."""
    hyperv = get_object(domain, "features").get("hyperv")
    if not isinstance(hyperv, dict):
        return
    for name, needed in HYPERV_NEEDS:
        if not _is_enabled(hyperv.get(name)):
            continue
        if hyperv.get(needed) is None:
            hyperv[needed] = {"enabled": True}
        elif not _is_enabled(hyperv[needed]):
            return
    if _is_enabled(hyperv.get("evmcs")):
        features = domain.setdefault("cpu", {}).setdefault("features", [])
        vmx = next((feature for feature in features if get_str(feature, "name") == "vmx"), None)
        if vmx is None:
            features.append({"name": "vmx", "policy": "require"})
        else:
            vmx["policy"] = "require"


def _default_architecture(spec: JsonObject, config: ClusterConfig) -> None:
    architecture, domain = spec["architecture"], spec["domain"]
    devices, cpu = domain["devices"], domain.setdefault("cpu", {})
    bus = _ARCHITECTURE_BUS.get(architecture, "sata")
    for disk in get_list(devices, "disks"):
        target = disk[_target_of(disk)]
        target["bus"] = target.get("bus") or bus
    watchdog = devices.get("watchdog")
    if isinstance(watchdog, dict) and architecture != "arm64":
        model = "diag288" if architecture == "s390x" else "i6300esb"
        if watchdog.get("i6300esb") is None and watchdog.get("diag288") is None:
            watchdog[model] = {}
        if isinstance(watchdog.get(model), dict):
            watchdog[model]["action"] = watchdog[model].get("action") or "reset"
    if architecture == "arm64":
        cpu["model"] = cpu.get("model") or "host-passthrough"
        loader = get_object(domain, "firmware").get("bootloader")
        if loader is None:
            domain["firmware"]["bootloader"] = {"efi": {"secureBoot": False}}
    cpu["model"] = cpu.get("model") or config.cpu_model or "host-model"


def _default_status(instance: JsonObject, config: ClusterConfig, now: str) -> None:
    domain = instance["spec"]["domain"]
    status = instance["status"] = deep_copy(get_object(instance, "status"))
    status.setdefault("guestOSInfo", {})
    guest = get_object(domain, "memory").get("guest")
    if guest is not None:
        keys = ("guestAtBoot", "guestCurrent", "guestRequested")
        status["memory"] = dict.fromkeys(keys, guest)
    cpu = get_object(domain, "cpu")
    status["currentCPUTopology"] = {
        part: cpu[part] for part in ("cores", "sockets", "threads") if get_int(cpu, part)
    }
    status["runtimeUser"] = 0 if config.gate("Root") else RUNTIME_USER
    status["phase"] = "Pending"
    status["phaseTransitionTimestamps"] = [{"phase": "Pending", "phaseTransitionTimestamp": now}]


def _default_headroom(spec: JsonObject, config: ClusterConfig) -> None:
    """Set the maximum sockets and memory of hotplug."""
    domain = spec["domain"]
    cpu = domain["cpu"]
    sockets = get_int(cpu, "sockets")
    if not get_int(cpu, "maxSockets") and sockets:
        most = max(config.max_cpu_sockets, sockets) if config.max_cpu_sockets else 0
        most = most or sockets * config.max_hotplug_ratio
        per_socket = (get_int(cpu, "cores") or 1) * (get_int(cpu, "threads") or 1)
        cpu["maxSockets"] = max(sockets, min(most, MAX_VCPUS // per_socket))
    memory = get_object(domain, "memory")
    guest = quantity(memory.get("guest"))
    if guest is None or memory.get("maxGuest") is not None:
        return
    limit = config.max_guest_memory
    wanted = str(limit) if limit is not None else str(guest * config.max_hotplug_ratio)
    candidate = {**spec, "domain": {**domain, "memory": {**memory, "maxGuest": wanted}}}
    if not memory_hotplug_problem(decode(VirtualMachineInstanceSpec, candidate)):
        memory["maxGuest"] = wanted


def supports_pcie_hotplug(spec: JsonObject) -> bool:
    """Whether the machine has PCIe root ports to plug devices into."""
    if get_str(spec, "architecture") not in ("", "amd64", "arm64"):
        return False
    machine = get_str(spec, "domain", "machine", "type")
    return not machine or "q35" in machine or machine.startswith("virt")


def _default_metadata(instance: JsonObject, config: ClusterConfig) -> None:
    metadata = instance.setdefault("metadata", {})
    annotations = metadata.setdefault("annotations", {})
    if supports_pcie_hotplug(instance["spec"]):
        annotations.setdefault(labels.PCI_TOPOLOGY_VERSION, PCI_TOPOLOGY)
    isolates = get_bool(instance["spec"], "domain", "cpu", "isolateEmulatorThread")
    if isolates and config.gate("AlignCPUs") and labels.EVEN_PARITY in config.annotations:
        annotations[labels.EVEN_PARITY] = config.annotations[labels.EVEN_PARITY]
    confidential = config.configuration.confidential_compute
    attestation = confidential.tdx.attestation if confidential and confidential.tdx else None
    socket_path = attestation.qgs_socket_path if attestation else None
    if socket_path and get_object(instance["spec"], "domain", "launchSecurity").get("tdx") is not None:
        annotations[labels.QGS_SOCKET_PATH] = socket_path
    if not annotations:
        del metadata["annotations"]
    finalizers = metadata.setdefault("finalizers", [])
    if labels.FINALIZER_INSTANCE not in finalizers:
        finalizers.append(labels.FINALIZER_INSTANCE)
