"""Guests whose launchers have another image than new ones: their number, and those that are evicted.

The method ``Evict`` of ``spec.workloadUpdateStrategy`` ends the launchers of such guests a few at a time; the
owner of a guest starts it again, with the new image. Guests that can be migrated are left to the method
``LiveMigrate`` where both are allowed (`migration.updates`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_int, get_object
from kubecore.objects import meta
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result, key_of
from kubecore.runtime.informer import EventType
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.durations import parse_duration
from virtplane.api.kubevirt_v1.kubevirt import KubeVirtWorkloadUpdateStrategy
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller import pods
from virtplane.compute.controller.migration import phases
from virtplane.compute.controller.migration.updates import is_rolled_out

logger = logging.getLogger(__name__)

OUTDATED = "outdatedVirtualMachineInstanceWorkloads"
"""The field of the KubeVirt object's status that only this module writes."""
DEFAULT_BATCH_SIZE = 10
DEFAULT_INTERVAL_SECONDS = 60.0
"""KubeVirt's numbers."""
_DELAY_SECONDS = 5.0
"""All instances are looked at for one change of any: not more often than this."""
_FINAL_PHASES = ("Succeeded", "Failed")


def outdated(vmis: Sequence[VirtualMachineInstance], launcher_image: str) -> list[VirtualMachineInstance]:
    """The instances whose guests run in launchers of another image, in the order of their names."""
    found = [
        vmi for vmi in vmis if vmi.status.phase not in _FINAL_PHASES and pods.is_outdated(vmi, launcher_image)
    ]
    return sorted(found, key=key_of)


def evictable(
    vmis: Sequence[VirtualMachineInstance], methods: Collection[str], migrating: Collection[Key]
) -> list[VirtualMachineInstance]:
    """Which of the outdated instances are to be evicted; `migrating` are on their way to another node."""
    if "Evict" not in methods:
        return []
    return [
        vmi
        for vmi in vmis
        if vmi.status.phase == "Running"
        and not vmi.metadata.is_being_deleted
        and key_of(vmi) not in migrating
        and not ("LiveMigrate" in methods and is_true(vmi.status.conditions, "LiveMigratable"))
    ]


def next_batch(
    waiting: Sequence[VirtualMachineInstance], size: int, last: Key
) -> list[VirtualMachineInstance]:
    """The next `size` of those that wait, after the `last` one that was tried.

    Guests whose eviction is refused every time must not keep others waiting.
    """
    later = [vmi for vmi in waiting if key_of(vmi) > last]
    earlier = [vmi for vmi in waiting if key_of(vmi) <= last]
    return [*later, *earlier][:size]


def batch_size(strategy: KubeVirtWorkloadUpdateStrategy) -> int:
    """How many guests are evicted at once."""
    wanted = strategy.batch_eviction_size
    return DEFAULT_BATCH_SIZE if wanted is None else max(0, wanted)


def interval_seconds(strategy: KubeVirtWorkloadUpdateStrategy) -> float:
    """How long it is between the evictions of two batches."""
    if strategy.batch_eviction_interval is None:
        return DEFAULT_INTERVAL_SECONDS
    return max(0.0, parse_duration(strategy.batch_eviction_interval).total_seconds())


class WorkloadUpdateController:
    """Has one key, the KubeVirt object's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next_batch = 0.0
        self._last_tried: Key = ("", "")
        self.controller = Controller("virt-controller-outdated", self._reconcile)
        self.controller.watch(cluster.kubevirts)
        self.controller.depend(cluster.vmis)
        self.controller.depend(cluster.migrations)
        self.controller.depend(cluster.pods)
        cluster.vmis.add_handler(self._observe)

    def _observe(
        self, event: EventType, old: VirtualMachineInstance | None, new: VirtualMachineInstance
    ) -> None:
        if event != "DELETED" and old is not None and _facts(old) == _facts(new):
            return
        for kubevirt in self._cluster.kubevirts.list():
            self.controller.enqueue_after(key_of(kubevirt), _DELAY_SECONDS)

    async def _reconcile(self, key: Key) -> Result:
        kubevirt = self._cluster.kubevirt()
        if kubevirt is None or key_of(kubevirt) != key or not is_rolled_out(kubevirt):
            return DONE
        found = outdated(self._cluster.vmis.list(), self._cluster.images.launcher)
        await self._report(kubevirt, len(found))
        strategy = self._cluster.settings().workload_update_strategy
        moving = {
            (each.metadata.namespace, each.spec.vmi_name or "")
            for each in self._cluster.migrations.list()
            if not phases.is_finished(each)
        }
        waiting = evictable(found, strategy.workload_update_methods, moving)
        if not waiting:
            return RequeueAfter(_DELAY_SECONDS) if moving and found else DONE
        now = asyncio.get_running_loop().time()
        if now >= self._next_batch:
            self._next_batch = now + interval_seconds(strategy)
            for vmi in next_batch(waiting, batch_size(strategy), self._last_tried):
                self._last_tried = key_of(vmi)
                await self._evict(vmi)
        return RequeueAfter(max(_DELAY_SECONDS, self._next_batch - now))

    async def _report(self, kubevirt: JsonObject, count: int) -> None:
        status = get_object(kubevirt, "status")
        if OUTDATED in status and get_int(status, OUTDATED) == count:
            return
        patch = {"status": {OUTDATED: count}}
        name, namespace = meta.name(kubevirt), meta.namespace(kubevirt)
        await self._cluster.client.patch(
            kinds.KUBEVIRTS, name, patch, namespace, type="merge", subresource="status"
        )

    async def _evict(self, vmi: VirtualMachineInstance) -> None:
        """Ask for the end of the guest's pod; a refusal is an event, and the next batch asks again."""
        pod = pods.current_pod(vmi, self._cluster.pods_of(vmi.metadata.uid))
        if pod is None or pods.is_down(pod):
            return
        name, namespace = meta.name(pod), meta.namespace(pod)
        eviction: JsonObject = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid(pod)}},
        }
        try:
            await self._cluster.client.create(
                resources.PODS, eviction, namespace, subresource="eviction", name=name
            )
        except StatusError as error:
            if is_not_found(error):
                return
            logger.warning("%s/%s is not evicted for its update: %s", namespace, name, error.message)
            text = f"Error deleting VMI during automated workload update: {error.message}"
            self._cluster.recorder.event(described(vmi), "Warning", "FailedEvict", text)
            return
        text = "Initiated eviction of VMI as part of automated workload update"
        self._cluster.recorder.event(described(vmi), "Normal", "SuccessfulEvict", text)


def _facts(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """What decides whether an instance counts and is evicted."""
    return (
        vmi.status.phase,
        vmi.status.launcher_container_image_version,
        vmi.metadata.is_being_deleted,
        is_true(vmi.status.conditions, "LiveMigratable"),
    )
