"""Sources of volumes: where the data of disks comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.core_v1 import (
    CorePersistentVolumeClaimVolumeSource,
    DownwardAPIVolumeFile,
    LocalObjectReference,
)
from virtplane.api.markers import (
    ALWAYS_WRITTEN,
    ZERO_IS_UNSET,
    ApiStruct,
    Quantity,
    describe,
    mark,
    requested_one_of,
    rules,
)


class CloudInitConfigDriveSource(ApiStruct, kw_only=True):
    """A cloud-init config drive made of the given user and network data."""

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class CloudInitNoCloudSource(ApiStruct, kw_only=True):
    """A cloud-init NoCloud disk made of the given user and network data."""

    network_data: Annotated[str | None, describe("Network data as it is.")] = None
    network_data_base64: Annotated[str | None, describe("Network data in base64.")] = None
    network_data_secret_ref: Annotated[
        LocalObjectReference | None, describe("A secret whose key networkdata holds the network data.")
    ] = None
    secret_ref: Annotated[
        LocalObjectReference | None, describe("A secret whose key userdata holds the user data.")
    ] = None
    user_data: Annotated[str | None, describe("User data as it is.")] = None
    user_data_base64: Annotated[str | None, describe("User data in base64.")] = None


class ConfigMapVolumeSource(ApiStruct, kw_only=True):
    """A disk with the files of a ConfigMap."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    name: Annotated[str | None, mark(default="")] = None
    optional: bool | None = None
    volume_label: str | None = None


class ContainerDiskSource(ApiStruct, kw_only=True):
    """A disk that comes as a container image; writes are lost on stop."""

    image: Annotated[str, describe("The image that holds the disk below /disk.")]
    image_pull_policy: Annotated[str | None, requested_one_of("Always", "IfNotPresent", "Never")] = None
    image_pull_secret: str | None = None
    path: Annotated[str | None, describe("The disk's path in the image, when there are several.")] = None


class ContainerPathVolumeSource(ApiStruct, kw_only=True):
    """A directory of the launcher's container, shared read-only."""

    path: Annotated[
        str,
        rules(
            ("self.startsWith('/')", "path must be absolute (start with '/')"),
            ("!self.contains('..')", "path must not contain '..'"),
        ),
        mark(maxLength=4096),
    ]
    read_only: Annotated[
        bool | None,
        rules(("self == true", "readOnly must be true, write access is not supported")),
        mark(default=True),
    ] = None


class DataVolumeVolumeSource(ApiStruct, kw_only=True):
    """The claim that a DataVolume fills."""

    hotpluggable: Annotated[bool | None, ZERO_IS_UNSET] = None
    name: Annotated[str, describe("The DataVolume's name.")]


class DownwardAPIVolumeSource(ApiStruct, kw_only=True):
    """A disk with files made of fields of the instance."""

    fields: tuple[DownwardAPIVolumeFile, ...] = ()
    volume_label: str | None = None


class DownwardMetricsVolumeSource(ApiStruct, kw_only=True):
    """A disk from which the guest reads host metrics."""


class EmptyDiskSource(ApiStruct, kw_only=True):
    """An empty disk that lives as long as the instance."""

    capacity: Annotated[Quantity, describe("The size of the disk.")]


class EphemeralVolumeSource(ApiStruct, kw_only=True):
    """A copy-on-write layer over a claim; writes are lost on stop."""

    persistent_volume_claim: CorePersistentVolumeClaimVolumeSource | None = None


class HostDisk(ApiStruct, kw_only=True):
    """A disk image on the node's own file system."""

    capacity: Annotated[Quantity | None, describe("The size of a disk to create."), ALWAYS_WRITTEN] = None
    path: Annotated[str, describe("The image's path on the node.")]
    shared: bool | None = None
    type: Annotated[str, describe("Disk (must exist) or DiskOrCreate.")]


class MemoryDumpVolumeSource(ApiStruct, kw_only=True):
    """The claim into which the guest's memory is dumped."""

    claim_name: str
    hotpluggable: Annotated[bool | None, ZERO_IS_UNSET] = None
    read_only: Annotated[bool | None, ZERO_IS_UNSET] = None


class PersistentVolumeClaimVolumeSource(ApiStruct, kw_only=True):
    """A claim of the same namespace."""

    claim_name: Annotated[str, describe("The claim's name.")]
    hotpluggable: Annotated[
        bool | None, describe("The volume can be unplugged from the running guest."), ZERO_IS_UNSET
    ] = None
    read_only: Annotated[bool | None, ZERO_IS_UNSET] = None


class SecretVolumeSource(ApiStruct, kw_only=True):
    """A disk with the files of a Secret."""

    optional: bool | None = None
    secret_name: str | None = None
    volume_label: str | None = None


class ServiceAccountVolumeSource(ApiStruct, kw_only=True):
    """A disk with the token of a service account."""

    service_account_name: str | None = None


class SysprepSource(ApiStruct, kw_only=True):
    """A CD-ROM with Windows' answer files."""

    config_map: LocalObjectReference | None = None
    secret: LocalObjectReference | None = None
