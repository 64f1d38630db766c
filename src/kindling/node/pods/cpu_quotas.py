"""Holds containers to their limits of processors, from the moment on that they have started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kindling.node.pods import identity, resources
from kindling.node.pods.cgroup_limits import CgroupTree
from kindling.node.pods.container import find_container
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import ContainerState
from kubecore.json import JsonObject, get_str

_log = logging.getLogger(__name__)


class CpuQuotas:
    """Sets the quota of each container after its start.

    The runtime's own first process in a container uses 20 ms of a processor before the container's program
    runs. Inside a quota of 10m, which is 1 ms of each 100, that takes seconds.

    Nothing is kept on disk: an agent that is restarted sets the quota of each running container once more,
    so that none is without it when the agent ended between its start and its quota.
    """

    def __init__(
        self,
        root: str,
        cpus: Callable[[JsonObject, str], tuple[str, bool]],
        tree: CgroupTree | None = None,
    ) -> None:
        """`root` is the cgroup of the node; `cpus` tells whether a container has processors of its own, of
        which it may use all.
        """
        self._root = root
        self._cpus = cpus
        self._tree = tree or CgroupTree()
        self._held: dict[str, set[str]] = {}

    async def hold(self, pod: JsonObject, container: JsonObject, container_id: str) -> None:
        """Set the quota of a container that runs, once. Where that fails, the next call tries again."""
        held = self._held.setdefault(get_str(pod, "metadata", "uid"), set())
        if container_id in held:
            return
        quota = resources.container_quota(container)
        name = get_str(container, "name")
        if quota is not None and not self._cpus(pod, name)[1]:
            cgroup = f"{resources.cgroup_parent(self._root, pod)}/{container_id}"
            try:
                await asyncio.to_thread(self._tree.set_quota, cgroup, quota)
            except OSError as error:
                shown = identity.display_name(pod)
                text = "limiting processors of container %s of pod %s failed, trying again: %s"
                _log.warning(text, name, shown, error)
                return
        held.add(container_id)

    async def hold_running(self, pod: JsonObject, observed: PodRuntimeStatus) -> None:
        """Set the quotas of the containers that run and have none yet; forget those that are gone."""
        present = {each.id for each in observed.all_containers()}
        self._held.get(get_str(pod, "metadata", "uid"), set()).intersection_update(present)
        for name in observed.containers:
            current = observed.current(name)
            if current is not None and current.state is ContainerState.RUNNING:
                await self.hold(pod, find_container(pod, name), current.id)

    def held(self, uid: str) -> frozenset[str]:
        """The ids of a pod's containers that have what they are due."""
        return frozenset(self._held.get(uid, ()))

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._held.pop(uid, None)
