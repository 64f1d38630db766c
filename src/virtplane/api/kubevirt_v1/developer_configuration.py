"""Feature gates, log levels and overcommitment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.markers import (
    ATOMIC,
    ApiStruct,
    Int,
    Int64,
    Quantity,
    describe,
    mark,
)


class DiskVerification(ApiStruct, kw_only=True):
    """Limits of the check of a disk image before it is used."""

    memory_limit: Quantity


class LogVerbosity(ApiStruct, kw_only=True):
    """Log levels of components (0-9)."""

    node_verbosity: Mapping[str, Int] = field(default_factory=dict)
    virt_api: Int | None = field(default=None, name="virtAPI")
    virt_controller: Int | None = None
    virt_handler: Int | None = None
    virt_launcher: Int | None = None
    virt_operator: Int | None = None
    virt_synchronization_controller: Int | None = None


class DeveloperConfiguration(ApiStruct, kw_only=True):
    """Feature gates, log levels and overcommitment."""

    cluster_profiler: bool | None = None
    cpu_allocation_ratio: Annotated[
        Int | None, describe("Virtual CPUs per CPU requested of the node; 10 when absent.")
    ] = None
    disabled_feature_gates: Annotated[tuple[str, ...], ATOMIC, describe("Feature gates switched off.")] = ()
    disk_verification: DiskVerification | None = None
    feature_gates: Annotated[tuple[str, ...], ATOMIC, describe("Feature gates switched on.")] = ()
    log_verbosity: LogVerbosity = LogVerbosity()
    memory_overcommit: Annotated[
        Int | None,
        mark(minimum=10),
        describe("Guest memory in percent of the memory requested of the node; 100 when absent."),
    ] = None
    minimum_cluster_tsc_frequency: Int64 | None = field(default=None, name="minimumClusterTSCFrequency")
    minimum_reserve_pvc_bytes: Int64 | None = field(default=None, name="minimumReservePVCBytes")
    node_selectors: Mapping[str, str] = field(default_factory=dict)
    pvc_tolerate_less_space_up_to_percent: Int | None = None
    use_emulation: Annotated[bool | None, describe("Emulate guests in software on nodes without KVM.")] = None
