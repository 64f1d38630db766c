"""The virtual hardware as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.clock import Clock
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.api.kubevirt_v1.features import Features
from virtplane.api.kubevirt_v1.firmware import Firmware
from virtplane.api.kubevirt_v1.launch_security import LaunchSecurity
from virtplane.api.kubevirt_v1.memory import Memory
from virtplane.api.markers import (
    ALWAYS_WRITTEN,
    EMPTY_IS_SET,
    PRESERVE,
    REQUIRED,
    ZERO_IS_UNSET,
    ApiStruct,
    Quantity,
    UInt32Count,
    describe,
    one_of,
)


class Chassis(ApiStruct, kw_only=True):
    """What the guest's SMBIOS tables tell about the chassis."""

    asset: Annotated[str | None, describe("The asset tag.")] = None
    manufacturer: Annotated[str | None, describe("Who made it.")] = None
    serial: Annotated[str | None, describe("The serial number.")] = None
    sku: Annotated[str | None, describe("The stock keeping unit.")] = None
    version: Annotated[str | None, describe("The version.")] = None


class DiskIOThreads(ApiStruct, kw_only=True):
    """The pool of I/O threads for ioThreadsPolicy supplementalPool."""

    supplemental_pool_thread_count: Annotated[
        UInt32Count | None, describe("Threads of the pool, at least 1; the pod asks for a CPU for each.")
    ] = None


class Machine(ApiStruct, kw_only=True):
    """The machine type that QEMU emulates."""

    type: Annotated[
        str | None,
        describe(
            "The type, such as q35 or pc-q35-rhel9.6.0, which the node must have; the installation's "
            "when absent."
        ),
    ] = None


class ResourceRequirements(ApiStruct, kw_only=True):
    """CPU and memory that the launcher pod asks of its node, and their limits."""

    limits: Annotated[
        Mapping[str, Quantity],
        describe(
            "What the pod may use at most: cpu (2, 500m), memory (2Gi). The overhead is added to the memory."
        ),
    ] = field(default_factory=dict)
    overcommit_guest_overhead: Annotated[
        bool | None,
        describe("Leave the overhead of virtualization out of the pod's memory; false when absent."),
        ZERO_IS_UNSET,
    ] = None
    requests: Annotated[
        Mapping[str, Quantity],
        describe("What the node sets aside: cpu, memory. When absent, as the topology and memory.guest say."),
    ] = field(default_factory=dict)


class DomainSpec(ApiStruct, kw_only=True):
    """The virtual hardware of the guest."""

    chassis: Chassis = Chassis()
    clock: Annotated[Clock, PRESERVE] = Clock()
    cpu: CPU = CPU()
    devices: Annotated[Devices, REQUIRED] = Devices()
    features: Features = Features()
    firmware: Firmware = Firmware()
    io_threads: DiskIOThreads = DiskIOThreads()
    io_threads_policy: Annotated[
        str | None,
        describe(
            "Threads of virtio disks: shared (one), auto (up to two for each virtual CPU) or "
            "supplementalPool."
        ),
        EMPTY_IS_SET,
    ] = None
    launch_security: LaunchSecurity | None = None
    machine: Machine = Machine()
    memory: Memory = Memory()
    reboot_policy: Annotated[
        str | None,
        one_of("Reboot", "Terminate"),
        describe(
            "What a reboot from inside does: Reboot (when absent) or Terminate, which ends the instance."
        ),
        EMPTY_IS_SET,
    ] = None
    resources: Annotated[ResourceRequirements, ALWAYS_WRITTEN] = ResourceRequirements()
