"""Volumes, and the one table of their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import field, structs

from virtplane.api.kubevirt_v1.volume_sources import (
    CloudInitConfigDriveSource,
    CloudInitNoCloudSource,
    ConfigMapVolumeSource,
    ContainerDiskSource,
    ContainerPathVolumeSource,
    DataVolumeVolumeSource,
    DownwardAPIVolumeSource,
    DownwardMetricsVolumeSource,
    EmptyDiskSource,
    EphemeralVolumeSource,
    HostDisk,
    MemoryDumpVolumeSource,
    PersistentVolumeClaimVolumeSource,
    SecretVolumeSource,
    ServiceAccountVolumeSource,
    SysprepSource,
)
from virtplane.api.markers import EMPTY_IS_SET, ZERO_IS_UNSET, ApiStruct, describe
from virtplane.api.paths import PRIVATE_DIR


class Volume(ApiStruct, kw_only=True):
    """A named source of data; exactly one source is set."""

    cloud_init_config_drive: CloudInitConfigDriveSource | None = None
    cloud_init_no_cloud: CloudInitNoCloudSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    container_disk: ContainerDiskSource | None = None
    container_path: ContainerPathVolumeSource | None = None
    data_volume: DataVolumeVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    downward_metrics: DownwardMetricsVolumeSource | None = None
    empty_disk: EmptyDiskSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    host_disk: HostDisk | None = None
    memory_dump: MemoryDumpVolumeSource | None = None
    name: Annotated[str, describe("The name that disks and file systems refer to.")]
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    service_account: ServiceAccountVolumeSource | None = None
    sysprep: SysprepSource | None = None


class HotplugVolumeSource(ApiStruct, kw_only=True):
    """What may be attached to a running guest."""

    data_volume: DataVolumeVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None


class UtilityVolume(ApiStruct, kw_only=True):
    """A claim that the pod gets beside the guest's disks, such as for backups. Needs the gate
    UtilityVolumes.
    """

    claim_name: Annotated[str, describe("The claim, of the same namespace.")]
    name: Annotated[str, describe("The name of its folder or device below /var/run/kubevirt/hotplug-disks.")]
    read_only: Annotated[
        bool | None,
        describe("The claim's file system is mounted read-only; false when absent."),
        ZERO_IS_UNSET,
    ] = None
    type: Annotated[str | None, describe("What the volume is for. No effect yet."), EMPTY_IS_SET] = None


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that a volume's source names."""

    path: tuple[str, ...]
    """Attributes of the source that lead to the name."""
    kind: str
    group: str = ""
    purpose: Literal["storage", "config"] = "config"


@dataclass(frozen=True, slots=True)
class VolumeKind:
    """One kind of source: what admission, launcher pods, disks, hotplug and migration have to know of it."""

    name: str
    """The field of the volume that holds the source."""
    claim: tuple[str, ...] = ()
    """Attributes of the source that lead to its claim's name. A DataVolume's claim has its name."""
    claim_is: Literal["", "disk", "base", "dump"] = ""
    """What the guest has of the claim: the disk itself, what lies below a scratch layer, or nothing."""
    folder: str = "vmi-disks"
    """Where launcher pods mount volumes of the kind, below their private directory."""
    is_made_of_files: bool = False
    """Whether virt-handler makes the disk of the files that the pod mounts."""
    is_shared: bool = False
    """Whether another node has the same bytes, so that they are not copied when the guest moves."""
    required: str = ""
    """The field of the source that admission insists on."""
    unique: str = ""
    """What admission calls the kind where an instance may have one volume of it at most."""
    references: tuple[Reference, ...] = ()

    @property
    def is_hotpluggable(self) -> bool:
        """Whether volumes of the kind may come and go while the guest runs."""
        return self.claim_is in ("disk", "dump")

    def mount(self, name: str) -> str:
        """Where a launcher's pod mounts the volume `name`."""
        return f"{PRIVATE_DIR}/{self.folder}/{name}"

    def source(self, volume: Volume) -> Any:
        """The source of this kind that a volume has, or None."""
        return getattr(volume, _ATTRIBUTES[self.name])

    def lacks_required(self, volume: Volume) -> bool:
        """Whether a volume has a source of this kind without what admission insists on."""
        source = self.source(volume)
        if source is None or not self.required:
            return False
        return not any(
            getattr(source, item.name) for item in structs.fields(source) if item.encode_name == self.required
        )


