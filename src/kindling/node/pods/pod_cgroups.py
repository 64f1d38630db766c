"""Keeps the cgroups of pods and QoS classes, of one node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kindling.node.options import NodeOptions
from kindling.node.pods import resources
from kindling.node.pods.cgroup_limits import CgroupLimits, CgroupTree, burstable_shares, looser, pod_limits
from kubecore.json import JsonObject, get_str

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What all pods of the node may have: thousandths of a processor, and memory in bytes (None: all)."""

    cpu: int
    memory: int | None


class PodCgroups:
    """Makes the cgroup of each pod before its sandbox, which the runtime then puts below it.

    `admitted` lists the pods of the node.
    """

    def __init__(
        self,
        root: str,
        options: NodeOptions,
        share: NodeShare,
        admitted: Callable[[], Sequence[JsonObject]],
        tree: CgroupTree | None = None,
    ) -> None:
        self._root = root
        self._options = options
        self._share = share
        self._admitted = admitted
        self._tree = tree or CgroupTree()
        self._burstable = 0

    def start(self) -> None:
        """Make the cgroups of all pods and of the QoS classes. Raises OSError."""
        every = CgroupLimits(resources.cpu_shares(self._share.cpu), memory=self._share.memory)
        self._tree.ensure(f"{self._root}/kubepods", every)
        lowest = resources.cpu_shares(0)
        for quality in ("burstable", "besteffort"):
            self._tree.ensure(f"{self._root}/kubepods/{quality}", CgroupLimits(lowest))

    async def ensure(self, pod: JsonObject, *, with_quota: bool = True) -> None:
        """Make a pod's cgroup unless it is there, and set its limits. Raises OSError."""
        limits = pod_limits(pod, pids=self._options.pod_max_pids, with_quota=with_quota)
        await asyncio.to_thread(self._tree.ensure, resources.cgroup_parent(self._root, pod), limits)
        uid = get_str(pod, "metadata", "uid")
        others = [each for each in self._admitted() if get_str(each, "metadata", "uid") != uid]
        await self._share_out([*others, pod])

    async def loosen(self, before: JsonObject, after: JsonObject) -> None:
        """Let a pod's containers change from what they have to what they are to have. Raises OSError."""
        pids = self._options.pod_max_pids
        limits = looser(pod_limits(before, pids=pids), pod_limits(after, pids=pids))
        await asyncio.to_thread(self._tree.ensure, resources.cgroup_parent(self._root, after), limits)

    async def refresh(self) -> None:
        """Let Burstable pods have as many shares as they request now. Raises OSError."""
        await self._share_out(self._admitted())

    async def _share_out(self, pods: Sequence[JsonObject]) -> None:
        shares = burstable_shares(pods)
        if shares != self._burstable:
            cgroup = f"{self._root}/kubepods/burstable"
            await asyncio.to_thread(self._tree.ensure, cgroup, CgroupLimits(shares))
            self._burstable = shares


def huge_pages(folder: Path = Path("/sys/kernel/mm/hugepages")) -> dict[int, int]:
    """The machine's huge pages: how many bytes of each size (in bytes)."""
    found = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        size = int(entry.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        found[size] = int((entry / "nr_hugepages").read_text()) * size
    return found
