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

    dedicated_cpu_placement: Annotated[
        bool | None, describe("Give guests whole CPUs of the node and pin them to these; false when absent.")
    ] = field(default=None, name="dedicatedCPUPlacement")
    guest: Annotated[
        UInt32Count,
        describe("Number of virtual CPUs; the preference says how they become sockets, cores and threads."),
    ]
    isolate_emulator_thread: Annotated[
        bool | None, describe("One more whole CPU for the emulator itself; needs dedicatedCPUPlacement.")
    ] = None
    max_sockets: Annotated[
        UInt32Count | None, describe("Up to how many sockets can be plugged in while guests run.")
    ] = None
    model: Annotated[
        str | None, describe("The CPU model as libvirt names it, host-model or host-passthrough.")
    ] = None
    numa: NUMA | None = None
    realtime: Realtime | None = None


class MemoryInstancetype(ApiStruct, kw_only=True):
    """Size and backing of memory."""

    guest: Annotated[Quantity, describe("Memory of the guest, for example 2Gi.")]
    hugepages: Hugepages | None = None
    max_guest: Annotated[
        Quantity | None,
        describe("Up to how much memory can be plugged in while guests run, for example 8Gi."),
    ] = None
    overcommit_percent: Annotated[
        Int | None,
        mark(minimum=0, maximum=100),
        describe(
            "By how many percent the pod's memory request lies below the guest's memory; 0 when absent."
        ),
    ] = None


class VirtualMachineInstancetypeSpec(ApiStruct, kw_only=True):
    """What machines of this type get and may not set themselves."""

    annotations: Annotated[Mapping[str, str], describe("Annotations of the instances.")] = field(
        default_factory=dict
    )
    cpu: CPUInstancetype
    gpus: Annotated[tuple[GPU, ...], describe("GPUs of the node that guests have."), ATOMIC] = ()
    host_devices: Annotated[
        tuple[HostDevice, ...], describe("Other devices of the node that guests have."), ATOMIC
    ] = ()
    io_threads: DiskIOThreads | None = None
    io_threads_policy: Annotated[
        str | None, describe("How disks share I/O threads: shared, auto or supplementalPool.")
    ] = None
    launch_security: LaunchSecurity | None = None
    memory: MemoryInstancetype
    node_selector: Annotated[Mapping[str, str], describe("Labels that the node must have.")] = field(
        default_factory=dict
    )
    scheduler_name: Annotated[str | None, describe("The scheduler that places launcher pods.")] = None


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
