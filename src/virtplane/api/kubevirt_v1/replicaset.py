"""VirtualMachineInstanceReplicaSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.vm import VirtualMachineInstanceTemplateSpec
from virtplane.api.markers import NULLABLE, ZERO_IS_UNSET, ApiStruct, Int32
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachineInstanceReplicaSetSpec(ApiStruct, kw_only=True):
    """How many instances, of which template."""

    paused: Annotated[bool | None, ZERO_IS_UNSET] = None
    replicas: Int32 | None = None
    selector: LabelSelector
    template: VirtualMachineInstanceTemplateSpec


class VirtualMachineInstanceReplicaSetStatus(ApiStruct, kw_only=True):
    """How many instances there are and how many are ready."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: tuple[Condition, ...] = ()
    label_selector: str | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None


class VirtualMachineInstanceReplicaSet(ApiStruct, kw_only=True):
    """A number of equal instances kept running."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstanceReplicaSetSpec
    status: Annotated[VirtualMachineInstanceReplicaSetStatus | None, NULLABLE] = None
