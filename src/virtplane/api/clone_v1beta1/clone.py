"""VirtualMachineClone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ALWAYS_WRITTEN, ATOMIC, NULLABLE, ApiStruct, Time, one_of
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineCloneTemplateFilters(ApiStruct, kw_only=True):
    """Which labels and annotations of the template are copied."""

    # None copies all as it is; an empty list copies nothing.
    annotation_filters: Annotated[tuple[str, ...] | None, ATOMIC] = None
    label_filters: Annotated[tuple[str, ...] | None, ATOMIC] = None


class VirtualMachineCloneSpec(ApiStruct, kw_only=True):
    """Source and target, and what changes on the way."""

    annotation_filters: Annotated[tuple[str, ...] | None, ATOMIC] = None
    label_filters: Annotated[tuple[str, ...] | None, ATOMIC] = None
    new_mac_addresses: Mapping[str, str] = field(default_factory=dict)
    new_sm_bios_serial: str | None = field(default=None, name="newSMBiosSerial")
    patches: Annotated[tuple[str, ...], ATOMIC] = ()
    source: TypedLocalObjectReference
    target: TypedLocalObjectReference | None = None
    template: Annotated[VirtualMachineCloneTemplateFilters, ALWAYS_WRITTEN] = (
        VirtualMachineCloneTemplateFilters()
    )
    volume_name_policy: Annotated[str | None, one_of("RandomizeNames", "PrefixTargetName")] = None


class VirtualMachineCloneStatus(ApiStruct, kw_only=True):
    """How far the clone is."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[tuple[Condition, ...], ATOMIC] = ()
    creation_time: Annotated[Time | None, NULLABLE] = None
    phase: str | None = None
    restore_name: Annotated[str | None, NULLABLE] = None
    snapshot_name: Annotated[str | None, NULLABLE] = None
    target_name: Annotated[str | None, NULLABLE] = None


class VirtualMachineClone(ApiStruct, kw_only=True):
    """A copy of a machine or of a snapshot of one."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineCloneSpec
    status: VirtualMachineCloneStatus = VirtualMachineCloneStatus()
