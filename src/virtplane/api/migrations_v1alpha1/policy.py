"""MigrationPolicy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.kubevirt_v1.migration_configuration import ExperimentalMigrationOptions
from virtplane.api.markers import NULLABLE, ApiStruct, Int64, Quantity, describe, mark
from virtplane.api.meta_v1 import ObjectMeta


class Selectors(ApiStruct, kw_only=True):
    """Which instances the policy is for; of several policies, the one that names most labels counts."""

    namespace_selector: Annotated[
        Mapping[str, str] | None, describe("Labels that the instance's namespace must have.")
    ] = None
    virtual_machine_instance_selector: Annotated[
        Mapping[str, str] | None, describe("Labels that the instance must have.")
    ] = None


class MigrationPolicySpec(ApiStruct, kw_only=True):
    """Settings that win over the installation's. No effect yet: guests cannot be migrated."""

    allow_auto_converge: Annotated[
        bool | None, describe("Slow the guest down until its memory can be copied.")
    ] = None
    allow_post_copy: Annotated[
        bool | None,
        describe("Where copying takes too long, let the guest go on at the target and fetch its memory."),
    ] = None
    allow_workload_disruption: Annotated[
        bool | None, describe("Where copying takes too long, pause the guest or use post-copy.")
    ] = None
    bandwidth_per_migration: Annotated[
        Quantity | None, describe("Bytes per second, for example 64Mi; 0 for no limit.")
    ] = None
    completion_timeout_per_gi_b: Annotated[
        Int64 | None, describe("Seconds for each GiB of the guest, after which copying takes too long.")
    ] = None
    experimental: ExperimentalMigrationOptions | None = None
    max_downtime_ms: Annotated[
        Int64 | None,
        describe("Milliseconds for which the guest may stand still, from 1 to 2000000."),
        mark(minimum=1, maximum=2000000),
    ] = None
    selectors: Selectors


class MigrationPolicyStatus(ApiStruct, kw_only=True):
    """Always empty."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}


class MigrationPolicy(ApiStruct, kw_only=True):
    """Migration settings for the machines and namespaces that it selects."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: MigrationPolicySpec
    status: Annotated[MigrationPolicyStatus | None, NULLABLE] = None
