"""Memory overhead and the resource requests of the launcher's containers.

The overhead is an estimate of what QEMU, libvirt and the launcher use beside the guest's memory. Its parts
and their arithmetic (thousands rounded up here and there) are KubeVirt's, because quotas and dashboards
see the sum.
"""

from __future__ import annotations

import math

from kubecore.json import JsonObject, get_object
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.structs import encode
from virtplane.api import labels as wellknown
from virtplane.api.kubevirt_v1.devices import GPU, Devices, HostDevice
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.compute import amounts
from virtplane.compute.amounts import GI, MI
from virtplane.compute.launcherpod import reservations
from virtplane.compute.launcherpod.inputs import RenderInputs

PARITY_ANNOTATION = wellknown.EVEN_PARITY
LIMITS_RATIO_LABEL = wellknown.AUTO_MEMORY_LIMITS_RATIO
_LIMITS_RATIO = 2.0

_LAUNCHER_PARTS_MI = 25 + 100 + 25 + 40 + 50  # monitor, launcher, virtlogd, libvirt daemon, QEMU
_DEVICE_PREFIX = "devices.kubevirt.io/"


def vcpu_count(domain: DomainSpec) -> int:
    """Virtual CPUs of the guest: its topology, else its CPU limit or request, else one."""
    cpu = domain.cpu
    if cpu.sockets or cpu.cores or cpu.threads:
        return (cpu.sockets or 1) * (cpu.cores or 1) * (cpu.threads or 1)
    for asked in (domain.resources.limits, domain.resources.requests):
        if "cpu" in asked:
            return max(1, -(-amounts.to_milli(asked["cpu"]) // 1000))
    return 1


def io_thread_pool(domain: DomainSpec) -> int:
    """Extra CPUs for a supplemental pool of I/O threads."""
    if domain.io_threads_policy != "supplementalPool":
        return 0
    return domain.io_threads.supplemental_pool_thread_count or 0


def is_guaranteed(domain: DomainSpec) -> bool:
    """Whether requests equal limits; for memory, a limit alone is enough."""
    requests, limits = domain.resources.requests, domain.resources.limits
    requested = {key: amounts.to_milli(requests.get(key)) for key in ("cpu", "memory")}
    limited = {key: amounts.to_milli(limits.get(key)) for key in ("cpu", "memory")}
    requested["memory"] = requested["memory"] or limited["memory"]
    return all(requested.values()) and requested == limited


def wants_exclusive_resources(inputs: RenderInputs) -> bool:
    """Whether helper containers must request as much as they may use, so that the pod is Guaranteed."""
    return inputs.is_dedicated or is_guaranteed(inputs.domain)


def memory_overhead(inputs: RenderInputs) -> int:
    """The memory in bytes that a launcher needs in addition to the guest's."""
    total = _base_overhead(inputs) + _device_overhead(inputs)
    reserved = inputs.domain.memory.reserved_overhead
    total += amounts.to_bytes(reserved.added_overhead) if reserved is not None else 0
    ratio = inputs.settings.configuration.additional_guest_memory_overhead_ratio
    if ratio:
        total += int(amounts.kilo(total) * (float(ratio) - 1)) * 1000
    return total + _network_overhead(inputs)


def _base_overhead(inputs: RenderInputs) -> int:
    requested = inputs.domain.resources.requests.get("memory")
    page_tables = amounts.kilo(amounts.to_bytes(requested)) * 1000 // 512
    total = (
        page_tables + _LAUNCHER_PARTS_MI * MI + 8 * MI * vcpu_count(inputs.domain) + 8 * MI
    )  # + I/O thread
    if inputs.devices.autoattach_graphics_device is not False:
        total += 32 * MI
    if inputs.architecture == "arm64":
        total += 128 * MI
    if wants_exclusive_resources(inputs):
        total += 100 * MI
    return total


def _device_overhead(inputs: RenderInputs) -> int:
    total = 0
    if uses_passthrough(inputs.devices):
        total += GI
    if any(volume.downward_metrics is not None for volume in inputs.volumes):
        total += MI
    probes = (inputs.spec.liveness_probe, inputs.spec.readiness_probe)
    exec_probes = sum(probe is not None and probe.exec is not None for probe in probes)
    total += (10 * exec_probes + (100 if exec_probes else 0)) * MI
    if _is_encrypted_by_sev(inputs.domain):
        total += 256 * MI
    if is_tpm_enabled(inputs.devices):
        total += 53 * MI
    return total


def _network_overhead(inputs: RenderInputs) -> int:
    total = 0
    interfaces = inputs.devices.interfaces
    plugins = {interface.binding.name for interface in interfaces if interface.binding is not None}
    for plugin in plugins:
        registered = inputs.settings.binding_plugins.get(plugin)
        overhead = registered.compute_resource_overhead if registered is not None else None
        total += amounts.to_bytes(overhead.requests.get("memory")) if overhead is not None else 0
    if any(interface.passt_binding is not None for interface in interfaces):
        total += 250 * MI
    return total


def uses_passthrough(devices: Devices) -> bool:
    """Whether the guest has host devices through VFIO."""
    if devices.gpus or devices.host_devices:
        return True
    return any(interface.sriov is not None for interface in devices.interfaces)


def is_tpm_enabled(devices: Devices) -> bool:
    """Whether the guest has a TPM."""
    return devices.tpm is not None and devices.tpm.enabled is not False


def _is_encrypted_by_sev(domain: DomainSpec) -> bool:
    security = domain.launch_security
    return security is not None and (security.sev is not None or security.snp is not None)


def compute_resources(inputs: RenderInputs) -> JsonObject:
    """Requests and limits of the container that runs the guest."""
    asked = inputs.domain.resources
    requests: JsonObject = dict(asked.requests)
    limits: JsonObject = dict(asked.limits)
    _set_memory(inputs, requests, limits)
    _set_cpu(inputs, requests, limits)
    _set_automatic_limits(inputs, requests, limits)
    _set_ephemeral_storage(requests, limits)
    for device, count in sorted(_devices(inputs).items()):
        requests[device] = limits[device] = str(count)
    result: JsonObject = {"requests": requests}
    if limits:
        result["limits"] = limits
    claims = _resource_claims(inputs)
    if claims:
        result["claims"] = claims
    return result


def _set_memory(inputs: RenderInputs, requests: JsonObject, limits: JsonObject) -> None:
    guest, hugepages = inputs.domain.memory.guest, inputs.domain.memory.hugepages
    sample = requests.get("memory", limits.get("memory", guest))
    if "memory" in requests or "memory" in limits:
        wanted = amounts.to_bytes(sample)
    else:
        wanted = amounts.to_bytes(guest) * 100 // inputs.settings.memory_overcommit
    if not wanted and guest is None:
        return
    overhead = memory_overhead(inputs)
    if hugepages is not None and hugepages.page_size:
        _set_hugepages(hugepages.page_size, wanted, overhead, (requests, limits, guest))
    else:
        if inputs.domain.resources.overcommit_guest_overhead:
            overhead = 0
        if "memory" in limits:
            limits["memory"] = amounts.like(amounts.to_bytes(limits["memory"]) + overhead, limits["memory"])
        requests["memory"] = amounts.like(wanted + overhead, sample)
    if inputs.is_dedicated:
        limits["memory"] = requests["memory"]


def _set_hugepages(
    page_size: str, wanted: int, overhead: int, target: tuple[JsonObject, JsonObject, str | int | None]
) -> None:
    requests, limits, guest = target
    pages = min(wanted, amounts.to_bytes(guest)) if guest is not None else wanted
    requests[f"hugepages-{page_size}"] = limits[f"hugepages-{page_size}"] = amounts.binary(pages)
    if "memory" in limits:
        limits["memory"] = amounts.binary(max(0, amounts.to_bytes(limits["memory"]) - wanted) + overhead)
    requests["memory"] = amounts.binary(wanted - pages + overhead)


def _set_cpu(inputs: RenderInputs, requests: JsonObject, limits: JsonObject) -> None:
    pool = io_thread_pool(inputs.domain)
    count = vcpu_count(inputs.domain) + pool
    if not inputs.is_dedicated:
        requests.setdefault("cpu", amounts.cpus(count * 1000 // inputs.settings.cpu_allocation_ratio))
        return
    if inputs.domain.cpu.isolate_emulator_thread:
        annotated = (
            PARITY_ANNOTATION in inputs.annotations or PARITY_ANNOTATION in inputs.settings.annotations
        )
        count += 2 if annotated and inputs.settings.gate("AlignCPUs") and count % 2 == 0 else 1
    requests["cpu"] = limits["cpu"] = str(count)


def _set_automatic_limits(inputs: RenderInputs, requests: JsonObject, limits: JsonObject) -> None:
    hard = [key for quota in inputs.quotas for key in get_object(quota, "spec", "hard")]
    if "limits.memory" in hard and "memory" not in limits and "memory" in requests:
        value = int(amounts.to_bytes(requests["memory"]) * _limits_ratio(inputs))
        limits["memory"] = amounts.like(value, requests["memory"])
    if "cpu" not in limits and ("limits.cpu" in hard or _namespace_wants_cpu_limit(inputs)):
        limits["cpu"] = str(vcpu_count(inputs.domain) + io_thread_pool(inputs.domain))


def _limits_ratio(inputs: RenderInputs) -> float:
    """What the namespace says; the default where that is no number (``inf`` and ``nan`` are labels, too)."""
    written = get_object(inputs.namespace, "metadata", "labels").get(LIMITS_RATIO_LABEL, "")
    try:
        ratio = float(written)
    except ValueError:
        return _LIMITS_RATIO
    return ratio if math.isfinite(ratio) else _LIMITS_RATIO


def _namespace_wants_cpu_limit(inputs: RenderInputs) -> bool:
    selector = inputs.settings.configuration.auto_cpu_limit_namespace_label_selector
    if selector is None:
        return False
    labels = get_object(inputs.namespace, "metadata", "labels")
    return from_label_selector_object(encode(selector)).matches(labels)


def _set_ephemeral_storage(requests: JsonObject, limits: JsonObject) -> None:
    extra = 50 * 10**6
    asked = requests.get("ephemeral-storage")
    requests["ephemeral-storage"] = amounts.like(
        amounts.to_bytes(asked) + extra, asked if asked is not None else "0"
    )
    limit = limits.get("ephemeral-storage")
    if limit is not None:
        limits["ephemeral-storage"] = amounts.like(amounts.to_bytes(limit) + extra, limit)


def _devices(inputs: RenderInputs) -> dict[str, int]:
    """Extended resources: the device nodes that QEMU opens, and passed-through devices."""
    counts: dict[str, int] = {}
    security = inputs.domain.launch_security
    wanted = {
        "kvm": not inputs.settings.use_emulation,
        "tun": _has_network(inputs),
        "vhost-net": _has_network(inputs)
        and _has_virtio_interface(inputs)
        and not inputs.settings.use_emulation,
        "vhost-vsock": bool(inputs.devices.autoattach_vsock),
        "sev": _is_encrypted_by_sev(inputs.domain),
        "tdx": security is not None and security.tdx is not None,
        "iommufd": inputs.settings.gate("IOMMUFD"),
        "pr-helper": reservations.wants_helper(inputs),
    }
    for device, is_wanted in wanted.items():
        if is_wanted:
            counts[_DEVICE_PREFIX + device] = 1
    for handed in _handed_devices(inputs):
        if handed.device_name:
            counts[handed.device_name] = counts.get(handed.device_name, 0) + 1
    for resource in inputs.network_resources.values():
        counts[resource] = counts.get(resource, 0) + 1
    return counts


def _has_network(inputs: RenderInputs) -> bool:
    return bool(inputs.devices.interfaces) or inputs.devices.autoattach_pod_interface is not False


def _has_virtio_interface(inputs: RenderInputs) -> bool:
    interfaces = inputs.devices.interfaces
    return any(each.model in (None, "", "virtio") for each in interfaces) if interfaces else True


def _handed_devices(inputs: RenderInputs) -> list[GPU | HostDevice]:
    """The host devices that are passed through to the guest."""
    return [*inputs.devices.gpus, *inputs.devices.host_devices]


def _resource_claims(inputs: RenderInputs) -> list[JsonObject]:
    found: list[JsonObject] = []
    for device in _handed_devices(inputs):
        if not device.claim_name:
            continue
        claim = {"name": device.claim_name}
        if device.request_name:
            claim["request"] = device.request_name
        if claim not in found:
            found.append(claim)
    return found


_SUPPORT_DEFAULTS: dict[str, tuple[JsonObject, JsonObject]] = {
    "container-disk": (
        {"cpu": "1m", "memory": "1M", "ephemeral-storage": "50M"},
        {"cpu": "10m", "memory": "40M"},
    ),
    "container-disk-binary": ({"cpu": "10m", "memory": "1M"}, {"cpu": "100m", "memory": "40M"}),
    "hotplug-disk": ({"cpu": "10m", "memory": "2M"}, {"cpu": "100m", "memory": "80M"}),
    "virtiofs": ({"cpu": "10m", "memory": "1M"}, {"cpu": "100m", "memory": "80M"}),
    "guest-console-log": ({"cpu": "5m", "memory": "35M"}, {"cpu": "15m", "memory": "60M"}),
    "sidecar": ({}, {}),
}


def support_resources(inputs: RenderInputs, kind: str) -> JsonObject:
    """Requests and limits of a helper container; equal where the pod must be Guaranteed."""
    requests, limits = (dict(part) for part in _SUPPORT_DEFAULTS[kind])
    configured = inputs.settings.support_resources(
        "container-disk" if kind == "container-disk-binary" else kind
    )
    requests.update(get_object(configured, "requests"))
    limits.update(get_object(configured, "limits"))
    if wants_exclusive_resources(inputs) and kind != "hotplug-disk":
        if kind == "sidecar":
            limits = {"cpu": "200m", "memory": "64M", **limits}
        if kind == "container-disk-binary":
            limits = {"cpu": "10m", "memory": "40M"}
        requests.update({key: limits[key] for key in ("cpu", "memory") if key in limits})
    result: JsonObject = {}
    if requests:
        result["requests"] = requests
    if limits:
        result["limits"] = limits
    return result
