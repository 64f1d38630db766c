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
    """Limits of the check of a disk image. No effect."""

    memory_limit: Annotated[Quantity, describe("Most memory of the check, such as 2000Mi. No effect.")]


class LogVerbosity(ApiStruct, kw_only=True):
    """How much components log: 0 to 9, 2 by default; from 3 on debugging messages, from 6 on requests."""

    node_verbosity: Annotated[
        Mapping[str, Int],
        describe("Verbosity by node name, for all components on that node, in place of their own."),
    ] = field(default_factory=dict)
    virt_api: Annotated[Int | None, describe("Verbosity of virt-api, 0 to 9.")] = field(
        default=None, name="virtAPI"
    )
    virt_controller: Annotated[Int | None, describe("Verbosity of virt-controller, 0 to 9.")] = None
    virt_handler: Annotated[Int | None, describe("Verbosity of virt-handler, 0 to 9.")] = None
    virt_launcher: Annotated[
        Int | None,
        describe("What libvirt logs in launchers that start: from 3 on information, from 5 on everything."),
    ] = None
    virt_operator: Annotated[Int | None, describe("Verbosity of virt-operator, 0 to 9.")] = None
    virt_synchronization_controller: Annotated[
        Int | None, describe("No effect: there is no such component.")
    ] = None


class DeveloperConfiguration(ApiStruct, kw_only=True):
    """Feature gates, log levels and overcommitment."""

    cluster_profiler: Annotated[
        bool | None,
        describe("Whether users may profile the components (start-cluster-profiler); false by default."),
    ] = None
    cpu_allocation_ratio: Annotated[
        Int | None, describe("Virtual CPUs for each CPU that a guest's pod requests; 10 by default.")
    ] = None
    disabled_feature_gates: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Feature gates switched off; only those that are on by default need it."),
    ] = ()
    disk_verification: DiskVerification | None = None
    feature_gates: Annotated[
        tuple[str, ...], ATOMIC, describe("Feature gates switched on. A gate in both lists is on.")
    ] = ()
    log_verbosity: LogVerbosity = LogVerbosity()
    memory_overcommit: Annotated[
        Int | None,
        mark(minimum=10),
        describe("Guest memory in percent of the memory that its pod requests; 100 by default."),
    ] = None
    minimum_cluster_tsc_frequency: Annotated[
        Int64 | None,
        describe(
            "TSC frequency in Hz for guests that need a stable clock; by default the lowest of the nodes."
        ),
    ] = field(default=None, name="minimumClusterTSCFrequency")
    minimum_reserve_pvc_bytes: Annotated[
        Int64 | None,
        describe("Bytes left free in a claim when a disk image is made in it; 131072 by default."),
    ] = field(default=None, name="minimumReservePVCBytes")
    node_selectors: Annotated[
        Mapping[str, str],
        describe("Labels that a node must have to run guests, in addition to the guests' own."),
    ] = field(default_factory=dict)
    pvc_tolerate_less_space_up_to_percent: Annotated[
        Int | None,
        describe("By how many percent a claim may be smaller than its disk; 0 to 100, 10 by default."),
    ] = None
    use_emulation: Annotated[
        bool | None, describe("Whether guests run by software emulation, without /dev/kvm; false by default.")
    ] = None
