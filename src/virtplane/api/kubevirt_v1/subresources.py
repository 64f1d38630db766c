"""Bodies and answers of subresources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import TypedObjectReference
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.api.kubevirt_v1.volumes import HotplugVolumeSource
from virtplane.api.markers import ATOMIC, ApiStruct, Duration, Int32, Int64, describe
from virtplane.api.meta_v1 import LabelSelector


class AddVolumeOptions(ApiStruct, kw_only=True):
    """Body of `addvolume`: the volume and how it shows up."""

    disk: Disk
    dry_run: Annotated[
        tuple[str, ...], describe("All: the request is checked, but changes nothing."), ATOMIC
    ] = ()
    name: Annotated[str, describe("The volume's name, which no other may have.")]
    volume_source: HotplugVolumeSource


class EvacuateCancelOptions(ApiStruct, kw_only=True):
    """Body of `evacuate/cancel`."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    evacuation_node_name: str
    kind: str | None = None


class FreezeUnfreezeTimeout(ApiStruct, kw_only=True):
    """Body of `freeze`: when the file systems thaw by themselves."""

    unfreeze_timeout: Duration


class GuestAgentCommandInfo(ApiStruct, kw_only=True):
    """A command of the guest agent and whether it may be used."""

    enabled: bool | None = None
    name: str


class MigrateOptions(ApiStruct, kw_only=True):
    """Body of `migrate`."""

    added_node_selector: Mapping[str, str] = field(default_factory=dict)
    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    kind: str | None = None


class ObjectGraphNode(ApiStruct, kw_only=True):
    """An object that a machine depends on, with those that it depends on."""

    api_version: str | None = None
    children: Annotated[tuple[ObjectGraphNode, ...], ATOMIC] = ()
    kind: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    object_reference: TypedObjectReference
    optional: bool | None = None


class ObjectGraphOptions(ApiStruct, kw_only=True):
    """Body of `objectgraph`."""

    include_optional_nodes: bool | None = None
    label_selector: LabelSelector | None = None


class PauseOptions(ApiStruct, kw_only=True):
    """Body of `pause`."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    kind: str | None = None


class RemoveVolumeOptions(ApiStruct, kw_only=True):
    """Body of `removevolume`: the volume to take away."""

    dry_run: Annotated[
        tuple[str, ...], describe("All: the request is checked, but changes nothing."), ATOMIC
    ] = ()
    name: Annotated[str, describe("The volume's name.")]


class RestartOptions(ApiStruct, kw_only=True):
    """Body of `restart`; grace period in seconds."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    grace_period_seconds: Int64 | None = None
    kind: str | None = None


class SEVMeasurementInfo(ApiStruct, kw_only=True):
    """The launch measurement of an SEV guest."""

    api_major: Int32 | None = None
    api_minor: Int32 | None = None
    api_version: str | None = None
    build_id: Int32 | None = field(default=None, name="buildID")
    kind: str | None = None
    loader_sha: str | None = field(default=None, name="loaderSHA")
    measurement: str | None = None
    policy: Int32 | None = None


class SEVPlatformInfo(ApiStruct, kw_only=True):
    """Certificates of the SEV platform."""

    api_version: str | None = None
    cert_chain: str | None = None
    kind: str | None = None
    pdh: str | None = None


class SEVSecretOptions(ApiStruct, kw_only=True):
    """A secret injected into an SEV guest."""

    header: str | None = None
    secret: str | None = None


class SEVSessionOptions(ApiStruct, kw_only=True):
    """Session parameters of an SEV guest."""

    dh_cert: str | None = None
    session: str | None = None


class StartOptions(ApiStruct, kw_only=True):
    """Body of `start`."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    kind: str | None = None
    paused: bool | None = None


class StopOptions(ApiStruct, kw_only=True):
    """Body of `stop`; grace period in seconds."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    grace_period: Int64 | None = None
    kind: str | None = None


class UnpauseOptions(ApiStruct, kw_only=True):
    """Body of `unpause`."""

    api_version: str | None = None
    dry_run: Annotated[tuple[str, ...], ATOMIC] = ()
    kind: str | None = None


class VirtualMachineInstanceFileSystemDisk(ApiStruct, kw_only=True):
    """A disk that a file system of the guest lies on."""

    bus_type: str
    serial: str | None = None


class VirtualMachineInstanceFileSystem(ApiStruct, kw_only=True):
    """A file system that the guest has mounted. Sizes are bytes."""

    disk: tuple[VirtualMachineInstanceFileSystemDisk, ...] = ()
    disk_name: str
    file_system_type: str
    mount_point: str
    total_bytes: Int32
    used_bytes: Int32


class VirtualMachineInstanceFileSystemInfo(ApiStruct, kw_only=True):
    """The guest's file systems."""

    disks: tuple[VirtualMachineInstanceFileSystem, ...]


class VirtualMachineInstanceGuestOSUser(ApiStruct, kw_only=True):
    """A user logged into the guest."""

    domain: str | None = None
    login_time: float | None = None
    user_name: str


class VirtualMachineInstanceGuestAgentInfo(ApiStruct, kw_only=True):
    """Answer of `guestosinfo`."""

    api_version: str | None = None
    fs_freeze_status: str | None = None
    fs_info: VirtualMachineInstanceFileSystemInfo | None = None
    guest_agent_version: str | None = None
    hostname: str | None = None
    kind: str | None = None
    os: VirtualMachineInstanceGuestOSInfo | None = None
    supported_commands: Annotated[tuple[GuestAgentCommandInfo, ...], ATOMIC] = ()
    timezone: str | None = None
    user_list: tuple[VirtualMachineInstanceGuestOSUser, ...] = ()
