"""MigrationPolicy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.kubevirt_v1.migration_configuration import ExperimentalMigrationOptions
from virtplane.api.markers import NULLABLE, ApiStruct, Int64, Quantity, mark
from virtplane.api.meta_v1 import ObjectMeta


class Selectors(ApiStruct, kw_only=True):
    """Labels that instances and their namespaces must have."""

    namespace_selector: Mapping[str, str] | None = None
    virtual_machine_instance_selector: Mapping[str, str] | None = None


class MigrationPolicySpec(ApiStruct, kw_only=True):
    """The settings, which win over the installation's, and the selectors."""

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    experimental: ExperimentalMigrationOptions | None = None
    max_downtime_ms: Annotated[Int64 | None, mark(minimum=1, maximum=2000000)] = None
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
