"""DataVolumes as machines' ``dataVolumeTemplates`` have them: KubeVirt knows fewer fields than CDI serves."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import (
    PersistentVolumeClaimSpec,
    TypedLocalObjectReference,
    TypedObjectReference,
    VolumeResourceRequirements,
)
from virtplane.api.markers import (
    ALWAYS_WRITTEN,
    EMPTY_IS_SET,
    ZERO_IS_UNSET,
    ApiStruct,
    one_of,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class DataVolumeBlankImage(ApiStruct, kw_only=True):
    """An empty raw disk image."""


class DataVolumeCheckpoint(ApiStruct, kw_only=True):
    """One stage of a multi-stage (warm) import."""

    current: str
    previous: str


class DataVolumeSourceGCS(ApiStruct, kw_only=True):
    """An object of Google Cloud Storage."""

    secret_ref: str | None = None
    url: str


class TemplateSourceHTTP(ApiStruct, kw_only=True):
    """A file served over HTTP or HTTPS."""

    cert_config_map: str | None = None
    extra_headers: tuple[str, ...] = ()
    secret_extra_headers: tuple[str, ...] = ()
    secret_ref: str | None = None
    url: str


class DataVolumeSourceImageIO(ApiStruct, kw_only=True):
    """A disk of an oVirt installation, fetched through imageio."""

    cert_config_map: str | None = None
    disk_id: str
    insecure_skip_verify: bool | None = None
    secret_ref: str | None = None
    url: str


class DataVolumeSourcePVC(ApiStruct, kw_only=True):
    """An existing claim to clone."""

    name: str
    namespace: str


class PlatformOptions(ApiStruct, kw_only=True):
    """Which platform of a multi-architecture image is taken."""

    architecture: str | None = None


class DataVolumeSourceRegistry(ApiStruct, kw_only=True):
    """A container image that holds a disk below /disk."""

    cert_config_map: Annotated[str | None, EMPTY_IS_SET] = None
    image_stream: Annotated[str | None, EMPTY_IS_SET] = None
    platform: PlatformOptions | None = None
    pull_method: Annotated[str | None, EMPTY_IS_SET] = None
    secret_ref: Annotated[str | None, EMPTY_IS_SET] = None
    url: Annotated[str | None, EMPTY_IS_SET] = None


class DataVolumeSourceS3(ApiStruct, kw_only=True):
    """An object of an S3 compatible store."""

    cert_config_map: str | None = None
    secret_ref: str | None = None
    url: str


class DataVolumeSourceSnapshot(ApiStruct, kw_only=True):
    """An existing volume snapshot to clone."""

    name: str
    namespace: str


class DataVolumeSourceUpload(ApiStruct, kw_only=True):
    """Content that a client will upload."""


class TemplateSourceVDDK(ApiStruct, kw_only=True):
    """A disk of a VMware installation, read through VDDK."""

    backing_file: str | None = None
    extra_args: str | None = None
    init_image_url: str | None = field(default=None, name="initImageURL")
    secret_ref: str | None = None
    thumbprint: str | None = None
    url: str | None = None
    uuid: str | None = None


class TemplateSource(ApiStruct, kw_only=True):
    """Where the content comes from; exactly one member is set."""

    blank: DataVolumeBlankImage | None = None
    gcs: DataVolumeSourceGCS | None = None
    http: TemplateSourceHTTP | None = None
    imageio: DataVolumeSourceImageIO | None = None
    pvc: DataVolumeSourcePVC | None = None
    registry: DataVolumeSourceRegistry | None = None
    s3: DataVolumeSourceS3 | None = None
    snapshot: DataVolumeSourceSnapshot | None = None
    upload: DataVolumeSourceUpload | None = None
    vddk: TemplateSourceVDDK | None = None


class DataVolumeSourceRef(ApiStruct, kw_only=True):
    """A reference to an object that knows the source, such as a DataSource."""

    kind: str
    name: str
    namespace: Annotated[str | None, EMPTY_IS_SET] = None


class StorageSpec(ApiStruct, kw_only=True):
    """Storage asked for, with blanks filled from the storage profile."""

    access_modes: tuple[str, ...] = ()
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    resources: Annotated[VolumeResourceRequirements | None, ALWAYS_WRITTEN] = None
    selector: LabelSelector | None = None
    storage_class_name: Annotated[str | None, EMPTY_IS_SET] = None
    volume_mode: Annotated[
        str | None, requested_one_of("Block", "Filesystem", "FromStorageProfile"), EMPTY_IS_SET
    ] = None
    volume_name: str | None = None


class TemplateSpec(ApiStruct, kw_only=True):
    """A claim together with the content it is to be filled with."""

    checkpoints: tuple[DataVolumeCheckpoint, ...] = ()
    content_type: Annotated[str | None, one_of("kubevirt", "archive")] = None
    final_checkpoint: Annotated[bool | None, ZERO_IS_UNSET] = None
    preallocation: bool | None = None
    priority_class_name: str | None = None
    pvc: PersistentVolumeClaimSpec | None = None
    source: TemplateSource | None = None
    source_ref: DataVolumeSourceRef | None = None
    storage: StorageSpec | None = None
