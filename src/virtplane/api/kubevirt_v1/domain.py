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
    """What SMBIOS tells about the chassis."""

    asset: str | None = None
    manufacturer: str | None = None
    serial: str | None = None
    sku: str | None = None
    version: str | None = None


class DiskIOThreads(ApiStruct, kw_only=True):
    """How many threads serve disk I/O."""

    supplemental_pool_thread_count: UInt32Count | None = None


class Machine(ApiStruct, kw_only=True):
    """The machine type that QEMU emulates, for example q35."""

    type: Annotated[str | None, describe("The machine type, for example q35 or pc-q35-rhel9.6.0.")] = None


class ResourceRequirements(ApiStruct, kw_only=True):
    """CPU and memory asked of the node, and their limits."""

    limits: Annotated[Mapping[str, Quantity], describe("What the guest may use at most: cpu, memory.")] = (
        field(default_factory=dict)
    )
    overcommit_guest_overhead: Annotated[
        bool | None,
        describe("Leave the overhead of virtualization out of the memory request."),
        ZERO_IS_UNSET,
    ] = None
    requests: Annotated[Mapping[str, Quantity], describe("What the node sets aside: cpu, memory.")] = field(
        default_factory=dict
    )


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
        str | None, describe("How disks share I/O threads: shared, auto or supplementalPool."), EMPTY_IS_SET
    ] = None
    launch_security: LaunchSecurity | None = None
    machine: Machine = Machine()
    memory: Memory = Memory()
    reboot_policy: Annotated[
        str | None,
        one_of("Reboot", "Terminate"),
        describe("What a reboot from inside does: Reboot or Terminate."),
        EMPTY_IS_SET,
    ] = None
    resources: Annotated[ResourceRequirements, ALWAYS_WRITTEN] = ResourceRequirements()