_CLOUD_INIT = (
    Reference(("secret_ref", "name"), "Secret"),
    Reference(("network_data_secret_ref", "name"), "Secret"),
)
_ATTRIBUTES = {item.encode_name: item.name for item in structs.fields(Volume)}

VOLUME_KINDS: tuple[VolumeKind, ...] = (
    VolumeKind(
        "persistentVolumeClaim",
        claim=("claim_name",),
        claim_is="disk",
        is_shared=True,
        references=(Reference(("claim_name",), "PersistentVolumeClaim", purpose="storage"),),
    ),
    VolumeKind(
        "dataVolume",
        claim=("name",),
        claim_is="disk",
        is_shared=True,
        references=(Reference(("name",), "DataVolume", "cdi.kubevirt.io", "storage"),),
    ),
    VolumeKind("ephemeral", claim=("persistent_volume_claim", "claim_name"), claim_is="base"),
    VolumeKind(
        "configMap",
        folder="config-map",
        is_made_of_files=True,
        required="name",
        references=(Reference(("name",), "ConfigMap"),),
    ),
    VolumeKind(
        "secret",
        folder="secret",
        is_made_of_files=True,
        required="secretName",
        references=(Reference(("secret_name",), "Secret"),),
    ),
    VolumeKind(
        "serviceAccount",
        is_made_of_files=True,
        required="serviceAccountName",
        unique="serviceAccount volume",
        references=(Reference(("service_account_name",), "ServiceAccount"),),
    ),
    VolumeKind("cloudInitNoCloud", references=_CLOUD_INIT),
    VolumeKind("cloudInitConfigDrive", references=_CLOUD_INIT),
    VolumeKind(
        "sysprep",
        folder="sysprep",
        is_made_of_files=True,
        references=(Reference(("config_map", "name"), "ConfigMap"), Reference(("secret", "name"), "Secret")),
    ),
    VolumeKind("downwardAPI", folder="downwardapi", is_made_of_files=True),
    VolumeKind("downwardMetrics", unique="downwardMetric volume"),
    VolumeKind("memoryDump", claim=("claim_name",), claim_is="dump", unique="memory dump volume"),
    VolumeKind("containerDisk"),
    VolumeKind("emptyDisk"),
    VolumeKind("hostDisk", is_shared=True),
    VolumeKind("containerPath"),
)
"""Every kind of volume."""


def kind_of(volume: Volume) -> VolumeKind | None:
    """The kind of a volume; None for one without a source."""
    return next((kind for kind in VOLUME_KINDS if kind.source(volume) is not None), None)


def is_disk_claim(volume: Volume) -> bool:
    """Whether the volume's claim is the guest's disk."""
    return any(kind.claim_is == "disk" and kind.source(volume) is not None for kind in VOLUME_KINDS)


def claim_name(volume: Volume) -> str:
    """The claim behind a volume, empty when there is none."""
    kind = kind_of(volume)
    return _text_at(kind.source(volume), kind.claim) if kind is not None and kind.claim else ""


def references(volume: Volume) -> Iterator[tuple[Reference, str]]:
    """The objects that a volume's sources name, with their names."""
    for kind in VOLUME_KINDS:
        for reference in kind.references:
            name = _text_at(kind.source(volume), reference.path)
            if name:
                yield reference, name


def _text_at(source: Any, path: tuple[str, ...]) -> str:
    for attribute in path:
        source = getattr(source, attribute) if source is not None else None
    return source or ""
