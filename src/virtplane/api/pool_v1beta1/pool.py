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
    describe,
    mark,
    one_of,
)
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachinePoolAutohealingStrategy(ApiStruct, kw_only=True):
    """When a machine that does not start is replaced, with its disks."""

    min_failing_to_start_duration: Annotated[
        Duration | None,
        describe("For how long it must have failed to start, for example 10m; 5m when absent."),
    ] = None
    start_up_failure_threshold: Annotated[
        UInt32Count | None,
        describe("How many starts in a row must have failed; 3 when absent."),
        mark(minimum=1),
    ] = None


class VirtualMachinePoolNameGeneration(ApiStruct, kw_only=True):
    """Whether names of config maps and secrets get the machine's number."""

    append_index_to_config_map_refs: Annotated[
        bool | None, describe("Machine 3 refers to NAME-3, not to NAME; false when absent.")
    ] = None
    append_index_to_secret_refs: Annotated[
        bool | None, describe("Machine 3 refers to NAME-3, not to NAME; false when absent.")
    ] = None


class VirtualMachinePoolOpportunisticScaleInStrategy(ApiStruct, kw_only=True):
    """Remove stopped machines only."""

    state_preservation: Annotated[
        str | None,
        describe("Offline or Online keep the disks of removed machines; Disabled (when absent) does not."),
        one_of("Disabled", "Offline", "Online"),
    ] = None


class VirtualMachinePoolSelectors(ApiStruct, kw_only=True):
    """Which machines are meant; all must hold."""

    label_selector: Annotated[
        LabelSelector | None, describe("Selects machines by the labels that their guests get.")
    ] = None
    node_selector_requirement_matcher: Annotated[
        tuple[NodeSelectorRequirement, ...],
        describe("Requirements on the nodeSelector of the machine's template."),
    ] = ()


class VirtualMachinePoolSelectionPolicy(ApiStruct, kw_only=True):
    """Which machines are meant, and which come first."""

    selectors: VirtualMachinePoolSelectors | None = None
    sort_policy: Annotated[
        str | None,
        describe(
            "By number (AscendingOrder, DescendingOrder), by age (Newest, Oldest) or Random (when absent)."
        ),
        one_of("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"),
    ] = None


class VirtualMachinePoolProactiveScaleInStrategy(ApiStruct, kw_only=True):
    """Remove machines at once, running ones, too."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None
    state_preservation: Annotated[
        str | None,
        describe("Offline or Online keep the disks of removed machines; Disabled (when absent) does not."),
        one_of("Disabled", "Offline", "Online"),
    ] = None


class VirtualMachinePoolUnmanagedStrategy(ApiStruct, kw_only=True):
    """Leave it to the user."""


class VirtualMachinePoolScaleInStrategy(ApiStruct, kw_only=True):
    """How machines are removed: by one strategy, proactive when absent."""

    opportunistic: VirtualMachinePoolOpportunisticScaleInStrategy | None = None
    proactive: VirtualMachinePoolProactiveScaleInStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineOpportunisticUpdateStrategy(ApiStruct, kw_only=True):
    """Machines take over changes at their next restart."""


class VirtualMachinePoolProactiveUpdateStrategy(ApiStruct, kw_only=True):
    """Restart guests to take over changes, maxUnavailable at once."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None


class VirtualMachinePoolUpdateStrategy(ApiStruct, kw_only=True):
    """How machines take over changes: by one strategy, proactive when absent."""

    opportunistic: VirtualMachineOpportunisticUpdateStrategy | None = None
    proactive: VirtualMachinePoolProactiveUpdateStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineTemplateSpec(ApiStruct, kw_only=True):
    """Labels, annotations and spec of the machines to create."""

    metadata: Annotated[TemplateMetadata, describe("Labels and annotations of the machines."), NULLABLE] = (
        None
    )
    spec: VirtualMachineSpec | None = None


class VirtualMachinePoolSpec(ApiStruct, kw_only=True):
    """How many machines, of which template, scaled and updated how."""

    autohealing: VirtualMachinePoolAutohealingStrategy | None = None
    max_unavailable: Annotated[
        IntOrString | None,
        describe("How many machines a change may make unavailable at once: 3 or 50%. All when absent."),
    ] = None
    name_generation: VirtualMachinePoolNameGeneration | None = None
    paused: Annotated[
        bool | None, describe("Machines are neither made, changed nor deleted; false when absent.")
    ] = None
    replicas: Annotated[
        Int32 | None, describe("How many machines there are to be; 1 when absent."), mark(minimum=0)
    ] = None
    scale_in_strategy: VirtualMachinePoolScaleInStrategy | None = None
    selector: Annotated[
        LabelSelector,
        describe(
            "The machines that belong to the pool, by labels, which the template must have. It cannot be "
            "changed."
        ),
    ]
    update_strategy: VirtualMachinePoolUpdateStrategy | None = None
    virtual_machine_template: VirtualMachineTemplateSpec


class VirtualMachinePoolStatus(ApiStruct, kw_only=True):
    """How many machines there are, as virt-controller counts them."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...],
        describe(
            "ReplicaFailure: a machine could not be made or deleted. ReplicaPaused: the pool is paused."
        ),
        ATOMIC,
    ] = ()
    label_selector: Annotated[str | None, describe("The selector as text, for autoscalers.")] = None
    ready_replicas: Annotated[Int32 | None, describe("Machines that are ready.")] = None
    replicas: Annotated[Int32 | None, describe("Machines that are not being deleted.")] = None


class VirtualMachinePool(ApiStruct, kw_only=True):
    """A number of like machines, kept up and updated together."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachinePoolSpec
    status: VirtualMachinePoolStatus | None = None
