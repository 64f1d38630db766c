"""DataVolumes: claims together with the content that they are filled with."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.cdi_v1beta1.data_volume_template import (
    TemplateSource,
    TemplateSourceHTTP,
    TemplateSourceVDDK,
    TemplateSpec,
)
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, Int32, describe
from virtplane.api.meta_v1 import ObjectMeta


class DataVolumeSourceHTTP(TemplateSourceHTTP, kw_only=True):
    """A file served over HTTP or HTTPS."""

    checksum: Annotated[
        str | None,
        describe(
            "Checksum of the bytes as served: md5, sha1, sha256 or sha512, a colon, hexadecimal."
            " Another one fails the import."
        ),
    ] = None
    insecure_skip_verify: Annotated[
        bool | None, describe("Whether the server's certificate is not verified; false by default.")
    ] = None


class DataVolumeSourceVDDK(TemplateSourceVDDK, kw_only=True):
    """A disk of a VMware installation. Needs nbdkit's vddk plug-in in the importer, which ours has not."""

    cert_config_map: Annotated[
        str | None, describe("ConfigMap with authorities that the server is verified by.")
    ] = None


class DataVolumeSource(TemplateSource, kw_only=True):
    """Where the content comes from; exactly one member is set."""

    http: DataVolumeSourceHTTP | None = None
    vddk: DataVolumeSourceVDDK | None = None


class DataVolumeSpec(TemplateSpec, kw_only=True):
    """A claim together with the content it is to be filled with."""

    service_account_name: Annotated[
        str | None, describe("ServiceAccount of the worker pods; default by default.")
    ] = None
    source: Annotated[
        DataVolumeSource | None,
        describe("Where the content comes from. Absent if sourceRef, dataSource or dataSourceRef says it."),
    ] = None


class DataVolumeStatus(ApiStruct, kw_only=True):
    """How far the content is, written by cdi-deployment."""

    claim_name: Annotated[str, describe("Name of the claim, which is that of the DataVolume.")] = ""
    conditions: Annotated[tuple[HeartbeatCondition, ...], describe("Bound, Running and Ready.")] = ()
    phase: Annotated[
        str, describe("How far it is, such as Pending, ImportInProgress, Succeeded or Failed.")
    ] = ""
    progress: Annotated[
        str, describe("Percent of the content that has arrived, such as 42.0%; N/A where it is not known.")
    ] = ""
    restart_count: Annotated[Int32, describe("How often the worker pod was started again.")] = 0


class DataVolume(ApiStruct, kw_only=True):
    """A claim that is filled with content: a disk image, an archive, another claim, an upload."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataVolumeSpec, REQUIRED] = DataVolumeSpec()
    status: DataVolumeStatus = DataVolumeStatus()
