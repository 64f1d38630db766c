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
    describe,
    one_of,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class DataVolumeBlankImage(ApiStruct, kw_only=True):
    """An empty disk image as large as the claim allows."""


class DataVolumeCheckpoint(ApiStruct, kw_only=True):
    """One stage of a multi-stage (warm) import."""

    current: Annotated[str, describe("The snapshot at the source that is copied now.")]
    previous: Annotated[
        str, describe("The snapshot before it, of which only changes are copied; empty at first.")
    ]


class DataVolumeSourceGCS(ApiStruct, kw_only=True):
    """An object of Google Cloud Storage."""

    secret_ref: Annotated[
        str | None,
        describe("Secret with the service account's key, under credentials.json; absent for public objects."),
    ] = None
    url: Annotated[str, describe("Address of the object: gs://bucket/object or https.")]


class TemplateSourceHTTP(ApiStruct, kw_only=True):
    """A file served over HTTP or HTTPS."""

    cert_config_map: Annotated[
        str | None, describe("ConfigMap with authorities that the server is verified by.")
    ] = None
    extra_headers: Annotated[tuple[str, ...], describe("Headers of the requests, each as Name: value.")] = ()
    secret_extra_headers: Annotated[
        tuple[str, ...], describe("Secrets whose values are headers of the requests.")
    ] = ()
    secret_ref: Annotated[
        str | None, describe("Secret with accessKeyId and secretKey: user and password.")
    ] = None
    url: Annotated[str, describe("Address of the file: a disk image, also compressed, or an archive.")]


class DataVolumeSourceImageIO(ApiStruct, kw_only=True):
    """A disk of an oVirt installation, fetched through imageio."""

    cert_config_map: Annotated[
        str | None, describe("ConfigMap with authorities that the engine is verified by.")
    ] = None
    disk_id: Annotated[str, describe("Id of the disk at the engine.")]
    insecure_skip_verify: Annotated[
        bool | None, describe("Whether certificates of engine and host are not verified; false by default.")
    ] = None
    secret_ref: Annotated[
        str | None, describe("Secret with accessKeyId and secretKey: user and password.")
    ] = None
    url: Annotated[str, describe("Address of the engine's API.")]


class DataVolumeSourcePVC(ApiStruct, kw_only=True):
    """An existing claim to clone."""

    name: Annotated[str, describe("Name of the claim.")]
    namespace: Annotated[str, describe("Namespace of the claim; another one needs the right to clone there.")]


class PlatformOptions(ApiStruct, kw_only=True):
    """Which platform of a multi-architecture image is taken."""

    architecture: Annotated[
        str | None, describe("Architecture of the image, such as amd64; by default that of the node.")
    ] = None


class DataVolumeSourceRegistry(ApiStruct, kw_only=True):
    """A container image that holds a disk below /disk. Either url or imageStream is set."""

    cert_config_map: Annotated[
        str | None, EMPTY_IS_SET, describe("ConfigMap with authorities that the registry is verified by.")
    ] = None
    image_stream: Annotated[
        str | None,
        EMPTY_IS_SET,
        describe("ImageStream of this namespace with the image (OpenShift); needs pullMethod node."),
    ] = None
    platform: PlatformOptions | None = None
    pull_method: Annotated[
        str | None,
        EMPTY_IS_SET,
        describe("pod (default): the importer fetches the image; node: the node pulls it."),
    ] = None
    secret_ref: Annotated[
        str | None, EMPTY_IS_SET, describe("Secret with accessKeyId and secretKey: user and password.")
    ] = None
    url: Annotated[
        str | None, EMPTY_IS_SET, describe("Address of the image: docker:// or oci-archive://.")
    ] = None


class DataVolumeSourceS3(ApiStruct, kw_only=True):
    """An object of an S3 compatible store."""

    cert_config_map: Annotated[
        str | None, describe("ConfigMap with authorities that the store is verified by.")
    ] = None
    secret_ref: Annotated[
        str | None, describe("Secret with accessKeyId and secretKey; absent for public objects.")
    ] = None
    url: Annotated[str, describe("Address of the object: https://host/bucket/object.")]


class DataVolumeSourceSnapshot(ApiStruct, kw_only=True):
    """An existing volume snapshot to clone."""

    name: Annotated[str, describe("Name of the VolumeSnapshot.")]
    namespace: Annotated[
        str, describe("Namespace of the VolumeSnapshot; another one needs the right to clone there.")
    ]


