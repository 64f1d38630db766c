"""Virtual CPUs."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ZERO_IS_UNSET, ApiStruct, UInt32Count, describe


class CPUFeature(ApiStruct, kw_only=True):
    """One CPU flag with the policy that libvirt applies to it."""

    name: Annotated[str, describe("The flag as libvirt names it, for example vmx.")]
    policy: Annotated[
        str | None,
        describe("force, require (when absent; the node must have the flag), optional, disable or forbid."),
    ] = None


class NUMAGuestMappingPassthrough(ApiStruct, kw_only=True):
    """The guest sees the NUMA nodes on which its CPUs are pinned. Needs dedicatedCpuPlacement and
    hugepages.
    """


class NUMA(ApiStruct, kw_only=True):
    """NUMA topology shown to the guest."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(ApiStruct, kw_only=True):
    """Virtual CPUs with real-time priority. Needs dedicatedCpuPlacement and numa.guestMappingPassthrough."""

    mask: Annotated[str | None, describe("The virtual CPUs meant, such as 0-3,^1; all when absent.")] = None


class CPU(ApiStruct, kw_only=True):
    """Topology, model and placement of the virtual CPUs."""

    cores: Annotated[UInt32Count | None, describe("Cores per socket; 1 when absent."), ZERO_IS_UNSET] = None
    dedicated_cpu_placement: Annotated[
        bool | None,
        describe(
            "Give the guest whole CPUs of the node and pin it to them; the node must have a CPU manager."
        ),
        ZERO_IS_UNSET,
    ] = None
    features: Annotated[tuple[CPUFeature, ...], describe("CPU flags added to or taken from the model.")] = ()
    isolate_emulator_thread: Annotated[
        bool | None,
        describe("One more whole CPU for the emulator itself; needs dedicatedCpuPlacement."),
        ZERO_IS_UNSET,
    ] = None
    max_sockets: Annotated[
        UInt32Count | None,
        describe(
            "Up to how many sockets can be plugged in while the guest runs; the installation's when absent."
        ),
        ZERO_IS_UNSET,
    ] = None
    model: Annotated[
        str | None,
        describe(
            "A model that libvirt names and the node has, host-model or host-passthrough; the "
            "installation's when absent."
        ),
    ] = None
    numa: NUMA | None = None
    realtime: Realtime | None = None
    sockets: Annotated[
        UInt32Count | None,
        describe(
            "Sockets; can be raised while the guest runs. Without any topology, as the CPU limit or "
            "request says."
        ),
        ZERO_IS_UNSET,
    ] = None
    threads: Annotated[
        UInt32Count | None,
        describe("Threads per core; 1 when absent, at most 2 with dedicated CPUs."),
        ZERO_IS_UNSET,
    ] = None

    @property
    def shows_numa_nodes(self) -> bool:
        """Whether the guest sees the NUMA nodes on which its CPUs are pinned."""
        return self.numa is not None and self.numa.guest_mapping_passthrough is not None


class CPUTopology(ApiStruct, kw_only=True):
    """Sockets, cores per socket and threads per core."""

    cores: Annotated[UInt32Count | None, describe("Cores per socket."), ZERO_IS_UNSET] = None
    sockets: Annotated[UInt32Count | None, describe("Sockets that are plugged in."), ZERO_IS_UNSET] = None
    threads: Annotated[UInt32Count | None, describe("Threads per core."), ZERO_IS_UNSET] = None
