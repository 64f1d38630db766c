"""Expands a VM's template: all values that an instance would get from instance type, preference and
defaults.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.instancetypes.apply import apply
from virtplane.instancetypes.defaults import default_disks, default_network, default_spec


def expand(
    template: JsonObject,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec | None,
    config: ClusterConfig,
) -> None:
    """Change a VM's `template` in place: `spec.domain.devices` and `metadata` are there.

    Disks and the network that an instance would get come first, because preferences apply to them, and all
    other defaults last, because an instance type refuses a template that has them.

    Raises Conflicts and UnfitDocument like `apply`, and DefaultingError.
    """
    spec = template["spec"]
    default_disks(spec)
    default_network(spec, config)
    apply(spec, template["metadata"], instancetype, preference)
    default_spec(spec, config)
