"""Limits and methods of live migration."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.markers import ApiStruct, Int32, Int64, Quantity, UInt32Count, describe, mark, one_of


class MigrationConfiguration(ApiStruct, kw_only=True):
    """Limits and methods of live migrations in this cluster."""

    allow_auto_converge: Annotated[
        bool | None, describe("Slow the guest down so that the migration ends.")
    ] = None
    allow_post_copy: Annotated[
        bool | None, describe("Switch to post-copy when a migration does not end in time.")
    ] = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Annotated[
        Quantity | None, describe("Bytes per second and migration; 0 is unlimited.")
    ] = None
    completion_timeout_per_gi_b: Annotated[Int64 | None, describe("Seconds allowed per GiB of memory.")] = (
        None
    )
    disable_tls: bool | None = field(default=None, name="disableTLS")
    match_se_linux_level_on_migration: bool | None = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[Int64 | None, mark(minimum=1, maximum=2000000)] = None
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: Annotated[
        UInt32Count | None, describe("Migrations at the same time.")
    ] = None
    parallel_outbound_migrations_per_node: Annotated[
        UInt32Count | None, describe("Migrations at the same time that leave one node.")
    ] = None
    progress_timeout: Annotated[
        Int64 | None, describe("Seconds without progress after which a migration is aborted.")
    ] = None
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class DowntimeTuningOptions(ApiStruct, kw_only=True):
    """Raise the allowed downtime step by step."""

    cooldown_seconds: Annotated[Int32 | None, mark(minimum=1)] = None
    initial_ms: Annotated[Int64 | None, mark(minimum=1)] = None
    start_after_iteration: Annotated[Int64 | None, mark(minimum=1)] = None
    steps: Annotated[Int32 | None, mark(minimum=1)] = None


class StallDetectorOptions(ApiStruct, kw_only=True):
    """Notice that a migration makes no progress and switch over."""

    completion_timeout_factor: Quantity | None = None
    ewma_alpha: Quantity | None = None
    patience_window_decay_factor: Quantity | None = None
    precopy_possible_factor: Quantity | None = None
    search_local_minima: bool | None = None
    stall_margin: Annotated[Int64 | None, mark(minimum=0, maximum=100)] = None
    stall_progress_timeout: Annotated[Int64 | None, mark(minimum=0)] = None
    switchover_timeout: Annotated[Int64 | None, mark(minimum=0)] = None


class ExperimentalMigrationOptions(ApiStruct, kw_only=True):
    """Ways of making a migration converge that may still change."""

    compression: Annotated[str | None, one_of("none", "zstd")] = None
    downtime_tuning: DowntimeTuningOptions | None = None
    stall_detector: StallDetectorOptions | None = None


class VMIMConfigurationOptions(ApiStruct, kw_only=True):
    """Limits and methods in effect for one migration."""

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    disable_tls: bool | None = field(default=None, name="disableTLS")
    experimental: ExperimentalMigrationOptions | None = None
    match_se_linux_level_on_migration: bool | None = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[Int64 | None, mark(minimum=1, maximum=2000000)] = None
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: UInt32Count | None = None
    parallel_outbound_migrations_per_node: UInt32Count | None = None
    progress_timeout: Int64 | None = None
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None
