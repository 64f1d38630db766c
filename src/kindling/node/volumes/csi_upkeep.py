"""Looking after CSI volumes while pods use them: growing them, and publishing them again where drivers ask.

Volumes are looked at beside the pods' workers and each for itself: a driver that hangs delays no pod and no
volume of another driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from kindling.node.pods import identity
from kindling.node.volumes import csi_records, csi_source
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiVolumes
from kindling.node.volumes.csi_growth import RecordEvent
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_requests import CsiRequests
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUMES, PODS

_log = logging.getLogger(__name__)

_PERIOD_SECONDS = 30.0
_CALLS_PER_DRIVER = 4


@dataclass(frozen=True, slots=True)
class Tending:
    """What looking after volumes needs from the rest of the agent."""

    client: Client
    volumes: CsiVolumes
    requests: CsiRequests
    pods: Callable[[], Sequence[JsonObject]]
    record_event: RecordEvent


class Upkeep:
    """Looks at every volume in use once in a while."""

    def __init__(self, tending: Tending, period_seconds: float = _PERIOD_SECONDS) -> None:
        self._tending = tending
        self._period = period_seconds
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By pod uid and volume."""
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self) -> None:
        """Look after volumes until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._period)
                self.look()
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel what was begun; calls in progress are finished by `CsiVolumes`."""
        for task in self._busy.values():
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def look(self) -> None:
        """Begin to look at all volumes that nobody looks at already."""
        for pod in self._tending.pods():
            if meta.is_being_deleted(pod) or get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
                continue
            for file in csi_records.files_of_pod(meta.uid(pod)):
                try:
                    record = csi_records.read(file)
                except OSError:
                    continue  # the end of the pod reports it
                key = (record.pod_uid, record.volume)
                if record.published and key not in self._busy:
                    task = asyncio.create_task(self._guarded(pod, record), name=f"csi-upkeep-{record.volume}")
                    self._busy[key] = task
                    task.add_done_callback(partial(self._done, key))

    def _done(self, key: tuple[str, str], _task: asyncio.Task[None]) -> None:
        del self._busy[key]

    async def settle(self) -> None:
        """Wait until everything that was begun is done."""
        await asyncio.gather(*self._busy.values())

    async def _guarded(self, pod: JsonObject, record: Record) -> None:
        turns = self._turns.setdefault(record.driver, asyncio.Semaphore(_CALLS_PER_DRIVER))
        try:
            async with turns:
                await self._tend(pod, record)
        except (ContentProblem, StatusError, ConnectionFailed, OSError) as problem:
            text = "looking after volume %s of pod %s failed, trying again: %s"
            _log.warning(text, record.volume, identity.display_name(pod), problem)

    async def _tend(self, pod: JsonObject, record: Record) -> None:
        client, volumes = self._tending.client, self._tending.volumes
        shown = next(
            (each for each in get_list(pod, "spec", "volumes") if each.get("name") == record.shown_as), None
        )
        if shown is None:
            return  # a record of an older agent
        if record.claim is None:
            source = csi_source.inline(pod, shown)
        else:
            volume = await client.get(PERSISTENT_VOLUMES, record.volume)
            read_only = get_bool(get_object(shown, "persistentVolumeClaim"), "readOnly")
            source = csi_source.persistent(volume, read_only=read_only)
        rules = await self._tending.requests.rules(record.driver)
        if get_bool(rules or {}, "spec", "requiresRepublish"):
            await self._republish(pod, source, record)
        await volumes.grow(pod, source, record)

    async def _republish(self, pod: JsonObject, source: csi_source.Source, record: Record) -> None:
        try:
            await self._tending.volumes.republish(pod, source, record)
        except ContentProblem as problem:
            default = f'MountVolume.SetUp failed for volume "{source.name}" : {problem}'
            text = getattr(problem, "event_message", default)
            subject = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pod}
            self._tending.record_event(subject, "Warning", "FailedMount", text)
