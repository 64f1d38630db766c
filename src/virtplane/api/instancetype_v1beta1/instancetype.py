"""Instance types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.cpu import NUMA, Realtime
from virtplane.api.kubevirt_v1.devices import GPU, HostDevice
from virtplane.api.kubevirt_v1.domain import DiskIOThreads
from virtplane.api.kubevirt_v1.launch_security import LaunchSecurity
from virtplane.api.kubevirt_v1.memory import Hugepages
from virtplane.api.markers import ATOMIC, ApiStruct, Int, Quantity, UInt32Count, describe, mark
from virtplane.api.meta_v1 import ObjectMeta


class CPUInstancetype(ApiStruct, kw_only=True):
    """Number and placement of virtual CPUs."""

    dedicated_cpu_placement: bool | None = field(default=None, name="dedicatedCPUPlacement")
    guest: Annotated[UInt32Count, describe("Number of virtual CPUs.")]
    isolate_emulator_thread: bool | None = None
    max_sockets: UInt32Count | None = None
    model: str | None = None
    numa: NUMA | None = None
    realtime: Realtime | None = None


class MemoryInstancetype(ApiStruct, kw_only=True):
    """Size and backing of memory."""

    guest: Annotated[Quantity, describe("Memory of the guest.")]
    hugepages: Hugepages | None = None
    max_guest: Quantity | None = None
    overcommit_percent: Annotated[
        Int | None,
        mark(minimum=0, maximum=100),
        describe("By how many percent the request lies below the guest's memory."),
    ] = None


class VirtualMachineInstancetypeSpec(ApiStruct, kw_only=True):
    """What machines of this type get and may not set themselves."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    cpu: CPUInstancetype
    gpus: Annotated[tuple[GPU, ...], ATOMIC] = ()
    host_devices: Annotated[tuple[HostDevice, ...], ATOMIC] = ()
    io_threads: DiskIOThreads | None = None
    io_threads_policy: str | None = None
    launch_security: LaunchSecurity | None = None
    memory: MemoryInstancetype
    node_selector: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str | None = None


class VirtualMachineInstancetype(ApiStruct, kw_only=True):
    """CPU, memory and devices of machines, for one namespace."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstancetypeSpec


class VirtualMachineClusterInstancetype(ApiStruct, kw_only=True):
    """CPU, memory and devices of machines, for the whole cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstancetypeSpec
