"""Rules on memory and virtual CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.objects.quantity import FORMAT_MESSAGE, Quantity
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.serving.responses import NOT_SUPPORTED, REQUIRED, Cause

_FEATURE_POLICIES = (None, "", "force", "require", "optional", "disable", "forbid")
_ONE_MEGABYTE = 1_000_000
_ZERO = Quantity(0)


def quantity(value: Any) -> Quantity | None:
    """The amount that a field holds; None where it is absent or no amount."""
    if value is None:
        return None
    try:
        return Quantity.parse(value)
    except ValueError:
        return None


class _Resources:
    """Requests and limits of a spec (0 if absent), with their paths for messages."""

    def __init__(self, path: str, spec: VirtualMachineInstanceSpec) -> None:
        base = f"{path}.domain.resources"
        requests, limits = spec.domain.resources.requests, spec.domain.resources.limits
        self.memory_request = quantity(requests.get("memory")) or _ZERO
        self.memory_limit = quantity(limits.get("memory")) or _ZERO
        self.cpu_request = quantity(requests.get("cpu")) or _ZERO
        self.cpu_limit = quantity(limits.get("cpu")) or _ZERO
        self.memory_request_path = f"{base}.requests.memory"
        self.memory_limit_path = f"{base}.limits.memory"
        self.cpu_request_path = f"{base}.requests.cpu"
        self.cpu_limit_path = f"{base}.limits.cpu"


def memory(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Requests, limits, huge pages and guest memory must fit each other."""
    found = _Resources(path, spec)
    request, limit = found.memory_request, found.memory_limit
    field, limit_field = found.memory_request_path, found.memory_limit_path
    if request.value < 0:
        yield Cause(f"{field} '{request}': must be greater than or equal to 0.", field)
    elif request.value > 0 and request.fraction < _ONE_MEGABYTE:
        yield Cause(f"{field} '{request}': must be greater than or equal to 1M.", field)
    if limit.value < 0:
        yield Cause(f"{limit_field} '{limit}': must be greater than or equal to 0.", limit_field)
    if 0 < limit.value < request.value:
        yield Cause(f"{field} '{request}' is greater than {limit_field} '{limit}'", field)
    yield from _hugepages(path, spec, found)
    guest = quantity(spec.domain.memory.guest)
    if guest is not None and limit.value and not config.live_update and guest.value > limit.value:
        field = f"{path}.domain.memory.guest"
        yield Cause(
            f"{field} '{guest}' must be equal to or less than the memory limit {limit_field} '{limit}'", field
        )


def _hugepages(path: str, spec: VirtualMachineInstanceSpec, found: _Resources) -> Iterator[Cause]:
    pages = spec.domain.memory.hugepages
    if pages is None:
        return
    field = f"{path}.domain.memory.hugepages.pageSize"
    text = pages.page_size or ""
    try:
        size = Quantity.parse(text).value
    except ValueError:
        yield Cause(f"{field} '{text}': {FORMAT_MESSAGE}", field)
        return
    guest = quantity(spec.domain.memory.guest) or _ZERO
    amount = found.memory_request.value or guest.value or found.memory_limit.value
    where, request = found.memory_request_path, found.memory_request
    if amount and amount < size:
        yield Cause(f"{where} '{request}' must be equal to or larger than page size {field} '{text}'", where)
    elif not size or amount % size:
        yield Cause(f"{where} '{request}' is not a multiple of the page size {field} '{text}'", where)


