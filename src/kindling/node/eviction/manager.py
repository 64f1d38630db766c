"""Looks regularly whether the node runs out of something, and evicts pods when it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kindling.node.eviction import limits, ranking
from kindling.node.eviction.thresholds import (
    DISK_SIGNALS,
    SIGNALS,
    Observation,
    Pressure,
    Threshold,
    met,
    observe,
    with_allocatable,
)
from kindling.node.options import NodeOptions
from kindling.node.pods.ending import EVICTED, Ending
from kindling.node.runtime.interface import RuntimeFailure
from kindling.node.stats.collector import Statistics
from kindling.node.stats.usage import PodUsage
from kubecore.json import JsonObject, get_str

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
_GRACE_SECONDS = 1
"""What an evicted pod gets: the node cannot wait."""
_CLEANUP_SECONDS = 30
"""How long an eviction may take effect before another pod is evicted."""


@dataclass
class EvictionServices:
    """What the manager looks at and acts through.

    `pods` lists the admitted pods. `evict` ends a pod (False: it is ending anyway), `reclaim` frees disk
    without ending pods, `record_node_event` tells a Warning about the node (reason, message), `changed` has
    the node's status reported.
    """

    statistics: Statistics
    pods: Callable[[], Sequence[JsonObject]]
    evict: Callable[[str, Ending], bool]
    reclaim: Callable[[], Awaitable[None]]
    record_event: Callable[[JsonObject, str, str, str, str], None]
    record_node_event: Callable[[str, str], None]
    changed: Callable[[], None]


class EvictionManager:
    """Evicts pods of one node, one at a time for pressure, all that exceed their own limits."""

    def __init__(self, options: NodeOptions, services: EvictionServices) -> None:
        self._thresholds = with_allocatable(options.eviction_hard)
        self._services = services
        self._pressure = Pressure(options.pressure_transition_seconds)
        self._told: Sequence[str] = []

    def conditions(self) -> list[str]:
        """The node's conditions of pressure that are true."""
        return self._pressure.conditions(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Look until cancelled; a failure is logged and the work is tried again.

        Measuring disks may take long, and must not keep the node from being relieved.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self.relieve), name="pressure")
            group.create_task(self._repeat(self.enforce_limits), name="disk-limits")

    async def _repeat(self, look: Callable[[], Awaitable[list[str]]]) -> None:
        while True:
            try:
                evicted = await look()
                if evicted:
                    await self._until_gone(evicted)
                    continue
            except (RuntimeFailure, OSError) as error:
                _log.warning(
                    "looking for pods to evict failed, trying again in %g s: %s", PERIOD_SECONDS, error
                )
            except Exception:
                # What one pod shows of itself must not end the agent of all pods.
                _log.exception("looking for pods to evict failed, trying again in %g s", PERIOD_SECONDS)
            await asyncio.sleep(PERIOD_SECONDS)

    async def relieve(self) -> list[str]:
        """Look for pressure once, and do something about it; returns the uid of a pod that was evicted."""
        observations = observe(await self._services.statistics.machine())
        crossed = met(self._thresholds, observations)
        now = asyncio.get_running_loop().time()
        self._pressure.update(crossed, now)
        conditions = self._pressure.conditions(now)
        if conditions != self._told:
            self._told = conditions
            self._services.changed()
        return await self._reclaim(crossed, observations) if crossed else []

    async def enforce_limits(self) -> list[str]:
        """Evict the pods that use more disk than they may; returns their uids."""
        pods = {
            get_str(pod, "metadata", "uid"): pod for pod in self._services.pods() if limits.is_limited(pod)
        }
        if not pods:
            return []
        usage = await self._services.statistics.collect(
            with_disk=True, disk_of=lambda pod: get_str(pod, "metadata", "uid") in pods
        )
        evicted = []
        for each in usage.pods:
            pod = pods.get(each.uid)
            text = limits.excess(pod, each) if pod is not None else ""
            if pod is not None and text and self._evict(pod, text, ""):
                evicted.append(each.uid)
        return evicted

    async def _reclaim(
        self, crossed: Sequence[Threshold], observations: Mapping[str, Observation]
    ) -> list[str]:
        """Free what runs out: images and containers that nobody uses, or else a pod."""
        first = crossed[0]
        resource = SIGNALS[first.signal].resource
        self._services.record_node_event("EvictionThresholdMet", f"Attempting to reclaim {resource}")
        if first.signal in DISK_SIGNALS:
            await self._services.reclaim()
            observations = observe(await self._services.statistics.machine())
            crossed = met(self._thresholds, observations)
            if not crossed:
                return []
        usage = await self._services.statistics.collect(with_disk=first.signal in DISK_SIGNALS)
        usages: Mapping[str, PodUsage] = {each.uid: each for each in usage.pods}
        for pod in ranking.ranked(resource, self._services.pods(), usages):
            uid = get_str(pod, "metadata", "uid")
            text = ranking.message(resource, pod, usages.get(uid), crossed, observations)
            if self._evict(pod, text, text):
                return [uid]
        text = "this node is low on %s and there is no pod to evict: free some of it on the machine"
        _log.warning(text, resource)
        return []

    def _evict(self, pod: JsonObject, text: str, disruption: str) -> bool:
        if ranking.is_critical(pod):
            return False
        ending = Ending(EVICTED, text, _GRACE_SECONDS, disruption)
        if not self._services.evict(get_str(pod, "metadata", "uid"), ending):
            return False
        self._services.record_event(pod, "Warning", EVICTED, text, "")
        return True

    async def _until_gone(self, uids: Sequence[str]) -> None:
        """Wait until evicted pods are gone, so that what they used counts no more."""
        for _ in range(_CLEANUP_SECONDS):
            if not {get_str(pod, "metadata", "uid") for pod in self._services.pods()} & set(uids):
                return
            await asyncio.sleep(1)
        text = "evicted pods (%s) are not gone after %d s, looking for more pods to evict"
        _log.warning(text, ", ".join(uids), _CLEANUP_SECONDS)
