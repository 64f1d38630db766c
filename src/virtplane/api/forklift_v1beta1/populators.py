"""OvirtVolumePopulator and OpenstackVolumePopulator."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, ApiStruct, describe
from virtplane.api.meta_v1 import ObjectMeta


class PopulatorStatus(ApiStruct, kw_only=True):
    """How much of the content has arrived. Never written: no controller looks at it."""

    progress: Annotated[str | None, describe("Percent of the content that has arrived.")] = None


class OpenstackVolumePopulatorSpec(ApiStruct, kw_only=True):
    """The image, and how it is reached. No effect."""

    identity_url: Annotated[
        str, REQUIRED, describe("Address of OpenStack's identity service. No effect.")
    ] = ""
    image_id: Annotated[str, REQUIRED, describe("Id of the image. No effect.")] = ""
    secret_ref: Annotated[str, REQUIRED, describe("Secret with the credentials. No effect.")] = ""
    transfer_network: Annotated[
        str | None, describe("Network attachment definition of the network for the transfer. No effect.")
    ] = None


class OpenstackVolumePopulator(ApiStruct, kw_only=True):
    """An image of OpenStack that claims are filled with. No controller looks at it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[OpenstackVolumePopulatorSpec, REQUIRED] = OpenstackVolumePopulatorSpec()
    status: PopulatorStatus = PopulatorStatus()


class OvirtVolumePopulatorSpec(ApiStruct, kw_only=True):
    """The disk, and how it is reached. No effect."""

    disk_id: Annotated[str, REQUIRED, describe("Id of the disk at the engine. No effect.")] = ""
    engine_url: Annotated[str, REQUIRED, describe("Address of the engine. No effect.")] = ""
    secret_ref: Annotated[str, REQUIRED, describe("Secret with the credentials. No effect.")] = ""
    transfer_network: Annotated[
        str | None, describe("Network attachment definition of the network for the transfer. No effect.")
    ] = None


class OvirtVolumePopulator(ApiStruct, kw_only=True):
    """A disk of oVirt that claims are filled with. No controller looks at it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[OvirtVolumePopulatorSpec, REQUIRED] = OvirtVolumePopulatorSpec()
    status: PopulatorStatus = PopulatorStatus()
