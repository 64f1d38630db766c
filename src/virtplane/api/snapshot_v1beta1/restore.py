"""VirtualMachineRestore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ATOMIC, SET, ApiStruct, Time, mark, one_of
from virtplane.api.meta_v1 import ObjectMeta


class VolumeRestoreOverride(ApiStruct, kw_only=True):
    """Another name, other labels or annotations of a restored claim."""

    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    restore_name: str | None = None
    volume_name: str | None = None


class VirtualMachineRestoreSpec(ApiStruct, kw_only=True):
    """Which snapshot goes into which machine, and how."""

    patches: Annotated[tuple[str, ...], ATOMIC] = ()
    target: TypedLocalObjectReference
    target_readiness_policy: Annotated[
        str | None,
        one_of("StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"),
        mark(default="WaitGracePeriod"),
    ] = None
    virtual_machine_snapshot_name: str
    volume_ownership_policy: str | None = None
    volume_restore_overrides: Annotated[tuple[VolumeRestoreOverride, ...], ATOMIC] = ()
    volume_restore_policy: str | None = None


class VolumeRestore(ApiStruct, kw_only=True):
    """A claim made from a volume snapshot."""

    data_volume_name: str | None = None
    persistent_volume_claim: str
    volume_name: str
    volume_snapshot_name: str


class VirtualMachineRestoreStatus(ApiStruct, kw_only=True):
    """How far the restore is."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    complete: bool | None = None
    conditions: Annotated[tuple[Condition, ...], ATOMIC] = ()
    deleted_data_volumes: Annotated[tuple[str, ...], SET] = ()
    restore_time: Time | None = None
    restores: Annotated[tuple[VolumeRestore, ...], ATOMIC] = ()


class VirtualMachineRestore(ApiStruct, kw_only=True):
    """The wish to bring a machine back to a snapshot."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineRestoreSpec
    status: VirtualMachineRestoreStatus = VirtualMachineRestoreStatus()
