"""VirtualMachineInstanceReplicaSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.vm import VirtualMachineInstanceTemplateSpec
from virtplane.api.markers import NULLABLE, ZERO_IS_UNSET, ApiStruct, Int32, describe
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachineInstanceReplicaSetSpec(ApiStruct, kw_only=True):
    """How many instances, of which template."""

    paused: Annotated[
        bool | None, describe("Instances are neither made nor deleted; false when absent."), ZERO_IS_UNSET
    ] = None
    replicas: Annotated[Int32 | None, describe("How many instances there are to be; 1 when absent.")] = None
    selector: Annotated[
        LabelSelector,
        describe("The instances that belong to the set, by their labels, which template must have."),
    ]
    template: VirtualMachineInstanceTemplateSpec


class VirtualMachineInstanceReplicaSetStatus(ApiStruct, kw_only=True):
    """How many instances there are, as virt-controller counts them."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...],
        describe(
            "ReplicaFailure: an instance could not be made or deleted. ReplicaPaused: the set is paused."
        ),
    ] = ()
    label_selector: Annotated[str | None, describe("The selector as text, for autoscalers.")] = None
    ready_replicas: Annotated[Int32 | None, describe("Instances that are ready.")] = None
    replicas: Annotated[Int32 | None, describe("Instances that have not ended.")] = None


class VirtualMachineInstanceReplicaSet(ApiStruct, kw_only=True):
    """A number of equal instances kept running."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstanceReplicaSetSpec
    status: Annotated[VirtualMachineInstanceReplicaSetStatus | None, NULLABLE] = None
