"""The fields that a VM must not set if its instance type sets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from virtplane.api.instancetype_v1beta1.instancetype import (
    CPUInstancetype,
    MemoryInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec

PREFIX = "spec.template.spec"


def conflicts(
    spec: VirtualMachineInstanceSpec,
    annotations: Mapping[str, str],
    instancetype: VirtualMachineInstancetypeSpec,
) -> list[str]:
    """The paths of fields in conflict with the instance type; `spec` is that of the template."""
    found = [f"{PREFIX}.{path}" for path in _paths(spec, instancetype)]
    for key, value in instancetype.annotations.items():
        if key in annotations and annotations[key] != value:
            found.append(f"annotations.{key}")
    return found


def _paths(spec: VirtualMachineInstanceSpec, instancetype: VirtualMachineInstancetypeSpec) -> Iterator[str]:
    domain = spec.domain
    if instancetype.node_selector and spec.node_selector:
        yield "nodeSelector"
    if instancetype.scheduler_name and spec.scheduler_name:
        yield "schedulerName"
    yield from _cpu(domain, instancetype.cpu)
    yield from _memory(domain, instancetype.memory)
    if instancetype.io_threads_policy is not None and domain.io_threads_policy is not None:
        yield "domain.ioThreadsPolicy"
    if instancetype.launch_security is not None and domain.launch_security is not None:
        yield "domain.launchSecurity"
    given = instancetype.io_threads.supplemental_pool_thread_count if instancetype.io_threads else None
    if given is not None and domain.io_threads.supplemental_pool_thread_count is not None:
        yield "domain.ioThreads.supplementalPoolThreadCount"
    if instancetype.gpus and domain.devices.gpus:
        yield "domain.devices.gpus"
    if instancetype.host_devices and domain.devices.host_devices:
        yield "domain.devices.hostDevices"


def _cpu(domain: DomainSpec, wanted: CPUInstancetype) -> Iterator[str]:
    if "cpu" in domain.resources.requests:
        yield "domain.resources.requests.cpu"
    if "cpu" in domain.resources.limits:
        yield "domain.resources.limits.cpu"
    cpu = domain.cpu
    for part, count in (("sockets", cpu.sockets), ("cores", cpu.cores), ("threads", cpu.threads)):
        if count:
            yield f"domain.cpu.{part}"
    for field, given, own in (
        ("model", wanted.model, cpu.model),
        ("dedicatedCPUPlacement", wanted.dedicated_cpu_placement, cpu.dedicated_cpu_placement),
        ("isolateEmulatorThread", wanted.isolate_emulator_thread, cpu.isolate_emulator_thread),
        ("numa", wanted.numa, cpu.numa),
        ("realtime", wanted.realtime, cpu.realtime),
    ):
        if given is not None and own:
            yield f"domain.cpu.{field}"


def _memory(domain: DomainSpec, wanted: MemoryInstancetype) -> Iterator[str]:
    """Only the first conflict of the memory fields."""
    memory = domain.memory
    if memory.guest is not None:
        yield "domain.memory.guest"
    elif memory.hugepages is not None and wanted.hugepages is not None:
        yield "domain.memory.hugepages"
    elif memory.max_guest is not None and wanted.max_guest is not None:
        yield "domain.memory.maxGuest"
    elif "memory" in domain.resources.requests:
        yield "domain.resources.requests.memory"
    elif "memory" in domain.resources.limits:
        yield "domain.resources.limits.memory"