def memory_is_given(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Memory must be set: as guest memory, huge pages or a request."""
    fields, request = spec.domain.memory, _Resources(path, spec).memory_request
    if fields.guest is None and fields.hugepages is None and not request.value:
        yield Cause(
            f"no memory requested, at least one of '{path}.domain.memory.guest',"
            f" '{path}.domain.memory.hugepages.pageSize' or '{path}.domain.resources.requests.memory'"
            " must be set",
            type=REQUIRED,
        )


def cpu_resources(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """CPU requests and limits are not negative, and requests do not exceed limits."""
    found = _Resources(path, spec)
    for amount, field in (
        (found.cpu_request, found.cpu_request_path),
        (found.cpu_limit, found.cpu_limit_path),
    ):
        if amount.milli_value < 0:
            yield Cause(f"{field} '{amount}': must be greater than or equal to 0.", field)
    request, limit = found.cpu_request, found.cpu_limit
    if 0 < limit.milli_value < request.milli_value:
        yield Cause(
            f"{found.cpu_request_path} '{request}' is greater than {found.cpu_limit_path} '{limit}'",
            found.cpu_request_path,
        )


def vcpus(cpu: CPU) -> int:
    """Number of virtual CPUs of a topology; a part that is absent counts once. 0 without any part."""
    parts = (cpu.sockets, cpu.cores, cpu.threads)
    if not any(parts):
        return 0
    product = 1
    for part in parts:
        product *= part or 1
    return product


def dedicated_cpus(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Dedicated CPUs need integer and equal requests and limits."""
    if not spec.domain.cpu.dedicated_cpu_placement:
        return
    found = _Resources(path, spec)
    guest = quantity(spec.domain.memory.guest) or _ZERO
    has_memory = (
        any(amount.nano for amount in (found.memory_request, found.memory_limit, guest))
        or spec.domain.memory.hugepages is not None
    )
    base = f"{path}.domain"
    if not has_memory:
        yield Cause(
            f"{found.memory_request_path}, {found.memory_limit_path}, {base}.memory.hugepages"
            f" or {base}.memory.guest should be provided",
            found.memory_limit_path,
        )
    for amount, field, what in (
        (found.cpu_request, found.cpu_request_path, "requests"),
        (found.cpu_limit, found.cpu_limit_path, "limits"),
    ):
        if amount.value > 0 and amount.milli_value != amount.value * 1000:
            yield Cause(f"provided resources CPU {what} must be an interger", field)
    request, limit = found.memory_request.value, found.memory_limit.value
    if request > 0 and limit > 0 and request != limit:
        yield Cause(
            f"{found.memory_request_path} must be equal to {found.memory_limit_path}",
            found.memory_request_path,
        )
    yield from _dedicated_amounts(path, spec, found)
    yield from _dedicated_threads(path, spec)


def _dedicated_amounts(path: str, spec: VirtualMachineInstanceSpec, found: _Resources) -> Iterator[Cause]:
    field = f"{path}.domain.cpu.dedicatedCpuPlacement"
    request, limit = found.cpu_request.value, found.cpu_limit.value
    count = vcpus(spec.domain.cpu)
    both = f"{found.cpu_request_path} or {found.cpu_limit_path}"
    if not request and not limit and not count:
        yield Cause(
            f"either {both} or {path}.domain.cpu.cores must be provided when DedicatedCPUPlacement is true ",
            field,
        )
    if request > 0 and limit > 0 and request != limit:
        yield Cause(f"{both} must be equal when DedicatedCPUPlacement is true ", field)
    if count and (request > 0 or limit > 0) and count not in (request, limit):
        yield Cause(
            f"{both} must not be provided at the same time with {path}.domain.cpu.cores"
            " when DedicatedCPUPlacement is true ",
            field,
        )


def _dedicated_threads(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    threads = spec.domain.cpu.threads or 0
    where = f"{path}.domain.cpu.threads"
    if spec.architecture == "arm64" and threads > 1:
        yield Cause(
            f"threads must not be greater than 1 at {where} (got {threads})"
            f" when {path}.architecture is arm64",
            f"{path}.architecture",
        )
    if threads > 2:
        yield Cause(
            f"Not more than two threads must be provided at {where} (got {threads})"
            " when DedicatedCPUPlacement is true",
            f"{path}.domain.cpu.dedicatedCpuPlacement",
        )


def numa(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """NUMA pass-through needs pinned CPUs and huge pages."""
    if not spec.domain.cpu.shows_numa_nodes:
        return
    field = f"{path}.domain.cpu.numa.guestMappingPassthrough"
    if not spec.domain.cpu.dedicated_cpu_placement:
        yield Cause(
            f"{path}.domain.cpu.dedicatedCpuPlacement must be set to true"
            f" when NUMA topology strategy is set in {field}",
            field,
        )
    if spec.domain.memory.hugepages is None:
        yield Cause(
            f"{path}.domain.memory.hugepages must be requested when NUMA topology strategy is set in {field}",
            field,
        )


def cpu_settings(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Emulator thread, feature policies, hotplug limit and real time."""
    cpu, base = spec.domain.cpu, f"{path}.domain.cpu"
    if cpu.isolate_emulator_thread and not cpu.dedicated_cpu_placement:
        yield Cause(
            "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
            f"{base}.isolateEmulatorThread",
        )
    for index, feature in enumerate(cpu.features):
        if feature.policy not in _FEATURE_POLICIES:
            yield Cause(
                f"CPU feature {feature.name} uses policy {feature.policy} that is not supported.",
                f"{base}.features[{index}].policy",
                NOT_SUPPORTED,
            )
    if cpu.max_sockets and (cpu.sockets or 0) > cpu.max_sockets:
        yield Cause(
            "Number of sockets in CPU topology is greater than the maximum sockets allowed", f"{base}.sockets"
        )


def realtime(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Real-time guests need dedicated CPUs and NUMA passthrough."""
    cpu, base = spec.domain.cpu, f"{path}.domain.cpu"
    if cpu.realtime is None:
        return
    if not cpu.dedicated_cpu_placement:
        field = f"{base}.dedicatedCpuPlacement"
        yield Cause(f"{field} must be set to true when {base}.realtime is used", field, REQUIRED)
    if not cpu.shows_numa_nodes:
        field = f"{base}.numa.guestMappingPassthrough"
        yield Cause(f"{field} must be defined when {base}.realtime is used", field, REQUIRED)


def memory_hotplug_problem(spec: VirtualMachineInstanceSpec) -> str:
    """Why memory cannot be plugged into a guest of this spec; empty when it can.

    The checks come in the order of the messages' weight; the first one counts.
    """
    domain = spec.domain
    guest, most = quantity(domain.memory.guest), quantity(domain.memory.max_guest)
    page = quantity(domain.memory.hugepages.page_size) if domain.memory.hugepages is not None else None
    giant = page is not None and page.value == 1 << 30
    step, step_text = (1 << 30, "1Gi") if giant else (2 << 20, "2Mi")
    checks = (
        (domain.cpu.realtime is not None, "Memory hotplug is not compatible with realtime VMs"),
        (domain.cpu.shows_numa_nodes, "Memory hotplug is not compatible with guest mapping passthrough"),
        (domain.launch_security is not None, "Memory hotplug is not compatible with encrypted VMs"),
        (guest is None, "Guest memory must be configured when memory hotplug is enabled"),
        (most is None, "Max guest memory must be configured when memory hotplug is enabled"),
        (
            guest is not None and most is not None and guest > most,
            "Guest memory is greater than the configured maxGuest memory",
        ),
        (guest is not None and guest.value % step != 0, f"Guest memory must be {step_text} aligned"),
        (most is not None and most.value % step != 0, f"MaxGuest must be {step_text} aligned"),
        ((spec.architecture or "amd64") != "amd64", "Memory hotplug is only available for x86_64 VMs"),
        (
            guest is not None and guest.value < 1 << 30,
            "Memory hotplug is only available for VMs with at least 1Gi of guest memory",
        ),
    )
    return next((message for is_wrong, message in checks if is_wrong), "")
