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
    """A cloud-init config drive: one source of user data, one of network data, or both."""

    network_data: Annotated[str | None, describe("Network data as it is, up to 2048 bytes.")] = None
    network_data_base64: Annotated[str | None, describe("Network data in base64, up to 2048 bytes.")] = None
    network_data_secret_ref: Annotated[
        LocalObjectReference | None,
        describe("A secret of the same namespace whose key networkdata holds the network data."),
    ] = None
    secret_ref: Annotated[
        LocalObjectReference | None,
        describe("A secret of the same namespace whose key userdata holds the user data."),
    ] = None
    user_data: Annotated[str | None, describe("User data as it is, up to 2048 bytes.")] = None
    user_data_base64: Annotated[str | None, describe("User data in base64, up to 2048 bytes.")] = None


class CloudInitNoCloudSource(ApiStruct, kw_only=True):
    """A cloud-init NoCloud disk: one source of user data, one of network data, or both."""

    network_data: Annotated[str | None, describe("Network data as it is, up to 2048 bytes.")] = None
    network_data_base64: Annotated[str | None, describe("Network data in base64, up to 2048 bytes.")] = None
    network_data_secret_ref: Annotated[
        LocalObjectReference | None,
        describe("A secret of the same namespace whose key networkdata holds the network data."),
    ] = None
    secret_ref: Annotated[
        LocalObjectReference | None,
        describe("A secret of the same namespace whose key userdata holds the user data."),
    ] = None
    user_data: Annotated[str | None, describe("User data as it is, up to 2048 bytes.")] = None
    user_data_base64: Annotated[str | None, describe("User data in base64, up to 2048 bytes.")] = None


class ConfigMapVolumeSource(ApiStruct, kw_only=True):
    """A disk (an ISO image) or shared folder with the files of a ConfigMap."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    name: Annotated[str | None, describe("The ConfigMap, of the same namespace."), mark(default="")] = None
    optional: Annotated[bool | None, describe("The guest starts without it, too; false when absent.")] = None
    volume_label: Annotated[
        str | None, describe("The label by which the guest finds the disk; cfgdata when absent.")
    ] = None


class ContainerDiskSource(ApiStruct, kw_only=True):
    """A disk that comes as a container image; what the guest writes is lost when it stops."""

    image: Annotated[str, describe("The image, which holds the disk (raw or qcow2) below /disk.")]
    image_pull_policy: Annotated[
        str | None,
        describe(
            "Always, IfNotPresent or Never. When absent, Always for images of no tag or of latest, else "
            "IfNotPresent."
        ),
        requested_one_of("Always", "IfNotPresent", "Never"),
    ] = None
    image_pull_secret: Annotated[
        str | None, describe("The secret, in the same namespace, for the image's registry.")
    ] = None
    path: Annotated[
        str | None,
        describe("Where the image has the disk, as an absolute path; the only file in /disk when absent."),
    ] = None


class ContainerPathVolumeSource(ApiStruct, kw_only=True):
    """A folder of the launcher's container, shared by virtiofs. Needs the gate ContainerPathVolumes."""

    path: Annotated[
        str,
        describe('The folder, as an absolute path without "..".'),
        rules(
            ("self.startsWith('/')", "path must be absolute (start with '/')"),
            ("!self.contains('..')", "path must not contain '..'"),
        ),
        mark(maxLength=4096),
    ]
    read_only: Annotated[
        bool | None,
        describe("true; there is no other value."),
        rules(("self == true", "readOnly must be true, write access is not supported")),
        mark(default=True),
    ] = None


class DataVolumeVolumeSource(ApiStruct, kw_only=True):
    """The claim that a DataVolume fills."""

    hotpluggable: Annotated[
        bool | None,
        describe("An attachment pod brings the claim, also to a running guest; false when absent."),
        ZERO_IS_UNSET,
    ] = None
    name: Annotated[str, describe("The DataVolume, of the same namespace.")]


