"""The driver's metrics: whether a pool shares its disk with the system, and how far it is promised away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from virtplane.storage.hostpath.pool import IMAGE, Pool

SHARED_WITH_OS = "kubevirt_hpp_pool_path_shared_with_os"
POOL_CAPACITY = "kubevirt_hpp_pool_capacity_bytes"
POOL_AVAILABLE = "kubevirt_hpp_pool_available_bytes"
POOL_PROVISIONED = "kubevirt_hpp_pool_provisioned_bytes"


class PoolMetrics:
    """Collects what is true when Prometheus asks."""

    def __init__(self, pools: Iterable[Pool], system: Path) -> None:
        """`system` is a folder on the system's disk: that of the driver's socket, which is a kubelet's."""
        self._pools = tuple(pools)
        self._system = system

    def register(self, registry: CollectorRegistry) -> None:
        """Add these metrics to a registry."""
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics' values now."""
        shared = GaugeMetricFamily(
            SHARED_WITH_OS,
            "HPP pool path sharing a filesystem with OS, fix to prevent HPP PVs from causing disk pressure",
        )
        shared.add_metric([], float(self.is_shared_with_system()))
        yield shared
        capacity = GaugeMetricFamily(POOL_CAPACITY, "Size of a pool's file system", labels=["storage_pool"])
        available = GaugeMetricFamily(POOL_AVAILABLE, "Free space of a pool", labels=["storage_pool"])
        provisioned = GaugeMetricFamily(
            POOL_PROVISIONED, "Sum of the sizes of a pool's image volumes", labels=["storage_pool"]
        )
        there = [pool for pool in self._pools if pool.is_there()]
        for pool in there:
            space = pool.space()
            capacity.add_metric([pool.name], space.f_blocks * space.f_frsize)
            available.add_metric([pool.name], space.f_bavail * space.f_frsize)
            sizes = (one.content.size for one in pool.list_volumes() if one.content.format == IMAGE)
            provisioned.add_metric([pool.name], sum(sizes))
        yield from (capacity, available, provisioned)

    def is_shared_with_system(self) -> bool:
        """Whether a pool, or its snapshots, are on the system's disk."""
        system = self._system.stat().st_dev
        there = [pool for pool in self._pools if pool.is_there()]
        folders = [pool.folder for pool in there]
        folders += [pool.snapshots for pool in there if pool.snapshots is not None]
        return any(folder.stat().st_dev == system for folder in folders)
