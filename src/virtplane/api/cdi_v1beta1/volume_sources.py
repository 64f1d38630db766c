"""Sources that claims name in ``dataSourceRef``: imports, uploads and clones."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSourceHTTP, DataVolumeSourceVDDK
from virtplane.api.cdi_v1beta1.data_volume_template import (
    DataVolumeBlankImage,
    DataVolumeCheckpoint,
    DataVolumeSourceGCS,
    DataVolumeSourceImageIO,
    DataVolumeSourceRegistry,
    DataVolumeSourceS3,
)
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import REQUIRED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class ImportSource(ApiStruct, kw_only=True):
    """Where the content comes from; exactly one member is set."""

    blank: DataVolumeBlankImage | None = None
    gcs: DataVolumeSourceGCS | None = None
    http: DataVolumeSourceHTTP | None = None
    imageio: DataVolumeSourceImageIO | None = None
    registry: DataVolumeSourceRegistry | None = None
    s3: DataVolumeSourceS3 | None = None
    vddk: DataVolumeSourceVDDK | None = None


class VolumeImportSourceSpec(ApiStruct, kw_only=True):
    """What claims are filled with, and how."""

    checkpoints: tuple[DataVolumeCheckpoint, ...] = ()
    content_type: str | None = None
    """``kubevirt`` (default) or ``archive``."""
    final_checkpoint: bool | None = None
    preallocation: bool | None = None
    source: ImportSource | None = None
    target_claim: str | None = None
    """The only claim that a multi-stage import fills."""


class VolumeSourceStatus(ApiStruct, kw_only=True):
    """Nothing: claims say how far they are."""


class VolumeImportSource(ApiStruct, kw_only=True):
    """Content from elsewhere that claims are filled with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeImportSourceSpec, REQUIRED] = VolumeImportSourceSpec()
    status: VolumeSourceStatus = VolumeSourceStatus()


class VolumeUploadSourceSpec(ApiStruct, kw_only=True):
    """How claims are filled with what a client uploads."""

    content_type: str | None = None
    """``kubevirt`` (default) or ``archive``."""
    preallocation: bool | None = None


class VolumeUploadSource(ApiStruct, kw_only=True):
    """Content that a client uploads into claims."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeUploadSourceSpec, REQUIRED] = VolumeUploadSourceSpec()
    status: VolumeSourceStatus = VolumeSourceStatus()


class VolumeCloneSourceSpec(ApiStruct, kw_only=True):
    """What claims are clones of, and how they are made."""

    preallocation: bool | None = None
    priority_class_name: str | None = None
    source: Annotated[TypedLocalObjectReference, REQUIRED] = TypedLocalObjectReference()


class VolumeCloneSource(ApiStruct, kw_only=True):
    """A claim or volume snapshot that claims are clones of."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeCloneSourceSpec, REQUIRED] = VolumeCloneSourceSpec()
