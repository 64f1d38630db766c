"""VirtualMachineExport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ATOMIC, ApiStruct, Duration, Metadata, Time, list_map


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

    endpoints: Annotated[list[VirtualMachineExportBackupEndpoint], list_map("endpoint")] = field(
        default_factory=list
    )
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

    formats: Annotated[list[VirtualMachineExportVolumeFormat], list_map("format")] = field(
        default_factory=list
    )
    name: str


class VirtualMachineExportLink(ApiStruct, kw_only=True):
    """Links with the certificate that their server shows."""

    backups: Annotated[list[VirtualMachineExportBackup], list_map("name")] = field(default_factory=list)
    cert: str
    manifests: Annotated[list[VirtualMachineExportManifest], list_map("type")] = field(default_factory=list)
    volumes: Annotated[list[VirtualMachineExportVolume], list_map("name")] = field(default_factory=list)


class VirtualMachineExportLinks(ApiStruct, kw_only=True):
    """Links from inside and from outside the cluster."""

    external: VirtualMachineExportLink | None = None
    internal: VirtualMachineExportLink | None = None


class VirtualMachineExportStatus(ApiStruct, kw_only=True):
    """Phase, links and end of the export."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[list[Condition], ATOMIC] = field(default_factory=list)
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
    metadata: Metadata = field(default_factory=dict)
    spec: VirtualMachineExportSpec
    status: VirtualMachineExportStatus | None = None
