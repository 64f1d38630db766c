"""Guest memory."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct, Quantity, describe, one_of


class Hugepages(ApiStruct, kw_only=True):
    """Back the guest's memory by huge pages, which the node must have."""

    page_size: Annotated[
        str | None,
        describe("The size of a page, for example 2Mi or 1Gi; the guest's memory must be a multiple of it."),
    ] = None


class ReservedOverhead(ApiStruct, kw_only=True):
    """Memory for virtualization beside the guest's. Needs the gate ReservedOverheadMemlock."""

    added_overhead: Annotated[
        Quantity | None,
        describe("Bytes that the pod asks for beyond the computed overhead, for example 256Mi."),
    ] = None
    mem_lock: Annotated[
        str | None,
        describe(
            "Whether QEMU may lock the guest's memory: Required or NotRequired. When absent, as its "
            "devices need."
        ),
        one_of("NotRequired", "Required"),
        EMPTY_IS_SET,
    ] = None


class Memory(ApiStruct, kw_only=True):
    """Size and backing of the guest's memory."""

    guest: Annotated[
        Quantity | None,
        describe(
            "Memory that the guest sees (2Gi); can be raised while it runs. The request or limit when absent."
        ),
    ] = None
    hugepages: Hugepages | None = None
    max_guest: Annotated[
        Quantity | None,
        describe(
            "Up to how much memory can be plugged into guests of 1Gi or more; the installation's when absent."
        ),
    ] = None
    reserved_overhead: ReservedOverhead | None = None


class MemoryStatus(ApiStruct, kw_only=True):
    """The guest's memory: at boot, now, and as requested."""

    guest_at_boot: Annotated[Quantity | None, describe("Memory that the guest started with.")] = None
    guest_current: Annotated[
        Quantity | None, describe("Memory that the guest uses now, as virt-handler sees it.")
    ] = None
    guest_requested: Annotated[Quantity | None, describe("Memory that the guest is to use by now.")] = None
    memory_overhead: Annotated[
        Quantity | None,
        describe("What the pod asks for beside the guest's memory, as virt-controller computed it."),
    ] = None
