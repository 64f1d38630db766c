"""Virtual CPUs."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ZERO_IS_UNSET, ApiStruct, UInt32Count, describe


class CPUFeature(ApiStruct, kw_only=True):
    """One CPU flag with the policy libvirt applies to it."""

    name: Annotated[str, describe("The flag, for example vmx.")]
    policy: Annotated[
        str | None, describe("force, require, optional, disable or forbid; require when absent.")
    ] = None


class NUMAGuestMappingPassthrough(ApiStruct, kw_only=True):
    """The guest sees the NUMA nodes on which its CPUs are pinned."""


class NUMA(ApiStruct, kw_only=True):
    """NUMA topology shown to the guest."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(ApiStruct, kw_only=True):
    """Virtual CPUs scheduled with real-time priority."""

    mask: str | None = None


class CPU(ApiStruct, kw_only=True):
    """Topology, model and placement of the virtual CPUs."""

    cores: Annotated[UInt32Count | None, describe("Cores per socket, at least 1."), ZERO_IS_UNSET] = None
    dedicated_cpu_placement: Annotated[
        bool | None, describe("Give the guest whole CPUs of the node and pin it to them."), ZERO_IS_UNSET
    ] = None
    features: Annotated[tuple[CPUFeature, ...], describe("CPU flags added to or taken from the model.")] = ()
    isolate_emulator_thread: Annotated[
        bool | None, describe("With dedicated CPUs: one more CPU for the emulator itself."), ZERO_IS_UNSET
    ] = None
    max_sockets: Annotated[
        UInt32Count | None,
        describe("Up to how many sockets can be plugged in while the guest runs."),
        ZERO_IS_UNSET,
    ] = None
    model: Annotated[
        str | None, describe("The CPU model as libvirt names it, or host-model or host-passthrough.")
    ] = None
    numa: Annotated[NUMA | None, describe("NUMA topology shown to the guest.")] = None
    realtime: Annotated[Realtime | None, describe("Run the virtual CPUs with real-time priority.")] = None
    sockets: Annotated[
        UInt32Count | None,
        describe("Sockets, at least 1; can be raised while the guest runs."),
        ZERO_IS_UNSET,
    ] = None
    threads: Annotated[UInt32Count | None, describe("Threads per core, at least 1."), ZERO_IS_UNSET] = None

    @property
    def shows_numa_nodes(self) -> bool:
        """Whether the guest sees the NUMA nodes on which its CPUs are pinned."""
        return self.numa is not None and self.numa.guest_mapping_passthrough is not None


class CPUTopology(ApiStruct, kw_only=True):
    """Sockets, cores per socket and threads per core."""

    cores: Annotated[UInt32Count | None, ZERO_IS_UNSET] = None
    sockets: Annotated[UInt32Count | None, ZERO_IS_UNSET] = None
    threads: Annotated[UInt32Count | None, ZERO_IS_UNSET] = None
