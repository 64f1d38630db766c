"""Tells in events why deleted objects are still there, and wakes their controllers at their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, RequeueAfter, Result
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.deadlines import DEADLINE_SECONDS
from virtplane.cluster.objects import AnyObject
from virtplane.deletions.explaining import wait_of
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import WAITING, Wait

PATIENCE_SECONDS = 30.0
"""A deletion that takes no longer is nothing to tell of."""
_AGAIN_SECONDS = (60.0, 600.0)
"""How soon a wait is looked at again, from the first time on and at the most."""
_RESTS = 4
"""It rests so many times as long as it looked, and a moment at least: whoever has thousands of objects that
wait would have the cluster's claims and pods listed without end.
"""
_LEAST_REST_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind whose deletions are told of."""

    kind: ResourceType
    informer: Informer[Any]
    controllers: Sequence[Controller]
    """Those that take its finalizers off, by its keys."""
    concerns: Callable[[ObjectMeta], bool] = lambda _: True
    """Whether an object is told of here."""


class DeletionReporter:
    """One queue for all kinds: its keys are ``plural/namespace`` and the name."""

    def __init__(
        self, name: str, client: Client, recorder: EventRecorder, watched: Iterable[Watched]
    ) -> None:
        self._client, self._recorder = client, recorder
        self._watched = {each.kind.plural: each for each in watched}
        self.controller = Controller(name, self.reconcile, max_delay=60.0)
        for each in self._watched.values():
            self.controller.watch(each.informer, self._mapper(each))

    @staticmethod
    def _mapper(watched: Watched) -> Callable[[Any], list[Key]]:
        def keys(obj: JsonObject | HasMetadata) -> list[Key]:
            if isinstance(obj, dict) and not meta.is_being_deleted(obj):
                return []
            of = _metadata(obj)
            return [(f"{watched.kind.plural}/{of.namespace}", of.name)] if of.is_being_deleted else []

        return keys

    async def reconcile(self, key: Key) -> Result:
        """Tell of one deleted object. Raises StatusError, ConnectionFailed."""
        plural, _, namespace = key[0].partition("/")
        watched, own = self._watched[plural], (namespace, key[1])
        try:
            cached = watched.informer.get(*own)
        except UnfitDocument:
            return DONE  # its controller says so
        if cached is None or not _metadata(cached).is_being_deleted:
            return DONE
        age = _age(_metadata(cached))
        if age < PATIENCE_SECONDS:
            return RequeueAfter(PATIENCE_SECONDS - age)
        document = await self._live(watched, own)
        if document is None:
            return DONE
        failure = next(filter(None, (each.failure(own) for each in watched.controllers)), "")
        situation = Situation(self._client, watched.kind, document, times.now(), failure, is_reporting=True)
        clock = asyncio.get_running_loop().time
        begun = clock()
        self._tell(document, await wait_of(situation))
        await asyncio.sleep(max(_LEAST_REST_SECONDS, _RESTS * (clock() - begun)))
        if failure and age > DEADLINE_SECONDS:
            # Its own next attempt may be far away: the pauses between failures grow.
            for each in watched.controllers:
                each.enqueue(own)
        least, most = _AGAIN_SECONDS
        return RequeueAfter(_until_next(age, min(most, max(least, age))))

    async def _live(self, watched: Watched, key: Key) -> JsonObject | None:
        """The object as it is now, where it is told of here. Raises StatusError."""
        try:
            document = await self._client.get(watched.kind, key[1], key[0] or None)
        except StatusError as error:
            if not is_not_found(error):
                raise
            return None
        is_told = meta.is_being_deleted(document) and watched.concerns(_metadata(document))
        return document if is_told else None

    def _tell(self, document: JsonObject, wait: Wait) -> None:
        self._recorder.event(document, "Normal" if wait.is_expected else "Warning", WAITING, wait.message())


def _metadata(obj: JsonObject | HasMetadata) -> ObjectMeta:
    """The metadata of a cached object, whether it is a document or a struct."""
    return decode(AnyObject, obj).metadata if isinstance(obj, dict) else obj.metadata


def _age(metadata: ObjectMeta) -> float:
    return (times.now() - times.parse_time(metadata.deletion_timestamp or "")).total_seconds()


def _until_next(age: float, pause: float) -> float:
    """The pause, unless the deadline comes before."""
    left = DEADLINE_SECONDS - age
    return left + 1.0 if 0 <= left < pause else pause
