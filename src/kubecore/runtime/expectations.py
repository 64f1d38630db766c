"""Creations and deletions that a controller requested and its cache does not show yet.

A controller that creates five pods and looks at its cache a moment later must not create five more.
It records what it expects, and does nothing for that key until the cache has shown it. After a request
without a response it is unknown whether it took effect: the server is read before anything else is done for
the key. Expectations time out, and the key is reconciled again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from kubecore.errors import StatusError
from kubecore.runtime.controller import Controller
from kubecore.runtime.informer import EventType, Informer
from kubecore.runtime.store import Cached, Key, is_being_deleted, uid_of

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 300.0
"""After so long without the expected events, expectations count as fulfilled (client-go's number)."""

Owners: TypeAlias = Callable[[Cached], Iterable[Key]]
"""From an object to the keys that asked for it (its controlling owner's, mostly)."""


@dataclass(slots=True)
class _Expected:
    expiry: asyncio.TimerHandle
    creations: int = 0
    deletions: set[str] = field(default_factory=set)
    is_doubtful: bool = False
    """A request ended without a response."""


class Expectations(Generic[Cached]):
    """Expected creations (counted) and deletions (by uid) of the objects of `informer`, for each key.

    `owners` maps an object to the keys of its owners. A key is enqueued when its expectations are met or
    after `TIMEOUT_SECONDS`.
    """

    def __init__(self, controller: Controller, informer: Informer[Cached], owners: Owners[Cached]) -> None:
        self._controller = controller
        self._informer = informer
        self._owners = owners
        self._expected: dict[Key, _Expected] = {}
        controller.depend(informer)
        informer.add_handler(self._observe)

    @contextmanager
    def creating(self, key: Key) -> Iterator[None]:
        """Around the request for one creation, which is expected unless the server refuses it."""
        self._entry(key).creations += 1
        try:
            yield
        except BaseException as error:
            if is_refusal(error):
                self._creation_observed(key)
            else:
                self._entry(key).is_doubtful = True
            raise

    @contextmanager
    def deleting(self, key: Key, uid: str) -> Iterator[None]:
        """Around the request for the deletion of the object with `uid`, expected unless it is refused."""
        self._entry(key).deletions.add(uid)
        try:
            yield
        except BaseException as error:
            if is_refusal(error):
                self._deletion_observed(key, uid)
            else:
                self._entry(key).is_doubtful = True
            raise

    def satisfied(self, key: Key) -> bool:
        """Whether the cache shows everything that was requested, as far as known."""
        return key not in self._expected

    async def settled(self, key: Key) -> bool:
        """Whether the cache can be trusted for `key`; after a request without a response the server is
        read. Raises StatusError and ConnectionFailed where that fails: the retry reads again.
        """
        entry = self._expected.get(key)
        if entry is not None and entry.is_doubtful:
            await self._look(key)
        return self.satisfied(key)

    def forget(self, key: Key) -> None:
        """Forget the expectations for a deleted object."""
        entry = self._expected.pop(key, None)
        if entry is not None:
            entry.expiry.cancel()

    async def _look(self, key: Key) -> None:
        """Reconcile the expectations with the objects that the API server has and the cache does not show
        yet.
        """
        live = {uid_of(obj): obj for obj in await self._informer.read_live(key[0] or None)}
        entry = self._expected.get(key)
        if entry is None:
            return
        cached = {uid_of(obj): obj for obj in self._informer.list(key[0] or None)}
        entry.creations = sum(uid not in cached and key in self._owners(obj) for uid, obj in live.items())
        entry.deletions = {
            uid
            for uid in entry.deletions
            if uid in cached
            and not is_being_deleted(cached[uid])
            and (uid not in live or is_being_deleted(live[uid]))
        }
        entry.is_doubtful = False
        self._drop_if_met(key)

    def _observe(self, event: EventType, old: Cached | None, new: Cached) -> None:
        del old
        is_going = event == "DELETED" or is_being_deleted(new)
        if event != "ADDED" and not is_going:
            return
        for key in self._owners(new):
            if key not in self._expected:
                continue
            if event == "ADDED":
                self._creation_observed(key)
            if is_going:
                self._deletion_observed(key, uid_of(new))
            if key not in self._expected:
                self._controller.enqueue(key)

    def _creation_observed(self, key: Key) -> None:
        entry = self._expected.get(key)
        if entry is not None:
            entry.creations = max(0, entry.creations - 1)
            self._drop_if_met(key)

    def _deletion_observed(self, key: Key, uid: str) -> None:
        entry = self._expected.get(key)
        if entry is not None:
            entry.deletions.discard(uid)
            self._drop_if_met(key)

    def _drop_if_met(self, key: Key) -> None:
        entry = self._expected[key]
        if not entry.creations and not entry.deletions and not entry.is_doubtful:
            self.forget(key)

    def _entry(self, key: Key) -> _Expected:
        entry = self._expected.get(key)
        if entry is None:
            expiry = asyncio.get_running_loop().call_later(TIMEOUT_SECONDS, self._expire, key)
            entry = self._expected[key] = _Expected(expiry)
        return entry

    def _expire(self, key: Key) -> None:
        entry = self._expected.pop(key)
        logger.warning(
            "%s: %s: %d creations and %d deletions of %s are not in the cache after %d seconds; ignored",
            self._controller.name,
            "/".join(filter(None, key)),
            entry.creations,
            len(entry.deletions),
            self._informer.resource.group_resource,
            TIMEOUT_SECONDS,
        )
        self._controller.enqueue(key)


def is_refusal(error: BaseException) -> bool:
    """Whether a failed request certainly had no effect, because the server refused it. After a broken
    connection, a timeout or a server error it may have had one.
    """
    return isinstance(error, StatusError) and error.code < 500 and error.code != 408
