"""The default network interface of guests, and binding plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import ResourceRequirementsWithoutClaims
from virtplane.api.markers import (
    ApiStruct,
    describe,
)


class InterfaceBindingMigration(ApiStruct, kw_only=True):
    """How guests get through a migration. No effect yet: guests do not migrate."""

    method: Annotated[
        str | None,
        describe(
            "How guests keep the link during a migration: link-refresh. No effect yet: guests do not migrate."
        ),
    ] = None


class InterfaceBindingPlugin(ApiStruct, kw_only=True):
    """A network binding plugin: its sidecar and what it needs."""

    compute_resource_overhead: Annotated[
        ResourceRequirementsWithoutClaims | None,
        describe("Memory (requests.memory) that a guest's pod requests in addition for the plugin."),
    ] = None
    domain_attachment_type: Annotated[
        str | None, describe("What virt-handler prepares for the plugin: tap, managedTap, or nothing.")
    ] = None
    downward_api: Annotated[
        str | None,
        describe("With device-info, the launcher's pod has the devices of its networks in a volume."),
    ] = field(default=None, name="downwardAPI")
    migration: InterfaceBindingMigration | None = None
    network_attachment_definition: Annotated[
        str | None, describe("Network attachment that the pod gets as well: name, or namespace/name.")
    ] = None
    sidecar_image: Annotated[
        str | None, describe("Image of the sidecar that changes the domain; without it there is none.")
    ] = None


class NetworkConfiguration(ApiStruct, kw_only=True):
    """Default network interface and binding plugins."""

    binding: Annotated[
        Mapping[str, InterfaceBindingPlugin],
        describe("Binding plugins by the name that guests' interfaces use."),
    ] = field(default_factory=dict)
    default_network_interface: Annotated[
        str | None, describe("Binding of guests that list no interface: bridge (default) or masquerade.")
    ] = None
    permit_bridge_interface_on_pod_network: Annotated[
        bool | None, describe("Whether a bridge binding may take the pod's own address; true by default.")
    ] = None
    permit_slirp_interface: Annotated[bool | None, describe("No effect: slirp is discontinued.")] = None
