"""Collects the usage of the node and its pods when somebody asks."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kindling.node.pods import identity, resources
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kindling.node.stats import disk, machine
from kindling.node.stats.cgroups import CgroupReader
from kindling.node.stats.disk import DiskUsage, FileSystem
from kindling.node.stats.usage import ContainerUsage, NodeUsage, PodUsage, Reading, VolumeUsage
from kubecore.json import JsonObject, get_list, get_object, get_str

_log = logging.getLogger(__name__)

VolumeStats = Callable[[JsonObject], Awaitable[Sequence[VolumeUsage]]]
"""The usage of a pod's volumes of one kind."""

_SHORTEST_SECONDS = 1.0
"""A rate over less than this says nothing."""
_DISK_SECONDS = 60.0
"""How long a measured volume is not measured again: du(1) reads all of it."""
_UNMEASURED_SECONDS = 600.0
"""The same for one that took too long, so that others have their turn."""
_MEASURED_TOGETHER = 4
"""Pods whose volumes are measured at a time."""
_RENDERED = {
    "configMap": "configmap",
    "secret": "secret",
    "downwardAPI": "downward-api",
    "projected": "projected",
}


@dataclass(frozen=True, slots=True)
class _Sample:
    moment: float
    cpu_nanoseconds: int
    rate: int | None


