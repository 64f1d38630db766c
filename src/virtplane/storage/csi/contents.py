"""Contents of snapshots, single or of groups: what is done for them when, marks, statuses, problems."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import encode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Key, RequeueAfter, Result
from virtplane.cluster.objects import Object, finalizer_patch, status_patch
from virtplane.storage.csi.parts import Environment, Retries, annotations_patch, patch

logger = logging.getLogger(__name__)


class Content(Object, Protocol):
    """What stands for a snapshot, or a group of them, in the storage."""

    @property
    def status(self) -> msgspec.Struct | None: ...


class Reference(Protocol):
    """Whom a content is for."""

    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...


Found = TypeVar("Found", bound=Content)


@dataclass(frozen=True, slots=True)
class Work(Generic[Found]):
    """What is done for contents of one kind; both actions give whether nothing is left to do."""

    is_unwanted: Callable[[Found], bool]
    is_ready: Callable[[Found], bool]
    advance: Callable[[Found], Awaitable[bool]]
    delete: Callable[[Found], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Contents(Generic[Found]):
    """The contents of one kind on the API server. All methods raise StatusError, and UnfitDocument.

    `marked` is the annotation that says that the driver may have been asked; `owners` are the kind of what
    contents are for; they have `finalizer` as long as the driver has something of them.
    """

    env: Environment
    kind: ResourceType
    decoded: Callable[[JsonObject], Found]
    status: type[msgspec.Struct]
    marked: str
    owners: ResourceType
    finalizer: str

    async def drive(self, key: Key, content: Found, retries: Retries, work: Work[Found]) -> Result:
        """Do for a content what is to be done, but not before the time that its last failure has set.

        The cache may be old: the content is read again.
        """
        if self._is_settled(content, work):
            return DONE
        wish = (content.metadata.uid, work.is_unwanted(content))
        if delay := retries.remaining(key, wish):
            return RequeueAfter(delay)
        live = await self.read(content)
        if live is None or live.metadata.uid != content.metadata.uid or self._is_settled(live, work):
            return DONE
        if work.is_unwanted(live):
            is_done = await work.delete(live)
        elif work.is_ready(live):
            await self.mark(live, present=False)
            is_done = True
        else:
            is_done = await work.advance(live)
        if is_done:
            retries.forget(key)
            return DONE
        return RequeueAfter(retries.failed(key, wish))

    def _is_settled(self, content: Found, work: Work[Found]) -> bool:
        """Whether nothing is to be done for the content."""
        if work.is_unwanted(content):
            return self.finalizer not in content.metadata.finalizers
        return work.is_ready(content) and self.marked not in content.metadata.annotations

    async def let_go(self, content: Found) -> None:
        """The driver has nothing more of the content."""
        await self._patch(content, finalizer_patch(content.metadata, self.finalizer, present=False))

    def undeleted(self, content: Found, reason: str, text: str) -> bool:
        """Tell why what a content stands for is still there; False, for `Work.delete`."""
        logger.warning("%s %s: %s, trying again", self.kind.kind, content.metadata.name, text)
        self.env.event(content, "Warning", reason, text)
        return False

    async def read(self, content: Found) -> Found | None:
        """The content as it is now; None where it is gone."""
        try:
            found = await self.env.client.get(self.kind, content.metadata.name)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
        return self.decoded(found)

    async def mark(self, content: Found, *, present: bool) -> Found | None:
        """Write down that the driver may have been asked, or what it did is known; None where it is gone."""
        operations = annotations_patch(content, {self.marked: "yes" if present else None})
        return await self._patch(content, operations)

    async def change(self, content: Found, status: JsonObject) -> Found | None:
        """Write the status; None where the content is gone."""
        operations = status_patch(content, self.status, content.status, status)
        return await self._patch(content, operations, "status")

    async def _patch(
        self, content: Found, operations: list[JsonObject], subresource: str | None = None
    ) -> Found | None:
        if not operations:
            return content
        document = await patch(self.env.client, self.kind, content, operations, subresource)
        return None if document is None else self.decoded(document)

    async def report(self, content: Found, reason: str, text: str) -> None:
        """Say in the status and by an event what is wrong, unless that is what was said last."""
        live = await self.read(content)
        if live is None:
            return
        status = encode(live.status) if live.status is not None else {}
        if get_str(status, "error", "message") == text:
            return
        status |= {"readyToUse": False, "error": {"message": text, "time": times.now_rfc3339()}}
        await self.change(live, status)
        self.env.event(live, "Warning", reason, text)

    async def is_abandoned(self, content: Found, owner: Reference) -> bool:
        """Whether the driver has not been asked yet, and what the content is for is gone.

        A delayed request has created such a content; the snapshot controller deletes it.
        """
        if content.status is not None or self.marked in content.metadata.annotations:
            return False
        try:
            return not await is_there(self.env.client, self.owners, owner)
        except StatusError as error:
            if error.code == 403:
                return False  # upstream's roles of this part have no right to look
            raise


async def is_there(client: Client, kind: ResourceType, wanted: Reference) -> bool:
    """Whether what a content is for is there: the server is asked, its absence lets the content go.

    Raises StatusError.
    """
    try:
        found = await client.get(kind, wanted.name or "", wanted.namespace or "")
    except StatusError as error:
        if is_not_found(error):
            return False
        raise
    return meta.uid(found) == wanted.uid
