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
    describe,
    mark,
    one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class ArchSpecificConfiguration(ApiStruct, kw_only=True):
    """Machine types and firmware of one architecture."""

    emulated_machines: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Machine types that guests may ask for; a star stands for anything."),
    ] = ()
    machine_type: Annotated[
        str | None,
        describe("Machine type of guests that name none: q35, virt (arm64) or s390-ccw-virtio by default."),
    ] = None
    ovmf_path: Annotated[str | None, describe("Folder of the UEFI firmware in the launcher's image.")] = None


class ArchConfiguration(ApiStruct, kw_only=True):
    """Settings of each guest architecture."""

    amd64: Annotated[
        ArchSpecificConfiguration | None,
        describe("Settings of x86-64 guests; also of an architecture that has none of its own."),
    ] = None
    arm64: Annotated[ArchSpecificConfiguration | None, describe("Settings of 64-bit ARM guests.")] = None
    default_architecture: Annotated[
        str | None,
        describe(
            "Architecture of machines that name none: amd64, arm64 or s390x; by default the operator's own."
        ),
    ] = None
    ppc64le: Annotated[
        ArchSpecificConfiguration | None, describe("No effect: this architecture is no longer supported.")
    ] = None
    s390x: Annotated[ArchSpecificConfiguration | None, describe("Settings of s390x guests.")] = None


class TDXAttestationConfiguration(ApiStruct, kw_only=True):
    """Quote generation for TDX guests. No effect."""

    enforced: Annotated[
        bool | None,
        mark(default=False),
        describe("Whether TDX guests must be able to get quotes. No effect."),
    ] = None
    qgs_socket_path: Annotated[
        str | None,
        mark(default="/var/run/tdx-qgs/qgs.socket"),
        describe("Socket of the node's quote generation service. No effect."),
    ] = None


class TDXConfiguration(ApiStruct, kw_only=True):
    """Settings of TDX guests. No effect."""

    attestation: TDXAttestationConfiguration | None = None


class ConfidentialComputeConfiguration(ApiStruct, kw_only=True):
    """Settings of encrypted guests. No effect."""

    tdx: Annotated[TDXConfiguration | None, NULLABLE] = None


class HypervisorConfiguration(ApiStruct, kw_only=True):
    """The hypervisor that runs guests. No effect: it is always kvm."""

    name: Annotated[
        str | None,
        one_of("kvm", "hyperv-direct"),
        describe("Name of the hypervisor: kvm or hyperv-direct. No effect: it is always kvm."),
    ] = None


class KSMConfiguration(ApiStruct, kw_only=True):
    """Nodes whose kernel merges equal pages of guests while memory is short."""

    node_label_selector: Annotated[
        LabelSelector | None, describe("Nodes on which it is done; empty selects all, absent none.")
    ] = None


class LiveUpdateConfiguration(ApiStruct, kw_only=True):
    """Room that guests get at their start for CPU and memory that are added while they run."""

    max_cpu_sockets: Annotated[
        UInt32Count | None,
        describe("Most CPU sockets of a running guest; by default its sockets times maxHotplugRatio."),
    ] = None
    max_guest: Annotated[
        Quantity | None,
        describe(
            "Most memory of a running guest, such as 16Gi; by default its memory times maxHotplugRatio."
        ),
    ] = None
    max_hotplug_ratio: Annotated[
        UInt32Count | None,
        describe("How many times its sockets and memory a guest can grow to; 4 by default."),
    ] = None


class CustomProfile(ApiStruct, kw_only=True):
    """The seccomp profile; one of the two. Without, it is RuntimeDefault in restricted namespaces only."""

    localhost_profile: Annotated[
        str | None, describe("Path of a profile on the nodes, below the kubelet's seccomp folder.")
    ] = None
    runtime_default_profile: Annotated[
        bool | None, describe("Whether the container runtime's own profile is used.")
    ] = None


class VirtualMachineInstanceProfile(ApiStruct, kw_only=True):
    """The seccomp profile of launcher pods."""

    custom_profile: CustomProfile = CustomProfile()


class SeccompConfiguration(ApiStruct, kw_only=True):
    """The seccomp profile of guests' pods."""

    virtual_machine_instance_profile: VirtualMachineInstanceProfile = VirtualMachineInstanceProfile()


class SMBiosConfiguration(ApiStruct, kw_only=True):
    """What the firmware tables (SMBIOS) tell guests about the system."""

    family: Annotated[str | None, describe("Family of the product; KubeVirt by default.")] = None
    manufacturer: Annotated[str | None, describe("Manufacturer; KubeVirt by default.")] = None
    product: Annotated[str | None, describe("Name of the product; None by default.")] = None
    sku: Annotated[str | None, describe("Stock keeping unit; not shown by default.")] = None
    version: Annotated[str | None, describe("Version of the product; not shown by default.")] = None


class SupportContainerResources(ApiStruct, kw_only=True):
    """Resources of one kind of helper container."""

    resources: Annotated[
        ResourceRequirementsWithoutClaims, describe("CPU and memory, in place of the defaults of that kind.")
    ]
    type: Annotated[
        str,
        describe(
            "Kind: container-disk, hotplug-disk, virtiofs, sidecar or guest-console-log. Others have"
            " no effect."
        ),
    ]


class DisableFreePageReporting(ApiStruct, kw_only=True):
    """Present: guests' memory balloons do not give free pages back to the node."""


class DisableSerialConsoleLog(ApiStruct, kw_only=True):
    """Present: what guests write to serial consoles is not logged."""


class VirtualMachineOptions(ApiStruct, kw_only=True):
    """Options of every guest."""

    disable_free_page_reporting: Annotated[
        DisableFreePageReporting | None,
        describe("Present: guests do not give free memory back to their node."),
    ] = None
    disable_serial_console_log: Annotated[
        DisableSerialConsoleLog | None,
        describe("Present: what guests write to serial consoles is not logged."),
    ] = None
