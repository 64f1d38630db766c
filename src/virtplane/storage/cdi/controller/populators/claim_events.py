"""Events of prime claims, which users see at the claims that they asked for."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kubecore.resources import EVENTS
from kubecore.runtime import EventKind, EventRecorder, Informer, Manager
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import ObjectReference, PersistentVolumeClaim
from virtplane.cluster.objects import described

_OF_CLAIMS = "involvedObject.kind=PersistentVolumeClaim"
_NOT_PASSED_ON = frozenset({"ClaimMisbound"})
"""Expected when a volume is given to another claim."""
_MOST = 20
"""How many events of a claim are looked at, the newest: anybody in its namespace can write more."""


class Event(ApiStruct, kw_only=True):
    """What happened to an object."""

    count: int = 0
    event_time: str | None = None
    involved_object: ObjectReference = ObjectReference()
    last_timestamp: str | None = None
    message: str = ""
    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    type: str = ""


class ClaimEvents:
    """The events of all claims, by ``namespace/uid`` of the claim."""

    def __init__(self, manager: Manager, recorder: EventRecorder) -> None:
        self.informer: Informer[Event] = manager.informer(
            EVENTS, field_selector=_OF_CLAIMS, indexers={"claim": _of_claim}, struct=Event
        )
        self._recorder = recorder

    def pass_on(self, prime: PersistentVolumeClaim, target: PersistentVolumeClaim) -> str:
        """Record the newest events of `prime` on `target`, once each; the text of the newest one."""
        known = {(each.reason, each.message) for each in self._events(target)}
        newest = ""
        for event in to_pass_on(self._events(prime)):
            newest = f"[{prime.metadata.name}] : {event.message}"
            if (event.reason, newest) not in known:
                kind: EventKind = "Warning" if event.type == "Warning" else "Normal"
                self._recorder.event(described(target), kind, event.reason, newest)
                known.add((event.reason, newest))
        return newest

    def _events(self, claim: PersistentVolumeClaim) -> list[Event]:
        return self.informer.by_index("claim", f"{claim.metadata.namespace}/{claim.metadata.uid}")


def to_pass_on(events: Iterable[Event]) -> list[Event]:
    """The newest of the events that users are to see, the oldest first."""
    told = (event for event in events if event.reason not in _NOT_PASSED_ON)
    return heapq.nlargest(_MOST, told, key=_moment)[::-1]


def _of_claim(event: Event) -> Iterable[str]:
    return [f"{event.involved_object.namespace}/{event.involved_object.uid}"]


def _moment(event: Event) -> tuple[str, str]:
    return (event.last_timestamp or event.event_time or event.metadata.created, event.metadata.name)
