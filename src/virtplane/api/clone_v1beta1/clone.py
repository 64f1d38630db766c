"""VirtualMachineClone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ALWAYS_WRITTEN, ATOMIC, NULLABLE, ApiStruct, Time, describe, one_of
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineCloneTemplateFilters(ApiStruct, kw_only=True):
    """Which labels and annotations of the machine's template are copied."""

    # None copies all as it is; an empty list copies nothing.
    annotation_filters: Annotated[
        tuple[str, ...] | None,
        ATOMIC,
        describe("Regular expressions of keys; a leading ! leaves out. Absent copies all, empty none."),
    ] = None
    label_filters: Annotated[
        tuple[str, ...] | None,
        ATOMIC,
        describe("Regular expressions of keys; a leading ! leaves out. Absent copies all, empty none."),
    ] = None


class VirtualMachineCloneSpec(ApiStruct, kw_only=True):
    """Source and target, and what changes on the way. Cannot be changed."""

    annotation_filters: Annotated[
        tuple[str, ...] | None,
        ATOMIC,
        describe("Annotations of the machine to copy: regular expressions, ! leaves out. Absent copies all."),
    ] = None
    label_filters: Annotated[
        tuple[str, ...] | None,
        ATOMIC,
        describe("Labels of the machine to copy: regular expressions, ! leaves out. Absent copies all."),
    ] = None
    new_mac_addresses: Annotated[
        Mapping[str, str], describe("MAC addresses of the copy by name of interface; others are made new.")
    ] = field(default_factory=dict)
    new_sm_bios_serial: Annotated[
        str | None, describe("Serial number of the copy; by default it has none.")
    ] = field(default=None, name="newSMBiosSerial")
    patches: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("JSON patches of the copy, one operation each; only labels, annotations and spec."),
    ] = ()
    source: Annotated[
        TypedLocalObjectReference,
        describe("The VirtualMachine or VirtualMachineSnapshot to copy; all its claims must have snapshots."),
    ]
    target: Annotated[
        TypedLocalObjectReference | None,
        describe("The VirtualMachine to make; by default the source's name with -clone- and a suffix."),
    ] = None
    template: Annotated[VirtualMachineCloneTemplateFilters, ALWAYS_WRITTEN] = (
        VirtualMachineCloneTemplateFilters()
    )
    volume_name_policy: Annotated[
        str | None,
        one_of("RandomizeNames", "PrefixTargetName"),
        describe("Names of the copied claims: RandomizeNames (default) or PrefixTargetName."),
    ] = None


class VirtualMachineCloneStatus(ApiStruct, kw_only=True):
    """How far the clone is, written by virt-controller."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[tuple[Condition, ...], ATOMIC, describe("Progressing and Ready.")] = ()
    creation_time: Annotated[Time | None, NULLABLE, describe("When all claims of the copy were bound.")] = (
        None
    )
    phase: Annotated[
        str | None, describe("SnapshotInProgress, RestoreInProgress, CreatingTargetVM, Succeeded or Failed.")
    ] = None
    restore_name: Annotated[
        str | None, NULLABLE, describe("VirtualMachineRestore in use for the copy; gone when it is done.")
    ] = None
    snapshot_name: Annotated[
        str | None, NULLABLE, describe("VirtualMachineSnapshot in use for the copy; gone when it is done.")
    ] = None
    target_name: Annotated[str | None, NULLABLE, describe("Name of the copy.")] = None


class VirtualMachineClone(ApiStruct, kw_only=True):
    """A copy of a machine or of a snapshot of one."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineCloneSpec
    status: VirtualMachineCloneStatus = VirtualMachineCloneStatus()
