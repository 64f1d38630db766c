"""VirtualMachineInstancePreset (deprecated)."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachineInstancePresetSpec(ApiStruct, kw_only=True):
    """The selector and the settings."""

    domain: DomainSpec | None = None
    selector: LabelSelector


class VirtualMachineInstancePreset(ApiStruct, kw_only=True):
    """Deprecated: settings given to every instance that a selector matches."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstancePresetSpec | None = None
