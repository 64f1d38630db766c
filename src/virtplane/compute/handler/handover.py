"""What a launcher's container gets from its node: device nodes, processors, what is known of QEMU."""

from __future__ import annotations

import stat
from pathlib import Path

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import metrics
from virtplane.compute.domain.context import PRIVATE_DIRECTORY, HostCpu
from virtplane.compute.domain.sriov import sriov_interfaces
from virtplane.compute.handler.launchers import hostcpus
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.node import capabilities
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import HandlerSettings, PodPaths

_CAPABILITIES = "cache/libvirt"
_DEVICES = ("dev/net/tun", "dev/kvm", "dev/vhost-net", "dev/vhost-vsock", "dev/sev")
"""Below ``/``, on the node and in the container alike."""

_HOST_DEVICES = ("dev/vfio", *(f"dev/bus/usb/{bus:03}" for bus in range(1, 33)))
"""Folders of the nodes of devices that are passed through."""


def hand_over_devices(launcher: Process) -> None:
    """Change the owner of the container's device nodes from root to QEMU's user. Raises OSError."""
    with launcher.root() as root:
        for name in _DEVICES:
            own = Path("/", name)
            if own.exists() and root.mode(name):
                root.give(name, device=own.stat().st_rdev)
        root.make_folders(str(Path(PRIVATE_DIRECTORY, metrics.CHANNEL).parent))


def own_processors(vmi: VirtualMachineInstance, launcher: Process) -> tuple[HostCpu, ...]:
    """The CPUs to which a guest with dedicated ones is pinned; none for others."""
    return hostcpus.of_pod(launcher) if vmi.spec.domain.cpu.dedicated_cpu_placement else ()


def given_devices(vmi: VirtualMachineInstance, launcher: Process) -> dict[str, str]:
    """The devices of the node that the pod has, where the guest is to have any.

    What the launcher says of them is not checked: the kernel lets it use the device nodes of its pod alone,
    and those become its user's.
    """
    devices = vmi.spec.domain.devices
    if not devices.gpus and not devices.host_devices and not sriov_interfaces(vmi):
        return {}
    given = launcher.environment()
    with launcher.root() as root:
        for folder in _HOST_DEVICES:
            nodes = [f"{folder}/{name}" for name in root.names(folder)] if root.is_folder(folder) else []
            for node in nodes:
                own = Path("/", node)
                if stat.S_ISCHR(root.mode(node)) and own.is_char_device():
                    root.give(node, device=own.stat().st_rdev)
    return given


def share_capabilities(settings: HandlerSettings, paths: PodPaths) -> None:
    """Copy the node's QEMU capabilities to the launcher: otherwise libvirt probes QEMU, which takes seconds.

    Raises OSError.
    """
    warm = capabilities.location(settings.capabilities_cache)
    with Root(paths.libvirt_runtime) as root:
        if not warm.is_dir() or root.is_folder(_CAPABILITIES):
            return
        for path in warm.rglob("*"):
            if path.is_file():
                root.copy(path, f"{_CAPABILITIES}/{path.relative_to(warm)}")
