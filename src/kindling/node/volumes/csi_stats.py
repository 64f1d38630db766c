"""How full CSI volumes are, and how they are: what NodeGetVolumeStats says, asked once a minute.

Readers get the last answers. A driver that hangs costs its own volumes their statistics, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from kindling.node.volumes import csi_records, csi_source
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi_growth import RecordEvent
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_registry import CsiRegistry, Driver
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PODS
from kubecore.wire import Message

_log = logging.getLogger(__name__)

_PERIOD_SECONDS = 60.0
_CALL_SECONDS = 20.0
_CALLS_PER_DRIVER = 4
_MAX_MESSAGE = 1024
_BYTES, _INODES = 1, 2
"""Values of VolumeUsage.Unit."""
_FIELDS = {
    _BYTES: {"available": "availableBytes", "total": "capacityBytes", "used": "usedBytes"},
    _INODES: {"available": "inodesFree", "total": "inodes", "used": "inodesUsed"},
}


class CsiStats:
    """The last known statistics of the volumes of this node's pods."""

    def __init__(
        self,
        registry: CsiRegistry,
        pods: Callable[[], Sequence[JsonObject]],
        record_event: RecordEvent,
    ) -> None:
        self._registry = registry
        self._pods = pods
        self._record_event = record_event
        self._known: dict[tuple[str, str], JsonObject] = {}
        """VolumeStats by pod uid and volume."""
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of_pods(self) -> dict[str, list[JsonObject]]:
        """The VolumeStats of /stats/summary, by pod uid."""
        found: dict[str, list[JsonObject]] = {}
        for (uid, _), stats in sorted(self._known.items()):
            found.setdefault(uid, []).append(stats)
        return found

    async def run(self) -> None:
        """Ask drivers until cancelled."""
        try:
            while True:
                self.ask()
                await asyncio.sleep(_PERIOD_SECONDS)
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def ask(self) -> None:
        """Begin to ask about every volume that nobody asks about already; forget those that are gone."""
        present = set()
        for pod in self._pods():
            for file in csi_records.files_of_pod(meta.uid(pod)):
                try:
                    record = csi_records.read(file)
                except OSError:
                    continue
                if not record.published:
                    continue
                key = (record.pod_uid, record.volume)
                present.add(key)
                driver = self._registry.get(record.driver)
                if driver is None or csi_source.STATS not in driver.capabilities or key in self._busy:
                    continue
                task = asyncio.create_task(
                    self._ask_one(pod, record, driver), name=f"csi-stats-{record.volume}"
                )
                self._busy[key] = task
                task.add_done_callback(partial(self._answered, key))
        for key in set(self._known) - present:
            del self._known[key]

    def _answered(self, key: tuple[str, str], _task: asyncio.Task[None]) -> None:
        del self._busy[key]

    async def settle(self) -> None:
        """Wait until everything that was begun is answered."""
        await asyncio.gather(*self._busy.values())

    async def _ask_one(self, pod: JsonObject, record: Record, driver: Driver) -> None:
        key = (record.pod_uid, record.volume)
        values: dict[str, Any] = {"volume_id": record.handle, "volume_path": str(record.target)}
        if record.staged:
            values["staging_target_path"] = str(record.staging)
        turns = self._turns.setdefault(record.driver, asyncio.Semaphore(_CALLS_PER_DRIVER))
        try:
            async with turns:
                answer = await driver.call("NodeGetVolumeStats", values, _CALL_SECONDS)
        except ContentProblem as problem:
            self._known.pop(key, None)
            _log.info("volume %s has no statistics: %s", record.volume, problem)
            return
        if not record.file.exists():
            return
        self._known[key] = _stats(record, answer, has_condition=csi_source.CONDITION in driver.capabilities)
        if csi_source.CONDITION in driver.capabilities and answer.volume_condition.abnormal:
            text = f"Volume {record.shown_as}: {answer.volume_condition.message[:_MAX_MESSAGE]}"
            subject = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pod}
            self._record_event(subject, "Warning", "VolumeConditionAbnormal", text)


def _stats(record: Record, answer: Message, *, has_condition: bool) -> JsonObject:
    stats: JsonObject = {"time": now_rfc3339(), "name": record.shown_as or record.volume}
    for usage in answer.usage:
        for field, name in _FIELDS.get(usage.unit, {}).items():
            stats[name] = max(0, getattr(usage, field))
    if record.claim is not None:
        stats["pvcRef"] = {"name": record.claim[1], "namespace": record.claim[0]}
    if has_condition:
        stats["volumeHealthStats"] = {"abnormal": bool(answer.volume_condition.abnormal)}
    return stats
