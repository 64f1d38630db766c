"""VirtualMachineInstancePreset (deprecated)."""

from __future__ import annotations

from msgspec import field

from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.markers import ApiStruct, Metadata
from virtplane.api.meta_v1 import LabelSelector


class VirtualMachineInstancePresetSpec(ApiStruct, kw_only=True):
    """The selector and the settings."""

    domain: DomainSpec | None = None
    selector: LabelSelector


class VirtualMachineInstancePreset(ApiStruct, kw_only=True):
    """Deprecated: settings given to every instance that a selector matches."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = field(default_factory=dict)
    spec: VirtualMachineInstancePresetSpec | None = None
