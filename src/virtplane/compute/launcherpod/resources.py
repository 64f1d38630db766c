"""Memory overhead and the resource requests of the launcher's containers.

The overhead is an estimate of what QEMU, libvirt and the launcher use beside the guest's memory. Its parts
and their arithmetic (thousands rounded up here and there) are KubeVirt's, because quotas and dashboards
see the sum.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects.selectors import from_label_selector_object
from virtplane.compute import amounts
from virtplane.compute.amounts import GI, MI
from virtplane.compute.launcherpod.inputs import RenderInputs

PARITY_ANNOTATION = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
LIMITS_RATIO_LABEL = "alpha.kubevirt.io/auto-memory-limits-ratio"

_LAUNCHER_PARTS_MI = 25 + 100 + 25 + 40 + 50  # monitor, launcher, virtlogd, libvirt daemon, QEMU
_DEVICE_PREFIX = "devices.kubevirt.io/"


def vcpu_count(vmi: JsonObject) -> int:
    """Virtual CPUs of the guest: its topology, else its CPU limit or request, else one."""
    cpu = get_object(vmi, "spec", "domain", "cpu")
    topology = [int(cpu.get(key) or 1) for key in ("sockets", "cores", "threads")]
    if any(cpu.get(key) for key in ("sockets", "cores", "threads")):
        return topology[0] * topology[1] * topology[2]
    resources = get_object(vmi, "spec", "domain", "resources")
    for kind in ("limits", "requests"):
        amount = get_object(resources, kind).get("cpu")
        if amount is not None:
            return max(1, -(-amounts.to_milli(amount) // 1000))
    return 1


def io_thread_pool(vmi: JsonObject) -> int:
    """Extra CPUs for a supplemental pool of I/O threads."""
    if get_str(vmi, "spec", "domain", "ioThreadsPolicy") != "supplementalPool":
        return 0
    return int(get_object(vmi, "spec", "domain", "ioThreads").get("supplementalPoolThreadCount") or 0)


def is_guaranteed(vmi: JsonObject) -> bool:
    """Whether the user asked for equal requests and limits of CPU and memory."""
    resources = get_object(vmi, "spec", "domain", "resources")
    requests, limits = get_object(resources, "requests"), get_object(resources, "limits")
    if any(key not in requests or key not in limits for key in ("cpu", "memory")):
        return False
    return all(amounts.to_milli(requests[key]) == amounts.to_milli(limits[key]) for key in ("cpu", "memory"))


def wants_exclusive_resources(inputs: RenderInputs) -> bool:
    """Whether helper containers must request as much as they may use, so that the pod is Guaranteed."""
    return inputs.is_dedicated or is_guaranteed(inputs.vmi)


def memory_overhead(inputs: RenderInputs) -> int:
    """Bytes that a launcher needs beside the guest's memory."""
    total = _base_overhead(inputs) + _device_overhead(inputs)
    reserved = get_object(inputs.domain, "memory", "reservedOverhead").get("addedOverhead")
    total += amounts.to_bytes(reserved)
    ratio = inputs.settings.raw.get("additionalGuestMemoryOverheadRatio")
    if ratio:
        total += int(amounts.kilo(total) * (float(ratio) - 1)) * 1000
    return total + _network_overhead(inputs)


def _base_overhead(inputs: RenderInputs) -> int:
    requested = get_object(inputs.domain, "resources", "requests").get("memory")
    page_tables = amounts.kilo(amounts.to_bytes(requested)) * 1000 // 512
    total = page_tables + _LAUNCHER_PARTS_MI * MI + 8 * MI * vcpu_count(inputs.vmi) + 8 * MI  # + I/O thread
    if inputs.devices.get("autoattachGraphicsDevice") is not False:
        total += 32 * MI
    if inputs.architecture == "arm64":
        total += 128 * MI
    if wants_exclusive_resources(inputs):
        total += 100 * MI
    return total