class Rates:
    """The use of processors between two readings of each cgroup."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: dict[str, _Sample] = {}

    def update(self, key: str, cpu_nanoseconds: int) -> int | None:
        """Nanocores since the last reading; None at the first one."""
        now, last = self._clock(), self._samples.get(key)
        if last is not None and now - last.moment < _SHORTEST_SECONDS:
            return last.rate
        rate = None
        if last is not None and cpu_nanoseconds >= last.cpu_nanoseconds:
            rate = int((cpu_nanoseconds - last.cpu_nanoseconds) / (now - last.moment))
        self._samples[key] = _Sample(now, cpu_nanoseconds, rate)
        return rate

    def retain(self, keys: set[str]) -> None:
        """Forget all others."""
        self._samples = {key: sample for key, sample in self._samples.items() if key in keys}


@dataclass
class StatisticsSources:
    """Where statistics come from. `volume_stats` measures volumes of further kinds."""

    node: str
    runtime: Containerd
    pods: Callable[[], Sequence[JsonObject]]
    runtime_status: Callable[[str], PodRuntimeStatus]
    cgroup_root: str
    volume_stats: Sequence[VolumeStats] = ()


class Statistics:
    """The statistics of one node."""

    def __init__(self, sources: StatisticsSources, reader: CgroupReader | None = None) -> None:
        self._sources = sources
        self._reader = reader or CgroupReader()
        self._rates = Rates()
        self._measured: dict[str, tuple[float, Sequence[VolumeUsage]]] = {}
        self._lock = asyncio.Lock()

    async def collect(
        self,
        *,
        with_disk: bool,
        disk_seconds: float = _DISK_SECONDS,
        disk_of: Callable[[JsonObject], bool] | None = None,
    ) -> NodeUsage:
        """Everything now; disks only if wanted, and for pods that `disk_of` selects (default: all).

        Volumes measured less than `disk_seconds` ago are not measured again.
        """
        found = {get_str(pod, "metadata", "uid"): pod for pod in self._sources.pods()}
        measured = {uid for uid, pod in found.items() if with_disk and (disk_of is None or disk_of(pod))}
        async with self._lock:
            usage = await self._read_all(found, measured)
        if not with_disk:
            return usage
        # Several at a time, and nobody waits for them who wants no disks: du may take long.
        limit = asyncio.Semaphore(_MEASURED_TOGETHER)

        async def with_volumes(pod: PodUsage) -> PodUsage:
            if pod.uid not in measured:
                return pod
            async with limit:
                return replace(pod, volumes=await self._volumes(found[pod.uid], disk_seconds))

        pods = await asyncio.gather(*(with_volumes(pod) for pod in usage.pods))
        return await self._with_file_systems(replace(usage, pods=pods))

    async def machine(self) -> NodeUsage:
        """The node alone, with the file systems: what decides on evictions, at little cost."""
        usage = machine.machine_usage()
        every_pod = self._reader.usage(f"{self._sources.cgroup_root}/kubepods")
        return await self._with_file_systems(
            NodeUsage(self._sources.node, time.time(), usage, None, every_pod=every_pod)
        )

    async def _read_all(self, found: Mapping[str, JsonObject], measured: Collection[str]) -> NodeUsage:
        """The usage of the node and its pods, with sizes of the writable layers of those `measured`."""
        layers = await self._layers() if measured else {}
        usage = machine.machine_usage()
        seen = {"node"}

        def read() -> list[PodUsage]:
            every = (self._pod(pod, layers if uid in measured else None, seen) for uid, pod in found.items())
            return [each for each in every if each is not None]

        # Hundreds of small files.
        pods = await asyncio.to_thread(read)
        self._rates.retain(seen)
        self._measured = {uid: kept for uid, kept in self._measured.items() if uid in found}
        return NodeUsage(
            node=self._sources.node,
            moment=time.time(),
            machine=usage,
            nanocores=self._rates.update("node", usage.cpu_nanoseconds),
            pods=pods,
            interfaces=machine.interfaces(),
            default_interface=machine.default_interface(),
        )

    def _pod(
        self, pod: JsonObject, layers: Mapping[str, DiskUsage] | None, seen: set[str]
    ) -> PodUsage | None:
        uid = get_str(pod, "metadata", "uid")
        observed = self._sources.runtime_status(uid)
        sandbox = observed.sandbox
        if sandbox is None or not sandbox.ready:
            return None
        parent = resources.cgroup_parent(self._sources.cgroup_root, pod)
        running = [item for item in observed.all_containers() if item.state is ContainerState.RUNNING]
        containers = []
        processes = 0
        for item in running:
            cgroup = f"{parent}/{item.id}"
            processes += self._reader.processes(cgroup)
            containers.append(self._container(pod, item, self._read(cgroup, seen), layers))
        holders = self._reader.pids(f"{parent}/{sandbox.id}")
        return PodUsage(
            namespace=get_str(pod, "metadata", "namespace"),
            name=get_str(pod, "metadata", "name"),
            uid=uid,
            started=get_str(pod, "status", "startTime") or get_str(pod, "metadata", "creationTimestamp"),
            reading=self._read(parent, seen),
            containers=containers,
            processes=processes + len(holders),
            interfaces=machine.interfaces(holders[0]) if holders else (),
        )

    def _read(self, cgroup: str, seen: set[str]) -> Reading | None:
        usage = self._reader.usage(cgroup)
        if usage is None:
            return None
        seen.add(cgroup)
        return Reading(usage, self._rates.update(cgroup, usage.cpu_nanoseconds))

    def _container(
        self,
        pod: JsonObject,
        item: Container,
        reading: Reading | None,
        layers: Mapping[str, DiskUsage] | None,
    ) -> ContainerUsage:
        logs = None if layers is None else _log_usage(identity.log_directory(pod) / item.name)
        rootfs = None if layers is None else layers.get(item.id, DiskUsage())
        return ContainerUsage(item.name, item.started_at, reading, rootfs, logs)

    async def _layers(self) -> Mapping[str, DiskUsage]:
        """The writable layers, by container."""
        try:
            found = await self._sources.runtime.container_stats()
        except RuntimeFailure as error:
            _log.warning("the container runtime tells no sizes of containers: %s", error)
            return {}
        return {
            get_str(item, "attributes", "id"): DiskUsage(
                _value(item, "writable_layer", "used_bytes"), _value(item, "writable_layer", "inodes_used")
            )
            for item in found
        }

    async def _volumes(self, pod: JsonObject, seconds: float) -> Sequence[VolumeUsage]:
        uid, now = get_str(pod, "metadata", "uid"), time.monotonic()
        moment, known = self._measured.get(uid, (-seconds, ()))
        is_measured = all(volume.is_measured for volume in known)
        if now - moment < (seconds if is_measured else max(seconds, _UNMEASURED_SECONDS)):
            return known
        found = await own_volumes(pod)
        for others in self._sources.volume_stats:
            found += await others(pod)
        self._measured[uid] = (now, found)
        return found

    async def _with_file_systems(self, usage: NodeUsage) -> NodeUsage:
        node_disk = disk.file_system(identity.ROOT)
        image_disk, images = node_disk, DiskUsage()
        try:
            place, used, inodes = await self._sources.runtime.image_file_system()
            images = DiskUsage(used, inodes)
            image_disk = await asyncio.to_thread(disk.file_system, place)
        except (RuntimeFailure, OSError) as error:
            _log.warning("the file system of images is not known, taking the node's: %s", error)
        taken = DiskUsage(node_disk.used, node_disk.inodes - node_disk.inodes_free)
        return replace(usage, node_disk=node_disk, node_disk_used=taken, image_disk=image_disk, images=images)


async def own_volumes(pod: JsonObject) -> list[VolumeUsage]:
    """The volumes of a pod that the agent makes itself: empty directories, rendered files."""
    uid = get_str(pod, "metadata", "uid")
    in_memory: dict[str, Path] = {}
    on_disk: dict[str, Path] = {}
    for volume in get_list(pod, "spec", "volumes"):
        name = get_str(volume, "name")
        if "emptyDir" in volume:
            medium = get_str(volume, "emptyDir", "medium")
            (in_memory if medium else on_disk)[name] = identity.volume_directory(uid, "empty-dir", name)
        for kind, plugin in _RENDERED.items():
            if kind in volume:
                place = identity.volume_directory(uid, plugin, name)
                (on_disk if plugin == "configmap" else in_memory)[name] = place
    measured = await disk.measure([path for path in on_disk.values() if path.is_dir()])
    found = [
        VolumeUsage(name, measured[path], _file_system(path), is_local=True)
        if path in measured
        else VolumeUsage(name, DiskUsage(), is_local=True, is_measured=False)
        for name, path in on_disk.items()
        if path in measured or path.is_dir()
    ]
    for name, path in in_memory.items():
        system = _file_system(path)
        if system is not None:
            used = DiskUsage(system.used, system.inodes - system.inodes_free)
            found.append(VolumeUsage(name, used, system))
    return found


def _file_system(path: Path) -> FileSystem | None:
    try:
        return disk.file_system(path)
    except OSError:
        return None


def _log_usage(directory: Path) -> DiskUsage:
    """The logs of one container, rotated ones included."""
    used = inodes = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                inodes += 1
    except OSError:
        return DiskUsage(used, inodes)
    return DiskUsage(used, inodes)


def _value(item: JsonObject, *path: str) -> int:
    value = get_object(item, *path).get("value")
    return value if isinstance(value, int) else 0
