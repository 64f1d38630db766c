"""A local cache of one resource, kept current by list and watch.

Handlers see each object go from one state to a later one, also across relists; intermediate states may be
skipped. Objects in the cache are shared: copy before changing one.

An informer that is given a struct caches structs, each decoded once, instead of documents.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeAlias, cast

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import structs
from kubecore.objects.selectors import LabelSelector
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import ResourceType
from kubecore.runtime.store import (
    Cached,
    IndexFunction,
    Key,
    Store,
    key_of,
    labels_of,
    uid_of,
    version_of,
)

logger = logging.getLogger(__name__)

Objects: TypeAlias = list[Cached]

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Handler: TypeAlias = Callable[[EventType, Cached | None, Cached], None]

RETRY_BASE_SECONDS = 0.8
RETRY_MAX_SECONDS = 30.0
"""Back-off of the reflector between failed lists (client-go's numbers)."""

WATCH_SECONDS = (300, 600)
"""The server is asked to end each watch after a random time in this range."""

SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner, and without an event, has failed (client-go's number)."""


class Informer(Generic[Cached]):
    """The cache of one resource, in one namespace or all, of all objects or those that selectors choose.

    With a `struct` it holds structs. An object that does not fit is not among them: `get` raises, `unfit`
    tells why, unfit handlers hear of its key, and handlers of it again once it fits or is deleted.
    """

    def __init__(  # noqa: PLR0913 - what is cached, by name
        self,
        client: Client,
        resource: ResourceType,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[Cached]] | None = None,
        transform: Callable[[JsonObject], JsonObject] | None = None,
        metadata_only: bool = False,
        struct: type[Cached] | None = None,
    ) -> None:
        """`transform` changes documents before they are cached or decoded."""
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._transform = transform
        self._metadata_only = metadata_only
        # A type variable's bound cannot say "document or struct": whatever is given here is a struct.
        self._struct = cast("type[Any] | None", struct)
        self._store: Store[Cached] = Store(indexers or {})
        self._unfit: dict[Key, UnfitDocument] = {}
        self._handlers: list[Handler[Cached]] = []
        self._unfit_handlers: list[Callable[[Key], None]] = []
        self._synced = asyncio.Event()
        self._resource_version = ""
        self._failures = 0
        self._refusal = 0

    @property
    def has_synced(self) -> bool:
        """Whether the first list is in the cache."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced.wait()

    @property
    def unfit(self) -> Mapping[Key, UnfitDocument]:
        """The objects that exist but do not decode into the struct, for callers that act on the absence of
        objects.
        """
        return self._unfit

    def get(self, namespace: str | None, name: str) -> Cached | None:
        """The cached object, or None. Do not change it. Raises UnfitDocument if the object exists but cannot
        be decoded.
        """
        key = (namespace or "", name)
        if key in self._unfit:
            raise self._unfit[key]
        return self._store.get(key)

    def contains(self, namespace: str | None, name: str) -> bool:
        """Whether the object is there, readable or not."""
        key = (namespace or "", name)
        return key in self._unfit or self._store.get(key) is not None

    def list(
        self,
        namespace: str | None = None,
        selector: LabelSelector | Callable[[Cached], bool] | None = None,
    ) -> Objects[Cached]:
        """The cached objects of a namespace (None: all), filtered by labels or a predicate."""
        objects = self._store.values(namespace)
        if selector is None:
            return objects
        if isinstance(selector, LabelSelector):
            return [obj for obj in objects if selector.matches(labels_of(obj))]
        return [obj for obj in objects if selector(obj)]

    async def read_live(self, namespace: str | None = None) -> Objects[Cached]:
        """What the cache would hold if it were up to date: the server is asked, the cache stays as it is.

        Raises StatusError, ConnectionFailed, and UnfitDocument where an object cannot be read.
        """
        listing = await self._client.list(
            self.resource,
            namespace or self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        return [self._decoded(self._with_kind(obj)) for obj in get_list(listing, "items")]

    def by_index(self, index: str, value: str) -> Objects[Cached]:
        """The cached objects that `index` files under `value`."""
        return self._store.by_index(index, value)

    def add_index(self, name: str, function: IndexFunction[Cached]) -> None:
        """Add an index, before or after start."""
        self._store.add_index(name, function)

    def add_handler(self, handler: Handler[Cached]) -> None:
        """Have `handler(event, old, new)` called on every change; for DELETED, `new` is the last state.

        Objects already in the cache are delivered at once as ADDED. Handlers must not block or raise.
        """
        self._handlers.append(handler)
        for obj in self._store.values():
            self._call(handler, "ADDED", None, obj)

    def add_unfit_handler(self, handler: Callable[[Key], None]) -> None:
        """Have `handler(key)` called for every object that is there but cannot be read: at each write, and
        when it is gone.

        Such objects already known are delivered at once. Handlers must not block or raise.
        """
        self._unfit_handlers.append(handler)
        for key in self._unfit:
            handler(key)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        while True:
            try:
                await self._list()
                await self._watch_until_expired()
            except StatusError as error:
                self._refusal = error.code
                self._log_failure("list", error.message)
            except ConnectionFailed as error:
                self._refusal = 0
                self._log_failure("list", str(error))
            await asyncio.sleep(self._backoff())

    async def stay_empty(self) -> None:
        """Do as if there were no object, until cancelled: for a kind that the cluster does not serve."""
        self._synced.set()
        await asyncio.Event().wait()

    async def _list(self) -> None:
        listing = await self._client.list(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        self._failures = self._refusal = 0
        self._replace(get_list(listing, "items"))
        self._resource_version = get_str(listing, "metadata", "resourceVersion")
        self._synced.set()

    async def _watch_until_expired(self) -> None:
        while True:
            try:
                await self._watch()
                self._failures = 0
            except StatusError as error:
                if error.code == 410:
                    logger.debug("watch of %s expired; relisting", self.resource.group_resource)
                    self._failures = 0
                    return
                if error.code in (429, 500, 502, 503, 504):
                    self._log_failure("watch", error.message)
                    await asyncio.sleep(self._backoff())
                    continue
                raise
            except ConnectionFailed as error:
                self._log_failure("watch", str(error))
                await asyncio.sleep(self._backoff())

    async def _watch(self) -> None:
        """Follow one watch to its end. Raises StatusError, ConnectionFailed."""
        begun, is_told = asyncio.get_running_loop().time(), False
        events = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            bookmarks=True,
            timeout_seconds=random.randint(*WATCH_SECONDS),
            metadata_only=self._metadata_only,
        )
        async for event in events:
            self._failures, is_told = 0, True
            if event.type != "BOOKMARK":
                self._apply(event.type, event.object)
            self._resource_version = get_str(event.object, "metadata", "resourceVersion")
        if not is_told and asyncio.get_running_loop().time() - begun < SHORT_WATCH_SECONDS:
            # A server that fails at the next object can only end its answer: it would do so at once again.
            raise ConnectionFailed("the server ended the watch at once, without an event")

    def _apply(self, event: EventType, document: JsonObject) -> None:
        if event == "DELETED":
            self._forget(document)
            return
        obj = self._read(document)
        if obj is None:
            self._store.remove(key_of(document))
            return
        old = self._store.put(obj)
        self._notify("ADDED" if old is None else "MODIFIED", old, obj)

    def _forget(self, document: JsonObject) -> None:
        key = key_of(document)
        if self._unfit.pop(key, None) is not None:
            self._notify_unfit(key)
        old = self._store.remove(key)
        try:
            last: Cached | None = self._decoded(document)
        except UnfitDocument:
            last = old
        if last is not None:
            self._notify("DELETED", old, last)

    def _replace(self, documents: Iterable[JsonObject]) -> None:
        unfit = set(self._unfit)
        self._unfit.clear()
        read = [self._read(self._with_kind(document)) for document in documents]
        fresh = {key_of(obj): obj for obj in read if obj is not None}
        for key in self._store.all_keys():
            if key not in fresh:
                gone = self._store.remove(key)
                if gone is not None and key not in self._unfit:
                    self._notify("DELETED", gone, gone)
        for obj in fresh.values():
            old = self._store.put(obj)
            if old is None:
                self._notify("ADDED", None, obj)
            elif uid_of(old) != uid_of(obj):
                self._notify("DELETED", old, old)
                self._notify("ADDED", None, obj)
            elif version_of(old) != version_of(obj):
                self._notify("MODIFIED", old, obj)
        for key in sorted(unfit - self._unfit.keys() - fresh.keys()):
            self._notify_unfit(key)

    def _notify_unfit(self, key: Key) -> None:
        for handler in self._unfit_handlers:
            handler(key)

    def _with_kind(self, obj: JsonObject) -> JsonObject:
        """Set kind and apiVersion, which members of lists lack."""
        if "kind" in obj:
            return obj
        return {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **obj}

    def _read(self, document: JsonObject) -> Cached | None:
        """The cached form of a document; None for one that does not decode, which is recorded and logged."""
        key = key_of(document)
        self._unfit.pop(key, None)
        try:
            return self._decoded(document)
        except UnfitDocument as error:
            self._unfit[key] = error
            logger.error("an object cannot be decoded and is ignored until it is corrected: %s", error)
            self._notify_unfit(key)
            return None

    def _decoded(self, document: JsonObject) -> Cached:
        if self._transform is not None:
            document = self._transform(document)
        return cast("Cached", structs.decode(self._struct, document) if self._struct else document)

    def _notify(self, event: EventType, old: Cached | None, new: Cached) -> None:
        for handler in self._handlers:
            self._call(handler, event, old, new)

    def _call(self, handler: Handler[Cached], event: EventType, old: Cached | None, new: Cached) -> None:
        try:
            handler(event, old, new)
        except Exception:
            # An exception in one handler must not stop the cache, which other handlers use.
            logger.exception(
                "an event handler of informer %s failed on %s",
                self.resource.group_resource,
                "/".join(key_of(new)),
            )

    def _backoff(self) -> float:
        return retry_delay(self._failures, self._refusal) * random.uniform(1.0, 2.0)

    def _log_failure(self, action: str, message: str) -> None:
        """Log failures 1, 2, 4, 8, … so that a long outage does not fill the log."""
        self._failures += 1
        told = self._failures & (self._failures - 1) == 0
        level = logging.DEBUG if not told else logging.WARNING if self._failures > 1 else logging.INFO
        logger.log(level, "failed to %s %s: %s; trying again", action, self.resource.group_resource, message)


def retry_delay(failures: int, refusal: int) -> float:
    """Seconds until the next attempt after so many failures, the last with the HTTP status `refusal` (or 0).

    After 404 and 403 the delay is shorter: the resource or role is often just being installed.
    """
    if failures == 0:
        return 0.0
    base, growth = (RETRY_BASE_SECONDS / 4, 1.5) if refusal in (403, 404) else (RETRY_BASE_SECONDS, 2.0)
    return float(min(base * growth ** min(failures - 1, 20), RETRY_MAX_SECONDS))