def _device_overhead(inputs: RenderInputs) -> int:
    total = 0
    if uses_passthrough(inputs.vmi):
        total += GI
    if any("downwardMetrics" in volume for volume in inputs.volumes):
        total += MI
    probes = [get_object(inputs.spec, kind) for kind in ("livenessProbe", "readinessProbe")]
    exec_probes = sum("exec" in probe for probe in probes)
    total += (10 * exec_probes + (100 if exec_probes else 0)) * MI
    security = get_object(inputs.domain, "launchSecurity")
    if "sev" in security or "snp" in security:
        total += 256 * MI
    if is_tpm_enabled(inputs.vmi):
        total += 53 * MI
    return total


def _network_overhead(inputs: RenderInputs) -> int:
    total = 0
    plugins = {
        get_str(item, "binding", "name")
        for item in get_list(inputs.devices, "interfaces")
        if "binding" in item
    }
    for plugin in plugins:
        registered = get_object(inputs.settings.binding_plugins, plugin)
        total += amounts.to_bytes(get_object(registered, "computeResourceOverhead", "requests").get("memory"))
    if any("passtBinding" in item for item in get_list(inputs.devices, "interfaces")):
        total += 250 * MI
    return total


def uses_passthrough(vmi: JsonObject) -> bool:
    """Whether host devices are handed to the guest through VFIO."""
    devices = get_object(vmi, "spec", "domain", "devices")
    if get_list(devices, "gpus") or get_list(devices, "hostDevices"):
        return True
    return any("sriov" in item for item in get_list(devices, "interfaces"))


def is_tpm_enabled(vmi: JsonObject) -> bool:
    """Whether the guest has a TPM."""
    tpm = get_object(vmi, "spec", "domain", "devices").get("tpm")
    return isinstance(tpm, dict) and tpm.get("enabled") is not False


def compute_resources(inputs: RenderInputs) -> JsonObject:
    """Requests and limits of the container that runs the guest."""
    asked = get_object(inputs.domain, "resources")
    requests: JsonObject = dict(get_object(asked, "requests"))
    limits: JsonObject = dict(get_object(asked, "limits"))
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
    guest = get_object(inputs.domain, "memory").get("guest")
    sample = requests.get("memory", limits.get("memory", guest))
    if "memory" in requests or "memory" in limits:
        wanted = amounts.to_bytes(sample)
    else:
        wanted = amounts.to_bytes(guest) * 100 // inputs.settings.memory_overcommit
    page_size = get_str(inputs.domain, "memory", "hugepages", "pageSize")
    if not wanted and guest is None:
        return
    overhead = memory_overhead(inputs)
    if page_size:
        _set_hugepages(page_size, wanted, overhead, (requests, limits, guest))
    else:
        if get_bool(inputs.domain, "resources", "overcommitGuestOverhead"):
            overhead = 0
        if "memory" in limits:
            limits["memory"] = amounts.like(amounts.to_bytes(limits["memory"]) + overhead, limits["memory"])
        requests["memory"] = amounts.like(wanted + overhead, sample)
    if inputs.is_dedicated:
        limits["memory"] = requests["memory"]


def _set_hugepages(
    page_size: str, wanted: int, overhead: int, target: tuple[JsonObject, JsonObject, str | None]
) -> None:
    requests, limits, guest = target
    pages = min(wanted, amounts.to_bytes(guest)) if guest is not None else wanted
    requests[f"hugepages-{page_size}"] = limits[f"hugepages-{page_size}"] = amounts.binary(pages)
    if "memory" in limits:
        limits["memory"] = amounts.binary(max(0, amounts.to_bytes(limits["memory"]) - wanted) + overhead)
    requests["memory"] = amounts.binary(wanted - pages + overhead)


