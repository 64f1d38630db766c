"""What every guest of the installation gets."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.core_v1 import ResourceRequirementsWithoutClaims
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    ApiStruct,
    Quantity,
    UInt32Count,
    mark,
    one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class ArchSpecificConfiguration(ApiStruct, kw_only=True):
    """Machine types and firmware of one architecture."""

    emulated_machines: Annotated[tuple[str, ...], ATOMIC] = ()
    machine_type: str | None = None
    ovmf_path: str | None = None


class ArchConfiguration(ApiStruct, kw_only=True):
    """Settings of each guest architecture."""

    amd64: ArchSpecificConfiguration | None = None
    arm64: ArchSpecificConfiguration | None = None
    default_architecture: str | None = None
    ppc64le: ArchSpecificConfiguration | None = None
    s390x: ArchSpecificConfiguration | None = None


class TDXAttestationConfiguration(ApiStruct, kw_only=True):
    """Quote generation for TDX guests."""

    enforced: Annotated[bool | None, mark(default=False)] = None
    qgs_socket_path: Annotated[str | None, mark(default="/var/run/tdx-qgs/qgs.socket")] = None


class TDXConfiguration(ApiStruct, kw_only=True):
    """Settings of TDX guests."""

    attestation: TDXAttestationConfiguration | None = None


class ConfidentialComputeConfiguration(ApiStruct, kw_only=True):
    """Settings of encrypted guests."""

    tdx: Annotated[TDXConfiguration | None, NULLABLE] = None


class HypervisorConfiguration(ApiStruct, kw_only=True):
    """The hypervisor that runs guests."""

    name: Annotated[str | None, one_of("kvm", "hyperv-direct")] = None


class KSMConfiguration(ApiStruct, kw_only=True):
    """Nodes on which equal memory pages are merged."""

    node_label_selector: LabelSelector | None = None


class LiveUpdateConfiguration(ApiStruct, kw_only=True):
    """How much CPU and memory can be added to a running guest."""

    max_cpu_sockets: UInt32Count | None = None
    max_guest: Quantity | None = None
    max_hotplug_ratio: UInt32Count | None = None


class CustomProfile(ApiStruct, kw_only=True):
    """The seccomp profile of launcher pods."""

    localhost_profile: str | None = None
    runtime_default_profile: bool | None = None


class VirtualMachineInstanceProfile(ApiStruct, kw_only=True):
    """The seccomp profile of launcher pods."""

    custom_profile: CustomProfile = CustomProfile()


class SeccompConfiguration(ApiStruct, kw_only=True):
    """Seccomp profiles."""

    virtual_machine_instance_profile: VirtualMachineInstanceProfile = VirtualMachineInstanceProfile()


class SMBiosConfiguration(ApiStruct, kw_only=True):
    """What SMBIOS tells guests about the system."""

    family: str | None = None
    manufacturer: str | None = None
    product: str | None = None
    sku: str | None = None
    version: str | None = None


class SupportContainerResources(ApiStruct, kw_only=True):
    """Resources of one kind of helper container."""

    resources: ResourceRequirementsWithoutClaims
    type: str


class DisableFreePageReporting(ApiStruct, kw_only=True):
    """Present: the balloon does not report free pages."""


class DisableSerialConsoleLog(ApiStruct, kw_only=True):
    """Present: serial consoles are not logged."""


class VirtualMachineOptions(ApiStruct, kw_only=True):
    """Options of every guest."""

    disable_free_page_reporting: DisableFreePageReporting | None = None
    disable_serial_console_log: DisableSerialConsoleLog | None = None
