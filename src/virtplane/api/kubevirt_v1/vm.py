"""VirtualMachine: what users create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.cdi_v1beta1.data_volume_template import TemplateSpec
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.markers import (
    ALWAYS_WRITTEN,
    EMPTY_IS_SET,
    NULLABLE,
    ApiStruct,
    TemplateMetadata,
    describe,
)
from virtplane.api.meta_v1 import ObjectMeta


class DataVolumeTemplateDummyStatus(ApiStruct, kw_only=True):
    """Always empty: it is there so that copied DataVolumes are accepted."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}


class DataVolumeTemplateSpec(ApiStruct, kw_only=True):
    """A DataVolume that is made with the machine and deleted with it; CDI must be installed."""

    api_version: Annotated[str | None, describe("cdi.kubevirt.io/v1beta1, whatever is written.")] = None
    kind: Annotated[str | None, describe("DataVolume, whatever is written.")] = None
    metadata: Annotated[
        TemplateMetadata, describe("Name, labels and annotations of the DataVolume."), NULLABLE
    ] = None
    spec: TemplateSpec
    status: Annotated[DataVolumeTemplateDummyStatus | None, NULLABLE] = None


class InstancetypeMatcher(ApiStruct, kw_only=True):
    """The instance type that gives CPU, memory and devices, by name or inferred from a volume."""

    infer_from_volume: Annotated[
        str | None, describe("The volume whose labels name it: those of its claim, DataVolume or DataSource.")
    ] = None
    infer_from_volume_failure_policy: Annotated[
        str | None,
        describe("Where it cannot be inferred: Reject (when absent) the machine, or Ignore."),
        EMPTY_IS_SET,
    ] = None
    kind: Annotated[
        str | None, describe("VirtualMachineClusterInstancetype (when absent) or VirtualMachineInstancetype.")
    ] = None
    name: Annotated[str | None, describe("The name; not beside inferFromVolume.")] = None
    revision_name: Annotated[
        str | None,
        describe(
            "The ControllerRevision to use; virt-controller makes one and notes it in the status when absent."
        ),
    ] = None


class PreferenceMatcher(ApiStruct, kw_only=True):
    """The preference that fills what the template leaves open, by name or inferred from a volume."""

    infer_from_volume: Annotated[
        str | None, describe("The volume whose labels name it: those of its claim, DataVolume or DataSource.")
    ] = None
    infer_from_volume_failure_policy: Annotated[
        str | None,
        describe("Where it cannot be inferred: Reject (when absent) the machine, or Ignore."),
        EMPTY_IS_SET,
    ] = None
    kind: Annotated[
        str | None, describe("VirtualMachineClusterPreference (when absent) or VirtualMachinePreference.")
    ] = None
    name: Annotated[str | None, describe("The name; not beside inferFromVolume.")] = None
    revision_name: Annotated[
        str | None,
        describe(
            "The ControllerRevision to use; virt-controller makes one and notes it in the status when absent."
        ),
    ] = None


class VirtualMachineInstanceTemplateSpec(ApiStruct, kw_only=True):
    """Labels, annotations and spec of the instances to create."""

    metadata: Annotated[TemplateMetadata, describe("Labels and annotations of the instances."), NULLABLE] = (
        None
    )
    spec: Annotated[VirtualMachineInstanceSpec | None, ALWAYS_WRITTEN] = None


class VirtualMachineSpec(ApiStruct, kw_only=True):
    """The wanted machine: run strategy, template, disks to provide, instance type and preference."""

    data_volume_templates: Annotated[
        tuple[Annotated[DataVolumeTemplateSpec | None, NULLABLE], ...],
        describe("DataVolumes made with the machine; volumes of the template refer to them by name."),
    ] = ()
    instancetype: InstancetypeMatcher | None = None
    preference: PreferenceMatcher | None = None
    run_strategy: Annotated[
        str | None,
        describe(
            "When the instance runs: Always, RerunOnFailure (until it ends well), Once, Manual (on "
            "request), Halted or WaitAsReceiver."
        ),
        EMPTY_IS_SET,
    ] = None
    running: Annotated[
        bool | None, describe("Deprecated: use runStrategy. True is Always, false is Halted.")
    ] = None
    template: Annotated[
        VirtualMachineInstanceTemplateSpec,
        describe("The instance to run; most changes act at its next start."),
    ]
    update_volumes_strategy: Annotated[
        str | None,
        describe(
            "What a change of volumes does: Replacement (when absent; at the next start) or Migration "
            "(no effect yet)."
        ),
        EMPTY_IS_SET,
    ] = None

    @property
    def instance(self) -> VirtualMachineInstanceSpec:
        """The template's spec; an empty one where there is none."""
        return self.template.spec or VirtualMachineInstanceSpec()


class VirtualMachine(ApiStruct, kw_only=True):
    """A virtual machine: a template of an instance and the rule when that instance runs."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineSpec
    status: VirtualMachineStatus | None = None

    @property
    def observed(self) -> VirtualMachineStatus:
        """The status; an empty one before the first."""
        return self.status or VirtualMachineStatus()
