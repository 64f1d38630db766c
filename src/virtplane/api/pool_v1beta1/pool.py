"""VirtualMachinePool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.affinity_v1 import NodeSelectorRequirement
from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.vm import VirtualMachineSpec
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    ApiStruct,
    Duration,
    Int32,
    IntOrString,
    TemplateMetadata,
    UInt32Count,
    mark,
    one_of,
)
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachinePoolAutohealingStrategy(ApiStruct, kw_only=True):
    """When a machine that does not start is replaced."""

    min_failing_to_start_duration: Duration | None = None
    start_up_failure_threshold: Annotated[UInt32Count | None, mark(minimum=1)] = None


class VirtualMachinePoolNameGeneration(ApiStruct, kw_only=True):
    """Whether names of config maps and secrets get the machine's number."""

    append_index_to_config_map_refs: bool | None = None
    append_index_to_secret_refs: bool | None = None


class VirtualMachinePoolOpportunisticScaleInStrategy(ApiStruct, kw_only=True):
    """Remove machines that are stopped anyway."""

    state_preservation: Annotated[str | None, one_of("Disabled", "Offline", "Online")] = None


class VirtualMachinePoolSelectors(ApiStruct, kw_only=True):
    """Machines and nodes that come first."""

    label_selector: LabelSelector | None = None
    node_selector_requirement_matcher: tuple[NodeSelectorRequirement, ...] = ()


class VirtualMachinePoolSelectionPolicy(ApiStruct, kw_only=True):
    """Which machines come first."""

    selectors: VirtualMachinePoolSelectors | None = None
    sort_policy: Annotated[
        str | None, one_of("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random")
    ] = None


class VirtualMachinePoolProactiveScaleInStrategy(ApiStruct, kw_only=True):
    """Remove machines at once."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None
    state_preservation: Annotated[str | None, one_of("Disabled", "Offline", "Online")] = None


class VirtualMachinePoolUnmanagedStrategy(ApiStruct, kw_only=True):
    """Leave it to the user."""


class VirtualMachinePoolScaleInStrategy(ApiStruct, kw_only=True):
    """How machines are removed; one strategy."""

    opportunistic: VirtualMachinePoolOpportunisticScaleInStrategy | None = None
    proactive: VirtualMachinePoolProactiveScaleInStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineOpportunisticUpdateStrategy(ApiStruct, kw_only=True):
    """Machines take over changes at their next restart."""


class VirtualMachinePoolProactiveUpdateStrategy(ApiStruct, kw_only=True):
    """Restart machines to take over changes."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None


class VirtualMachinePoolUpdateStrategy(ApiStruct, kw_only=True):
    """How machines take over changes; one strategy."""

    opportunistic: VirtualMachineOpportunisticUpdateStrategy | None = None
    proactive: VirtualMachinePoolProactiveUpdateStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineTemplateSpec(ApiStruct, kw_only=True):
    """Labels, annotations and spec of the machines to create."""

    metadata: Annotated[TemplateMetadata, NULLABLE] = None
    spec: VirtualMachineSpec | None = None


class VirtualMachinePoolSpec(ApiStruct, kw_only=True):
    """How many machines, of which template, scaled and updated how."""

    autohealing: VirtualMachinePoolAutohealingStrategy | None = None
    max_unavailable: IntOrString | None = None
    name_generation: VirtualMachinePoolNameGeneration | None = None
    paused: bool | None = None
    replicas: Annotated[Int32 | None, mark(minimum=0)] = None
    scale_in_strategy: VirtualMachinePoolScaleInStrategy | None = None
    selector: LabelSelector
    update_strategy: VirtualMachinePoolUpdateStrategy | None = None
    virtual_machine_template: VirtualMachineTemplateSpec


class VirtualMachinePoolStatus(ApiStruct, kw_only=True):
    """How many machines there are and how many are ready."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[tuple[Condition, ...], ATOMIC] = ()
    label_selector: str | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None


class VirtualMachinePool(ApiStruct, kw_only=True):
    """A number of like machines, kept up and updated together."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachinePoolSpec
    status: VirtualMachinePoolStatus | None = None
