"""The usage of the node and its pods at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kindling.node.stats.cgroups import CgroupUsage
from kindling.node.stats.disk import DiskUsage, FileSystem
from kindling.node.stats.machine import Interface, MachineUsage


@dataclass(frozen=True, slots=True)
class Reading:
    """A cgroup's usage; `nanocores` is the recent use of processors, None while it is not known."""

    usage: CgroupUsage
    nanocores: int | None = None


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    """A volume of a pod; `claim` names the claim (namespace, name), `is_local` the node's own disk.

    Without `is_measured`, its use is not known: counting its files took too long.
    """

    name: str
    disk: DiskUsage
    file_system: FileSystem | None = None
    claim: tuple[str, str] | None = None
    is_local: bool = False
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """A running container. `started` is in nanoseconds since the epoch; disk is None unless measured."""

    name: str
    started: int
    reading: Reading | None
    rootfs: DiskUsage | None = None
    logs: DiskUsage | None = None


@dataclass(frozen=True, slots=True)
class PodUsage:
    """A pod with a running sandbox; `started` is an RFC 3339 time."""

    namespace: str
    name: str
    uid: str
    started: str
    reading: Reading | None
    containers: Sequence[ContainerUsage] = ()
    processes: int = 0
    interfaces: Sequence[Interface] = ()
    volumes: Sequence[VolumeUsage] = ()

    @property
    def is_measured(self) -> bool:
        """Whether the use of all volumes is known."""
        return all(volume.is_measured for volume in self.volumes)

    @property
    def local_storage(self) -> DiskUsage:
        """What the pod uses of the node's disk: writable layers, logs, local volumes."""
        parts = [volume.disk for volume in self.volumes if volume.is_local]
        for container in self.containers:
            parts += [part for part in (container.rootfs, container.logs) if part is not None]
        return DiskUsage(sum(part.used for part in parts), sum(part.inodes for part in parts))


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The node and its pods. File systems are None unless they were looked at."""

    node: str
    moment: float
    """Seconds since the epoch."""
    machine: MachineUsage
    nanocores: int | None
    pods: Sequence[PodUsage] = ()
    interfaces: Sequence[Interface] = ()
    default_interface: str = "eth0"
    node_disk: FileSystem | None = None
    node_disk_used: DiskUsage = field(default_factory=DiskUsage)
    image_disk: FileSystem | None = None
    images: DiskUsage = field(default_factory=DiskUsage)
    every_pod: CgroupUsage | None = None
    """Of all pods together, where it was read."""
