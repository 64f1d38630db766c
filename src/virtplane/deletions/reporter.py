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
from kubecore.objects.structs import decode
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
"""Pauses for each time that was spent on looking: whoever has thousands of objects that wait would have the
cluster's claims and pods listed without end.
"""


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
            if isinstance(obj, dict):
                (namespace, name), is_deleted = meta.key(obj), meta.is_being_deleted(obj)
            else:
                namespace, name = obj.metadata.namespace, obj.metadata.name
                is_deleted = obj.metadata.is_being_deleted
            return [(f"{watched.kind.plural}/{namespace}", name)] if is_deleted else []

        return keys

    async def reconcile(self, key: Key) -> Result:
        """Tell of one deleted object. Raises StatusError, ConnectionFailed."""
        plural, _, namespace = key[0].partition("/")
        watched, own = self._watched[plural], (namespace, key[1])
        try:
            document = await self._client.get(watched.kind, key[1], namespace or None)
        except StatusError as error:
            if not is_not_found(error):
                raise
            return DONE
        if not meta.is_being_deleted(document) or not watched.concerns(decode(AnyObject, document).metadata):
            return DONE
        age = _age(document)
        if age < PATIENCE_SECONDS:
            return RequeueAfter(PATIENCE_SECONDS - age)
        failure = next(filter(None, (each.failure(own) for each in watched.controllers)), "")
        situation = Situation(self._client, watched.kind, document, times.now(), failure, is_reporting=True)
        clock = asyncio.get_running_loop().time
        begun = clock()
        self._tell(document, await wait_of(situation))
        await asyncio.sleep(_RESTS * (clock() - begun))
        if failure and age > DEADLINE_SECONDS:
            # Its own next attempt may be far away: the pauses between failures grow.
            for each in watched.controllers:
                each.enqueue(own)
        least, most = _AGAIN_SECONDS
        return RequeueAfter(_until_next(age, min(most, max(least, age))))

    def _tell(self, document: JsonObject, wait: Wait) -> None:
        self._recorder.event(document, "Normal" if wait.is_expected else "Warning", WAITING, wait.message())


def _age(document: JsonObject) -> float:
    return (times.now() - times.parse_time(meta.deletion_timestamp(document))).total_seconds()


def _until_next(age: float, pause: float) -> float:
    """The pause, unless the deadline comes before."""
    left = DEADLINE_SECONDS - age
    return left + 1.0 if 0 <= left < pause else pause
