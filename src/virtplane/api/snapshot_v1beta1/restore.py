"""VirtualMachineRestore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ATOMIC, SET, ApiStruct, Time, describe, mark, one_of
from virtplane.api.meta_v1 import ObjectMeta


class VolumeRestoreOverride(ApiStruct, kw_only=True):
    """Another name for a restored claim, and labels and annotations in addition."""

    annotations: Annotated[
        Mapping[str, str] | None, describe("Annotations of the claim, in addition to those it had.")
    ] = None
    labels: Annotated[
        Mapping[str, str] | None, describe("Labels of the claim, in addition to those it had.")
    ] = None
    restore_name: Annotated[str | None, describe("Name of the claim.")] = None
    volume_name: Annotated[str | None, describe("Name of the machine's volume.")] = None


class VirtualMachineRestoreSpec(ApiStruct, kw_only=True):
    """Which snapshot goes into which machine, and how. Cannot be changed."""

    patches: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("JSON patches of a new machine, one operation each; only labels, annotations and spec."),
    ] = ()
    target: Annotated[
        TypedLocalObjectReference,
        describe("The VirtualMachine (group kubevirt.io) to restore; it is made if there is none."),
    ]
    target_readiness_policy: Annotated[
        str | None,
        one_of("StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"),
        mark(default="WaitGracePeriod"),
        describe(
            "If the machine runs: StopTarget stops it, WaitGracePeriod waits 5 minutes,"
            " WaitEventually for ever, FailImmediate fails."
        ),
    ] = None
    virtual_machine_snapshot_name: Annotated[
        str, describe("VirtualMachineSnapshot of this namespace; it must be ready.")
    ]
    volume_ownership_policy: Annotated[
        str | None, describe("Vm (default) deletes restored claims with the machine; None keeps them.")
    ] = None
    volume_restore_overrides: Annotated[
        tuple[VolumeRestoreOverride, ...], ATOMIC, describe("Names, labels and annotations of single claims.")
    ] = ()
    volume_restore_policy: Annotated[
        str | None,
        describe(
            "Names of the claims: RandomizeNames (default), PrefixTargetName, or InPlace, which"
            " replaces the old ones."
        ),
    ] = None


class VolumeRestore(ApiStruct, kw_only=True):
    """A claim made from a volume snapshot."""

    data_volume_name: Annotated[str | None, describe("DataVolume that the claim belongs to, if any.")] = None
    persistent_volume_claim: Annotated[str, describe("Name of the restored claim.")]
    volume_name: Annotated[str, describe("Name of the machine's volume.")]
    volume_snapshot_name: Annotated[str, describe("VolumeSnapshot that the claim is made of.")]


class VirtualMachineRestoreStatus(ApiStruct, kw_only=True):
    """How far the restore is, written by virt-controller."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    complete: Annotated[bool | None, describe("Whether the machine is restored.")] = None
    conditions: Annotated[
        tuple[Condition, ...], ATOMIC, describe("Progressing and Ready; Failure if it has failed.")
    ] = ()
    deleted_data_volumes: Annotated[
        tuple[str, ...],
        SET,
        describe("DataVolumes of the machine that are deleted, as the restored one has none of that name."),
    ] = ()
    restore_time: Annotated[Time | None, describe("When the machine was restored.")] = None
    restores: Annotated[tuple[VolumeRestore, ...], ATOMIC, describe("The claims that are made.")] = ()


class VirtualMachineRestore(ApiStruct, kw_only=True):
    """The wish to bring a machine back to a snapshot."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineRestoreSpec
    status: VirtualMachineRestoreStatus = VirtualMachineRestoreStatus()
