"""VirtualMachineExport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ATOMIC, ApiStruct, Duration, Time, list_map
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineExportSpec(ApiStruct, kw_only=True):
    """What is exported, for how long, behind which token."""

    source: TypedLocalObjectReference
    token_secret_ref: str | None = None
    ttl_duration: Duration | None = None


class VirtualMachineExportBackupEndpoint(ApiStruct, kw_only=True):
    """One link to a backup."""

    endpoint: str
    url: str


class VirtualMachineExportBackup(ApiStruct, kw_only=True):
    """Links to a backup."""

    endpoints: Annotated[tuple[VirtualMachineExportBackupEndpoint, ...], list_map("endpoint")] = ()
    name: str


class VirtualMachineExportManifest(ApiStruct, kw_only=True):
    """A link to manifests."""

    type: str
    url: str


class VirtualMachineExportVolumeFormat(ApiStruct, kw_only=True):
    """A link to a volume in one format."""

    format: str
    url: str


class VirtualMachineExportVolume(ApiStruct, kw_only=True):
    """Links to a volume in several formats."""

    formats: Annotated[tuple[VirtualMachineExportVolumeFormat, ...], list_map("format")] = ()
    name: str


class VirtualMachineExportLink(ApiStruct, kw_only=True):
    """Links with the certificate that their server shows."""

    backups: Annotated[tuple[VirtualMachineExportBackup, ...], list_map("name")] = ()
    cert: str
    manifests: Annotated[tuple[VirtualMachineExportManifest, ...], list_map("type")] = ()
    volumes: Annotated[tuple[VirtualMachineExportVolume, ...], list_map("name")] = ()


class VirtualMachineExportLinks(ApiStruct, kw_only=True):
    """Links from inside and from outside the cluster."""

    external: VirtualMachineExportLink | None = None
    internal: VirtualMachineExportLink | None = None


class VirtualMachineExportStatus(ApiStruct, kw_only=True):
    """Phase, links and end of the export."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[tuple[Condition, ...], ATOMIC] = ()
    links: VirtualMachineExportLinks | None = None
    phase: str | None = None
    service_name: str | None = None
    token_secret_ref: str | None = None
    ttl_expiration_time: Time | None = None
    virtual_machine_name: str | None = None


class VirtualMachineExport(ApiStruct, kw_only=True):
    """The wish to fetch disks of a machine, a snapshot, a backup or a claim."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineExportSpec
    status: VirtualMachineExportStatus | None = None
