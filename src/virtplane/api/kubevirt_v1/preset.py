"""VirtualMachineInstancePreset (deprecated)."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.markers import ApiStruct, describe
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta


class VirtualMachineInstancePresetSpec(ApiStruct, kw_only=True):
    """Settings, and which instances get them."""

    domain: Annotated[DomainSpec | None, describe("Virtual hardware for instances that do not set it.")] = (
        None
    )
    selector: Annotated[LabelSelector, describe("The instances that get the settings, by their labels.")]


class VirtualMachineInstancePreset(ApiStruct, kw_only=True):
    """Deprecated: settings given to every instance that a selector matches."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineInstancePresetSpec | None = None
