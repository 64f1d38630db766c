"""The paths and intervals of virt-handler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from virtplane.api import paths, ports


@dataclass(frozen=True)
class HandlerSettings:
    """Paths as virt-handler's own container sees them; intervals in seconds."""

    node_name: str
    pods_directory: Path = Path(paths.KUBELET_ROOT, "pods")
    kubelet_root: Path = Path(paths.KUBELET_ROOT)
    share_directory: Path = Path(paths.SHARE_DIR)
    certificate_directory: Path = Path(paths.HANDLER_CERTIFICATES)
    capabilities_cache: Path = Path(paths.SHARE_DIR, "libvirt-cache")
    """The node's warm copy of libvirt's QEMU capabilities, shared with every launcher."""
    thaw_directory: Path = Path(paths.SHARE_DIR, "thaws")
    """When freezes of guests end by themselves (see ``thaws``)."""
    console_port: int = ports.HANDLER


@dataclass(frozen=True)
class PodPaths:
    """The directories of one launcher pod on the node."""

    pod_uid: str
    root: Path

    def empty_dir(self, name: str) -> Path:
        """An emptyDir volume of the pod."""
        return self.root / "volumes/kubernetes.io~empty-dir" / name

    @property
    def control_socket(self) -> Path:
        """The launcher's control socket."""
        return self.empty_dir("sockets") / "launcher-sock"

    @property
    def libvirt_runtime(self) -> Path:
        """The launcher's ``/var/run/libvirt``."""
        return self.empty_dir("libvirt-runtime")

    @property
    def libvirt_socket(self) -> Path:
        """The libvirt daemon's socket."""
        return self.libvirt_runtime / "libvirt-sock"

    @property
    def private(self) -> Path:
        """The launcher's ``/var/run/kubevirt-private``."""
        return self.empty_dir("private")

    @property
    def ephemeral(self) -> Path:
        """The launcher's ``/var/run/kubevirt-ephemeral-disks``."""
        return self.empty_dir("ephemeral-disks")

    @property
    def empty_disks(self) -> Path:
        """The launcher's ``/var/run/libvirt/empty-disks``; only pods with empty disks have it."""
        return self.empty_dir("empty-disks")

    @property
    def container_disks(self) -> Path:
        """The launcher's ``/var/run/kubevirt/container-disks``."""
        return self.empty_dir("container-disks")

    @property
    def hotplug_disks(self) -> Path:
        """The launcher's ``/var/run/kubevirt/hotplug-disks``; pods with ``disableHotplug`` lack it."""
        return self.empty_dir("hotplug-disks")


def pod_paths(settings: HandlerSettings, pod_uid: str) -> PodPaths:
    """The folders of the pod with that UID."""
    return PodPaths(pod_uid, settings.pods_directory / pod_uid)
