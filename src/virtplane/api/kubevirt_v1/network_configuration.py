"""The default network interface of guests, and binding plugins."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from virtplane.api.core_v1 import ResourceRequirementsWithoutClaims
from virtplane.api.markers import (
    ApiStruct,
)


class InterfaceBindingMigration(ApiStruct, kw_only=True):
    """How a network binding plugin gets through live migrations."""

    method: str | None = None


class InterfaceBindingPlugin(ApiStruct, kw_only=True):
    """A network binding plugin: its sidecar and what it needs."""

    compute_resource_overhead: ResourceRequirementsWithoutClaims | None = None
    domain_attachment_type: str | None = None
    downward_api: str | None = field(default=None, name="downwardAPI")
    migration: InterfaceBindingMigration | None = None
    network_attachment_definition: str | None = None
    sidecar_image: str | None = None


class NetworkConfiguration(ApiStruct, kw_only=True):
    """Default network interface and binding plugins."""

    binding: Mapping[str, InterfaceBindingPlugin] = field(default_factory=dict)
    default_network_interface: str | None = None
    permit_bridge_interface_on_pod_network: bool | None = None
    permit_slirp_interface: bool | None = None