class DownwardAPIVolumeSource(ApiStruct, kw_only=True):
    """A disk (an ISO image) or shared folder with files made of fields of the pod."""

    fields: Annotated[tuple[DownwardAPIVolumeFile, ...], describe("The files.")] = ()
    volume_label: Annotated[
        str | None, describe("The label by which the guest finds the disk; cfgdata when absent.")
    ] = None


class DownwardMetricsVolumeSource(ApiStruct, kw_only=True):
    """A disk on which the guest reads metrics of its node; bus virtio. Needs the gate DownwardMetrics."""


class EmptyDiskSource(ApiStruct, kw_only=True):
    """An empty disk that lives as long as the instance."""

    capacity: Annotated[Quantity, describe("The size of the disk, for example 10Gi.")]


class EphemeralVolumeSource(ApiStruct, kw_only=True):
    """A copy-on-write layer over a claim; what the guest writes is lost when it stops."""

    persistent_volume_claim: Annotated[
        CorePersistentVolumeClaimVolumeSource | None,
        describe("The claim below, which is never written to: its readOnly has no effect."),
    ] = None


class HostDisk(ApiStruct, kw_only=True):
    """A disk image in a file of the node. Needs the gate HostDisk."""

    capacity: Annotated[
        Quantity | None,
        describe("The size of a file to make, for example 10Gi; with type DiskOrCreate only."),
        ALWAYS_WRITTEN,
    ] = None
    path: Annotated[str, describe("The file's path on the node.")]
    shared: Annotated[
        bool | None,
        describe(
            "Whether all nodes have the same file; without, the guest cannot migrate. False when absent."
        ),
    ] = None
    type: Annotated[str, describe("Disk (the file must be there) or DiskOrCreate.")]


class MemoryDumpVolumeSource(ApiStruct, kw_only=True):
    """The claim into which the guest's memory is dumped; requests for dumps add it."""

    claim_name: Annotated[str, describe("The claim, of the same namespace.")]
    hotpluggable: Annotated[
        bool | None,
        describe("true: an attachment pod brings the claim. No other is dumped into."),
        ZERO_IS_UNSET,
    ] = None
    read_only: Annotated[bool | None, describe("No effect: the dump is written."), ZERO_IS_UNSET] = None


class PersistentVolumeClaimVolumeSource(ApiStruct, kw_only=True):
    """A claim of the same namespace."""

    claim_name: Annotated[str, describe("The claim's name.")]
    hotpluggable: Annotated[
        bool | None,
        describe("An attachment pod brings the claim, also to a running guest; false when absent."),
        ZERO_IS_UNSET,
    ] = None
    read_only: Annotated[
        bool | None, describe("The pod mounts the claim read-only; false when absent."), ZERO_IS_UNSET
    ] = None


class SecretVolumeSource(ApiStruct, kw_only=True):
    """A disk (an ISO image) or shared folder with the files of a Secret."""

    optional: Annotated[bool | None, describe("The guest starts without it, too; false when absent.")] = None
    secret_name: Annotated[str | None, describe("The Secret, of the same namespace.")] = None
    volume_label: Annotated[
        str | None, describe("The label by which the guest finds the disk; cfgdata when absent.")
    ] = None


class ServiceAccountVolumeSource(ApiStruct, kw_only=True):
    """A disk (an ISO image) or shared folder with the token of a service account; one at most."""

    service_account_name: Annotated[str | None, describe("The account, as which the pod runs.")] = None


class SysprepSource(ApiStruct, kw_only=True):
    """A CD-ROM with Windows' answer file, autounattend.xml or unattend.xml; one source."""

    config_map: Annotated[
        LocalObjectReference | None, describe("A ConfigMap of the same namespace whose keys are the files.")
    ] = None
    secret: Annotated[
        LocalObjectReference | None, describe("A Secret of the same namespace whose keys are the files.")
    ] = None
