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
from virtplane.api.markers import REQUIRED, ApiStruct, Int32
from virtplane.api.meta_v1 import ObjectMeta


class DataVolumeSourceHTTP(TemplateSourceHTTP, kw_only=True):
    """A file served over HTTP or HTTPS."""

    checksum: str | None = None
    """``algorithm:hexadecimal`` of the bytes as they are served."""
    insecure_skip_verify: bool | None = None


class DataVolumeSourceVDDK(TemplateSourceVDDK, kw_only=True):
    """A disk of a VMware installation, read through VDDK."""

    cert_config_map: str | None = None


class DataVolumeSource(TemplateSource, kw_only=True):
    """Where the content comes from; exactly one member is set."""

    http: DataVolumeSourceHTTP | None = None
    vddk: DataVolumeSourceVDDK | None = None


class DataVolumeSpec(TemplateSpec, kw_only=True):
    """A claim together with the content it is to be filled with."""

    service_account_name: str | None = None
    source: DataVolumeSource | None = None


class DataVolumeStatus(ApiStruct, kw_only=True):
    """How far the content is."""

    claim_name: str = ""
    conditions: tuple[HeartbeatCondition, ...] = ()
    phase: str = ""
    progress: str = ""
    restart_count: Int32 = 0


class DataVolume(ApiStruct, kw_only=True):
    """A claim that is filled with content: a disk image, an archive, another claim, an upload."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataVolumeSpec, REQUIRED] = DataVolumeSpec()
    status: DataVolumeStatus = DataVolumeStatus()