def _set_cpu(inputs: RenderInputs, requests: JsonObject, limits: JsonObject) -> None:
    pool = io_thread_pool(inputs.vmi)
    count = vcpu_count(inputs.vmi) + pool
    if not inputs.is_dedicated:
        requests.setdefault("cpu", amounts.cpus(count * 1000 // inputs.settings.cpu_allocation_ratio))
        return
    if get_bool(inputs.domain, "cpu", "isolateEmulatorThread"):
        annotated = (
            PARITY_ANNOTATION in inputs.annotations or PARITY_ANNOTATION in inputs.settings.annotations
        )
        count += 2 if annotated and inputs.settings.gate("AlignCPUs") and count % 2 == 0 else 1
    requests["cpu"] = limits["cpu"] = str(count)


def _set_automatic_limits(inputs: RenderInputs, requests: JsonObject, limits: JsonObject) -> None:
    hard = [key for quota in inputs.quotas for key in get_object(quota, "spec", "hard")]
    if "limits.memory" in hard and "memory" not in limits and "memory" in requests:
        ratio = float(get_object(inputs.namespace, "metadata", "labels").get(LIMITS_RATIO_LABEL, "2.0"))
        value = int(amounts.to_bytes(requests["memory"]) * ratio)
        limits["memory"] = amounts.like(value, requests["memory"])
    if "cpu" not in limits and ("limits.cpu" in hard or _namespace_wants_cpu_limit(inputs)):
        limits["cpu"] = str(vcpu_count(inputs.vmi) + io_thread_pool(inputs.vmi))


def _namespace_wants_cpu_limit(inputs: RenderInputs) -> bool:
    selector = inputs.settings.raw.get("autoCPULimitNamespaceLabelSelector")
    if not isinstance(selector, dict):
        return False
    labels = get_object(inputs.namespace, "metadata", "labels")
    return from_label_selector_object(selector).matches(labels)


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
    """Extended resources: the node's devices that QEMU opens, and devices handed through."""
    counts: dict[str, int] = {}
    wanted = {
        "kvm": not inputs.settings.use_emulation,
        "tun": _has_network(inputs),
        "vhost-net": _has_network(inputs)
        and _has_virtio_interface(inputs)
        and not inputs.settings.use_emulation,
        "vhost-vsock": get_bool(inputs.devices, "autoattachVSOCK"),
        "sev": bool({"sev", "snp"} & get_object(inputs.domain, "launchSecurity").keys()),
        "tdx": "tdx" in get_object(inputs.domain, "launchSecurity"),
        "iommufd": inputs.settings.gate("IOMMUFD"),
        "pr-helper": any(get_bool(disk, "lun", "reservation") for disk in get_list(inputs.devices, "disks")),
    }
    for device, is_wanted in wanted.items():
        if is_wanted:
            counts[_DEVICE_PREFIX + device] = 1
    for device in [*get_list(inputs.devices, "gpus"), *get_list(inputs.devices, "hostDevices")]:
        resource = get_str(device, "deviceName")
        if resource:
            counts[resource] = counts.get(resource, 0) + 1
    return counts


def _has_network(inputs: RenderInputs) -> bool:
    return (
        bool(get_list(inputs.devices, "interfaces"))
        or inputs.devices.get("autoattachPodInterface") is not False
    )


def _has_virtio_interface(inputs: RenderInputs) -> bool:
    interfaces = get_list(inputs.devices, "interfaces")
    return any(get_str(item, "model") in ("", "virtio") for item in interfaces) if interfaces else True


def _resource_claims(inputs: RenderInputs) -> list[JsonObject]:
    found: list[JsonObject] = []
    for device in [*get_list(inputs.devices, "gpus"), *get_list(inputs.devices, "hostDevices")]:
        request = device.get("claimRequest") or device
        if not request.get("claimName"):
            continue
        claim = {"name": request["claimName"]}
        if request.get("requestName"):
            claim["request"] = request["requestName"]
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
        keys = ("memory",) if kind == "virtiofs" and not inputs.is_dedicated else ("cpu", "memory")
        requests.update({key: limits[key] for key in keys if key in limits})
    result: JsonObject = {}
    if requests:
        result["requests"] = requests
    if limits:
        result["limits"] = limits
    return result