class DataVolumeSourceUpload(ApiStruct, kw_only=True):
    """Content that a client uploads through the upload proxy."""


class TemplateSourceVDDK(ApiStruct, kw_only=True):
    """A disk of a VMware installation. Needs nbdkit's vddk plug-in in the importer, which ours has not."""

    backing_file: Annotated[str | None, describe("File of the disk, as vSphere names it.")] = None
    extra_args: Annotated[
        str | None,
        describe(
            "ConfigMap with VDDK's configuration under vddk-config-file, and nodes under vddk-node-selector."
        ),
    ] = None
    init_image_url: Annotated[
        str | None, describe("Image with VDDK; by default that of the ConfigMap v2v-vmware.")
    ] = field(default=None, name="initImageURL")
    secret_ref: Annotated[
        str | None, describe("Secret with accessKeyId and secretKey: user and password.")
    ] = None
    thumbprint: Annotated[
        str | None, describe("Thumbprint of the server's certificate, by which it is trusted.")
    ] = None
    url: Annotated[str | None, describe("Address of vCenter or of the host.")] = None
    uuid: Annotated[str | None, describe("UUID of the machine.")] = None


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

    kind: Annotated[str, describe("Kind of the object: DataSource.")]
    name: Annotated[str, describe("Name of the DataSource.")]
    namespace: Annotated[
        str | None, EMPTY_IS_SET, describe("Namespace of the DataSource; by default this one.")
    ] = None


class StorageSpec(ApiStruct, kw_only=True):
    """Storage asked for; what is left out comes from the storage profile of the class."""

    access_modes: Annotated[
        tuple[str, ...], describe("Access modes; by default the profile's best that fit the volume mode.")
    ] = ()
    data_source: Annotated[
        TypedLocalObjectReference | None,
        describe("Claim or VolumeSnapshot that the volume is made of, in place of a source of CDI."),
    ] = None
    data_source_ref: Annotated[
        TypedObjectReference | None, describe("The same, also for other kinds (volume populators).")
    ] = None
    resources: Annotated[
        VolumeResourceRequirements | None,
        ALWAYS_WRITTEN,
        describe("Size of the content; room for the file system is added. Clones may leave it out."),
    ] = None
    selector: Annotated[LabelSelector | None, describe("Labels of the volumes that will do.")] = None
    storage_class_name: Annotated[
        str | None, EMPTY_IS_SET, describe("Storage class; by default that of machines, else the cluster's.")
    ] = None
    volume_mode: Annotated[
        str | None,
        requested_one_of("Block", "Filesystem", "FromStorageProfile"),
        EMPTY_IS_SET,
        describe("Filesystem, Block or FromStorageProfile (default): the profile's best."),
    ] = None
    volume_name: Annotated[str | None, describe("The volume that the claim is bound to.")] = None


class TemplateSpec(ApiStruct, kw_only=True):
    """A claim together with the content it is to be filled with. Cannot be changed, but for checkpoints."""

    checkpoints: Annotated[
        tuple[DataVolumeCheckpoint, ...], describe("Stages of a multi-stage (warm) import, in their order.")
    ] = ()
    content_type: Annotated[
        str | None,
        one_of("kubevirt", "archive"),
        describe("kubevirt (default), a disk image, or archive, whose files go into a file system."),
    ] = None
    final_checkpoint: Annotated[
        bool | None,
        ZERO_IS_UNSET,
        describe("Whether the last checkpoint is the end of the import; false by default."),
    ] = None
    preallocation: Annotated[
        bool | None, describe("Whether all of the volume is allocated; by default as CDIConfig says.")
    ] = None
    priority_class_name: Annotated[str | None, describe("PriorityClass of the worker pods.")] = None
    pvc: Annotated[
        PersistentVolumeClaimSpec | None,
        describe("The claim as it is asked for; nothing is filled in. One of this and storage."),
    ] = None
    source: Annotated[
        TemplateSource | None,
        describe("Where the content comes from. Absent if sourceRef, dataSource or dataSourceRef says it."),
    ] = None
    source_ref: Annotated[
        DataVolumeSourceRef | None,
        describe("DataSource that knows where the content is, in place of a source."),
    ] = None
    storage: Annotated[
        StorageSpec | None, describe("The claim with what is left out filled in. One of this and pvc.")
    ] = None
