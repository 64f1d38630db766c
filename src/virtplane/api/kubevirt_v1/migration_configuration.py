"""Limits and methods of live migration."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.markers import ApiStruct, Int32, Int64, Quantity, UInt32Count, describe, mark, one_of


class MigrationConfiguration(ApiStruct, kw_only=True):
    """Limits and methods of live migrations in this cluster. No effect yet: guests do not migrate."""

    allow_auto_converge: Annotated[
        bool | None, describe("Whether a guest is slowed down so that its migration ends; false by default.")
    ] = None
    allow_post_copy: Annotated[
        bool | None,
        describe("Whether a migration that takes too long switches to post-copy; false by default."),
    ] = None
    allow_workload_disruption: Annotated[
        bool | None,
        describe("Whether a guest may pause so that its migration ends; by default as allowPostCopy says."),
    ] = None
    bandwidth_per_migration: Annotated[
        Quantity | None,
        describe("Most bytes per second of a migration, such as 64Mi; 0 (default) is unlimited."),
    ] = None
    completion_timeout_per_gi_b: Annotated[
        Int64 | None,
        describe("Seconds that a migration may take for each GiB of the guest's memory; 150 by default."),
    ] = None
    disable_tls: Annotated[bool | None, describe("Whether migrations go unencrypted; false by default.")] = (
        field(default=None, name="disableTLS")
    )
    match_se_linux_level_on_migration: Annotated[
        bool | None, describe("Whether the target pod gets the source's SELinux level; true by default.")
    ] = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[
        Int64 | None,
        mark(minimum=1, maximum=2000000),
        describe("Milliseconds that the guest may stand still at the end; 900 by default."),
    ] = None
    network: Annotated[
        str | None,
        describe(
            "Network attachment definition of the network that migrations use; by default the pods' own."
        ),
    ] = None
    node_drain_taint_key: Annotated[
        str | None, describe("Taint of nodes from which guests migrate away; kubevirt.io/drain by default.")
    ] = None
    parallel_migrations_per_cluster: Annotated[
        UInt32Count | None, describe("Most migrations at the same time; 5 by default.")
    ] = None
    parallel_outbound_migrations_per_node: Annotated[
        UInt32Count | None, describe("Most migrations at the same time that leave one node; 2 by default.")
    ] = None
    progress_timeout: Annotated[
        Int64 | None, describe("Seconds without progress after which a migration is aborted; 150 by default.")
    ] = None
    unsafe_migration_override: Annotated[
        bool | None,
        describe("Whether guests migrate that the hypervisor thinks unsafe to; false by default."),
    ] = None
    utility_volumes_timeout: Annotated[
        Int64 | None,
        describe("Seconds that a migration waits for utility volumes to be removed; 150 by default."),
    ] = None


class DowntimeTuningOptions(ApiStruct, kw_only=True):
    """How the allowed downtime is raised step by step."""

    cooldown_seconds: Annotated[
        Int32 | None, mark(minimum=1), describe("Seconds between two steps; at least 1.")
    ] = None
    initial_ms: Annotated[
        Int64 | None,
        mark(minimum=1),
        describe("Milliseconds of downtime that are allowed first; at least 1."),
    ] = None
    start_after_iteration: Annotated[
        Int64 | None,
        mark(minimum=1),
        describe("Copies of the memory after which the first step comes; at least 1."),
    ] = None
    steps: Annotated[Int32 | None, mark(minimum=1), describe("Steps up to maxDowntimeMs; at least 1.")] = None


class StallDetectorOptions(ApiStruct, kw_only=True):
    """When a migration counts as stalled, so that it switches over."""

    completion_timeout_factor: Annotated[
        Quantity | None, describe("How many times the allowed time a migration may take in the end.")
    ] = None
    ewma_alpha: Annotated[
        Quantity | None, describe("Weight of the newest measurement in the average, above 0 and up to 1.")
    ] = None
    patience_window_decay_factor: Annotated[
        Quantity | None,
        describe("Factor by which the time to wait shrinks at each stall, above 0 and up to 1."),
    ] = None
    precopy_possible_factor: Annotated[
        Quantity | None, describe("How many times the downtime the rest may take for pre-copy to go on.")
    ] = None
    search_local_minima: Annotated[
        bool | None, describe("Whether the switch waits for a moment at which little memory is left to copy.")
    ] = None
    stall_margin: Annotated[
        Int64 | None,
        mark(minimum=0, maximum=100),
        describe("Percent by which the rest must shrink to count as progress; 0 to 100."),
    ] = None
    stall_progress_timeout: Annotated[
        Int64 | None,
        mark(minimum=0),
        describe("Seconds without progress after which a migration counts as stalled."),
    ] = None
    switchover_timeout: Annotated[
        Int64 | None, mark(minimum=0), describe("Seconds that the switch to the target may take.")
    ] = None


class ExperimentalMigrationOptions(ApiStruct, kw_only=True):
    """Ways of making a migration converge that may still change."""

    compression: Annotated[
        str | None, one_of("none", "zstd"), describe("How memory is compressed on its way: none or zstd.")
    ] = None
    downtime_tuning: DowntimeTuningOptions | None = None
    stall_detector: StallDetectorOptions | None = None


class VMIMConfigurationOptions(ApiStruct, kw_only=True):
    """Limits and methods in effect for one migration, written by virt-controller."""

    allow_auto_converge: Annotated[
        bool | None, describe("Whether the guest is slowed down so that the migration ends.")
    ] = None
    allow_post_copy: Annotated[
        bool | None, describe("Whether the migration switches to post-copy when it takes too long.")
    ] = None
    allow_workload_disruption: Annotated[
        bool | None, describe("Whether the guest may pause so that the migration ends.")
    ] = None
    bandwidth_per_migration: Annotated[
        Quantity | None, describe("Most bytes per second; 0 is unlimited.")
    ] = None
    completion_timeout_per_gi_b: Annotated[
        Int64 | None, describe("Seconds allowed for each GiB of the guest's memory.")
    ] = None
    disable_tls: Annotated[bool | None, describe("Whether the migration goes unencrypted.")] = field(
        default=None, name="disableTLS"
    )
    experimental: ExperimentalMigrationOptions | None = None
    match_se_linux_level_on_migration: Annotated[
        bool | None, describe("Whether the target pod has the source's SELinux level.")
    ] = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[
        Int64 | None,
        mark(minimum=1, maximum=2000000),
        describe("Milliseconds that the guest may stand still at the end."),
    ] = None
    network: Annotated[
        str | None, describe("Network attachment definition of the network that the migration uses.")
    ] = None
    node_drain_taint_key: Annotated[
        str | None, describe("Taint of nodes from which guests migrate away.")
    ] = None
    parallel_migrations_per_cluster: Annotated[
        UInt32Count | None, describe("Most migrations at the same time.")
    ] = None
    parallel_outbound_migrations_per_node: Annotated[
        UInt32Count | None, describe("Most migrations at the same time that leave one node.")
    ] = None
    progress_timeout: Annotated[
        Int64 | None, describe("Seconds without progress after which the migration is aborted.")
    ] = None
    unsafe_migration_override: Annotated[
        bool | None, describe("Whether the guest migrates although the hypervisor thinks it unsafe.")
    ] = None
    utility_volumes_timeout: Annotated[
        Int64 | None, describe("Seconds that the migration waits for utility volumes to be removed.")
    ] = None
