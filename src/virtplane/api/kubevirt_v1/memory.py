"""Guest memory."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct, Quantity, describe, one_of


class Hugepages(ApiStruct, kw_only=True):
    """Back the guest's memory by pages of this size."""

    page_size: Annotated[str | None, describe("The size of a page, for example 2Mi or 1Gi.")] = None


class ReservedOverhead(ApiStruct, kw_only=True):
    """Memory set aside for the virtualization layer on top of the guest's."""

    added_overhead: Quantity | None = None
    mem_lock: Annotated[str | None, one_of("NotRequired", "Required"), EMPTY_IS_SET] = None


class Memory(ApiStruct, kw_only=True):
    """Size and backing of the guest's memory."""

    guest: Annotated[Quantity | None, describe("Memory that the guest sees, for example 2Gi.")] = None
    hugepages: Annotated[Hugepages | None, describe("Back the guest's memory by huge pages.")] = None
    max_guest: Annotated[
        Quantity | None, describe("Up to how much memory can be plugged in while the guest runs.")
    ] = None
    reserved_overhead: ReservedOverhead | None = None


class MemoryStatus(ApiStruct, kw_only=True):
    """Guest memory as requested, at boot and now."""

    guest_at_boot: Quantity | None = None
    guest_current: Quantity | None = None
    guest_requested: Quantity | None = None
    memory_overhead: Quantity | None = None
