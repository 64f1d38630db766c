"""OvirtVolumePopulator and OpenstackVolumePopulator."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class PopulatorStatus(ApiStruct, kw_only=True):
    """How much of the content has arrived."""

    progress: str | None = None


class OpenstackVolumePopulatorSpec(ApiStruct, kw_only=True):
    """The image, and how it is reached."""

    identity_url: Annotated[str, REQUIRED] = ""
    image_id: Annotated[str, REQUIRED] = ""
    secret_ref: Annotated[str, REQUIRED] = ""
    transfer_network: str | None = None


class OpenstackVolumePopulator(ApiStruct, kw_only=True):
    """An image of OpenStack that claims are filled with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[OpenstackVolumePopulatorSpec, REQUIRED] = OpenstackVolumePopulatorSpec()
    status: PopulatorStatus = PopulatorStatus()


class OvirtVolumePopulatorSpec(ApiStruct, kw_only=True):
    """The disk, and how it is reached."""

    disk_id: Annotated[str, REQUIRED] = ""
    engine_url: Annotated[str, REQUIRED] = ""
    secret_ref: Annotated[str, REQUIRED] = ""
    transfer_network: str | None = None


class OvirtVolumePopulator(ApiStruct, kw_only=True):
    """A disk of oVirt that claims are filled with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[OvirtVolumePopulatorSpec, REQUIRED] = OvirtVolumePopulatorSpec()
    status: PopulatorStatus = PopulatorStatus()
