"""VirtualMachineExport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import ATOMIC, ApiStruct, Duration, Time, describe, list_map
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineExportSpec(ApiStruct, kw_only=True):
    """What is exported, for how long, behind which token. No effect: no controller exports."""

    source: Annotated[
        TypedLocalObjectReference, describe("The claim, machine, snapshot or backup to export. No effect.")
    ]
    token_secret_ref: Annotated[
        str | None, describe("Secret whose key token clients must show. No effect.")
    ] = None
    ttl_duration: Annotated[
        Duration | None, describe("How long the export lives, such as 2h. No effect.")
    ] = None


class VirtualMachineExportBackupEndpoint(ApiStruct, kw_only=True):
    """One link to a backup."""

    endpoint: Annotated[str, describe("What is there: data, or the map of blocks.")]
    url: Annotated[str, describe("Address to fetch it from.")]


class VirtualMachineExportBackup(ApiStruct, kw_only=True):
    """Links to a backup."""

    endpoints: Annotated[
        tuple[VirtualMachineExportBackupEndpoint, ...],
        list_map("endpoint"),
        describe("Addresses of the volume's data and map."),
    ] = ()
    name: Annotated[str, describe("Name of the volume.")]


class VirtualMachineExportManifest(ApiStruct, kw_only=True):
    """A link to manifests."""

    type: Annotated[str, describe("all, auth-header-secret or oci.")]
    url: Annotated[str, describe("Address to fetch it from.")]


class VirtualMachineExportVolumeFormat(ApiStruct, kw_only=True):
    """A link to a volume in one format."""

    format: Annotated[str, describe("raw, gzip, dir or tar.gz.")]
    url: Annotated[str, describe("Address to fetch it from.")]


class VirtualMachineExportVolume(ApiStruct, kw_only=True):
    """Links to a volume in several formats."""

    formats: Annotated[
        tuple[VirtualMachineExportVolumeFormat, ...], list_map("format"), describe("Addresses by format.")
    ] = ()
    name: Annotated[str, describe("Name of the volume.")]


class VirtualMachineExportLink(ApiStruct, kw_only=True):
    """Links with the certificate that their server shows."""

    backups: Annotated[
        tuple[VirtualMachineExportBackup, ...], list_map("name"), describe("Links to volumes of a backup.")
    ] = ()
    cert: Annotated[str, describe("Certificate that clients verify the server by, in PEM.")]
    manifests: Annotated[
        tuple[VirtualMachineExportManifest, ...],
        list_map("type"),
        describe("Links to the manifests of the machine."),
    ] = ()
    volumes: Annotated[
        tuple[VirtualMachineExportVolume, ...], list_map("name"), describe("Links to the volumes.")
    ] = ()


class VirtualMachineExportLinks(ApiStruct, kw_only=True):
    """Links from inside and from outside the cluster."""

    external: Annotated[
        VirtualMachineExportLink | None, describe("Links for clients outside the cluster.")
    ] = None
    internal: Annotated[VirtualMachineExportLink | None, describe("Links for clients in the cluster.")] = None


class VirtualMachineExportStatus(ApiStruct, kw_only=True):
    """Phase, links and end of the export. Never written: no controller exports."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...], ATOMIC, describe("Ready, and whether the volumes are there.")
    ] = ()
    links: VirtualMachineExportLinks | None = None
    phase: Annotated[str | None, describe("Pending, Ready, Terminated or Skipped.")] = None
    service_name: Annotated[str | None, describe("Service of the server that has the volumes.")] = None
    token_secret_ref: Annotated[
        str | None, describe("Secret with the token, made if the spec names none.")
    ] = None
    ttl_expiration_time: Annotated[Time | None, describe("When the export ends.")] = None
    virtual_machine_name: Annotated[str | None, describe("Name of the machine that is exported.")] = None


class VirtualMachineExport(ApiStruct, kw_only=True):
    """The wish to fetch disks of a machine, a snapshot, a backup or a claim. No controller looks at it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineExportSpec
    status: VirtualMachineExportStatus | None = None
