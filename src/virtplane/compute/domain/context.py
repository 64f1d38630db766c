"""The inputs of rendering a domain besides the VirtualMachineInstance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virtplane.api import paths

PRIVATE_DIRECTORY = paths.PRIVATE_DIR
EPHEMERAL_DIRECTORY = paths.EPHEMERAL_DISK_DIR


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The sizes in bytes of a disk's blocks, as its guest sees them."""

    logical: int
    physical: int
    discard: int | None = None
    """The granularity of discards; None leaves it to QEMU."""


@dataclass(frozen=True, slots=True)
class DiskSource:
    """The path of a disk's data, as the launcher's container sees it."""

    path: str
    format: str = "raw"
    block: bool = False
    """True for a block device, False for a file."""
    backing_path: str = ""
    backing_format: str = "raw"
    backing_block: bool = False
    """True where what backs it is a block device: QEMU opens none as a file."""
    direct_io: bool = False
    """True where O_DIRECT works on the file and on what backs it."""
    preallocated: bool = False
    """True for a claim whose blocks stay allocated when the guest discards them."""
    allocated: bool = False
    """True for a file that has all its blocks."""
    read_only: bool = False
    """True for what the guest may not write to, whatever its disk says."""
    block_sizes: BlockSizes | None = None
    """Those of the storage; None where they are not known."""


@dataclass(frozen=True, slots=True)
class InterfaceLink:
    """The host's side of a guest's interface."""

    tap: str
    """Empty for an interface behind passt."""
    mac: str
    mtu: int = 1500
    queues: int = 1
    socket: str = ""
    """Where QEMU listens for passt, in the launcher's container."""


@dataclass(frozen=True, slots=True, order=True)
class HostCpu:
    """A CPU of the node, with its place there."""

    number: int
    node: int = 0
    """The NUMA node."""
    core: int = 0
    """The lowest number among the CPUs that are threads of the same core."""


@dataclass(frozen=True, slots=True)
class FirmwareImage:
    """A build of OVMF: paths in the launcher's container."""

    code: str
    variables: str
    """The variables of a new machine. libvirt copies them where the machine has none of its own."""


@dataclass(frozen=True, slots=True)
class BootFiles:
    """What a guest boots with that is not on its disks: paths in the launcher's container, empty for none."""

    uefi: FirmwareImage | None = None
    kernel: str = ""
    initrd: str = ""
    slic: str = ""
    """An ACPI table, as is the next."""
    msdm: str = ""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device that the pod has through a claim."""

    prefix: str
    """Of which kind it is, as in `hostdevices`."""
    name: str
    """A PCI address, or the UUID of a mediated device."""


@dataclass(frozen=True, slots=True)
class DomainContext:
    """Facts about the node, and results of the preparation before the domain is defined."""

    emulation: bool
    """True runs the guest with TCG: no working KVM on this node."""
    disks: Mapping[str, DiskSource] = field(default_factory=dict)
    """By volume name."""
    interfaces: Mapping[str, InterfaceLink] = field(default_factory=dict)
    """By interface name; interfaces without a link are not part of the domain."""
    smbios: Mapping[str, str] = field(
        default_factory=lambda: {"manufacturer": "KubeVirt", "product": "None", "family": "KubeVirt"}
    )
    boot: BootFiles = BootFiles()
    serial_console_log: bool = True
    free_page_reporting: bool = True
    host_cpu_usable: bool = True
    """False where the node cannot offer its own CPU model (``host-model``), as under emulation."""
    balloon_seconds: int = 10
    """How often the balloon reports statistics; 0 never."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The devices of the node that the pod was given: those of each resource, by environment variable."""
    claimed: Mapping[tuple[str, str], ClaimedDevice] = field(default_factory=dict)
    """The devices that the pod has through claims, by claim and request."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """The PCI addresses of the pod's functions of network cards, by interface name."""
    cpus: tuple[HostCpu, ...] = ()
    """Those that the pod of a guest with dedicated CPUs has for itself."""
