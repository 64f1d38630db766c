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
from virtplane.api.markers import REQUIRED, ApiStruct, describe
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

    checkpoints: Annotated[
        tuple[DataVolumeCheckpoint, ...], describe("Stages of a multi-stage (warm) import, in their order.")
    ] = ()
    content_type: Annotated[
        str | None,
        describe("kubevirt (default), a disk image, or archive, whose files go into a file system."),
    ] = None
    final_checkpoint: Annotated[
        bool | None, describe("Whether the last checkpoint is the end of the import; false by default.")
    ] = None
    preallocation: Annotated[
        bool | None, describe("Whether all of the volume is allocated; by default as CDIConfig says.")
    ] = None
    source: ImportSource | None = None
    target_claim: Annotated[
        str | None, describe("The only claim that is filled; required for a multi-stage import.")
    ] = None


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

    content_type: Annotated[
        str | None,
        describe("kubevirt (default), a disk image, or archive, whose files go into a file system."),
    ] = None
    preallocation: Annotated[
        bool | None, describe("Whether all of the volume is allocated; by default as CDIConfig says.")
    ] = None


class VolumeUploadSource(ApiStruct, kw_only=True):
    """Content that a client uploads into claims."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeUploadSourceSpec, REQUIRED] = VolumeUploadSourceSpec()
    status: VolumeSourceStatus = VolumeSourceStatus()


class VolumeCloneSourceSpec(ApiStruct, kw_only=True):
    """What claims are clones of, and how they are made."""

    preallocation: Annotated[
        bool | None, describe("Whether all of the volume is allocated; by default as CDIConfig says.")
    ] = None
    priority_class_name: Annotated[str | None, describe("PriorityClass of the worker pods.")] = None
    source: Annotated[
        TypedLocalObjectReference,
        REQUIRED,
        describe("The PersistentVolumeClaim or VolumeSnapshot of this namespace to clone."),
    ] = TypedLocalObjectReference()


class VolumeCloneSource(ApiStruct, kw_only=True):
    """A claim or volume snapshot that claims are clones of."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeCloneSourceSpec, REQUIRED] = VolumeCloneSourceSpec()
