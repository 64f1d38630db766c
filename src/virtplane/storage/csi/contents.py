"""Reading and writing contents of snapshots, single or of groups: marks, statuses, what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import encode
from kubecore.resources import ResourceType
from virtplane.cluster.objects import Object, status_patch
from virtplane.storage.csi.parts import Environment, annotations_patch, patch


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
class Contents(Generic[Found]):
    """The contents of one kind on the API server. All methods raise StatusError, and UnfitDocument.

    `marked` is the annotation that says that the driver may have been asked; `owners` are the kind of what
    contents are for.
    """

    env: Environment
    kind: ResourceType
    decoded: Callable[[JsonObject], Found]
    status: type[msgspec.Struct]
    marked: str
    owners: ResourceType

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
            found = await self.env.client.get(self.owners, owner.name or "", owner.namespace)
        except StatusError as error:
            if error.code == 403:
                return False  # upstream's roles of this part have no right to look
            if is_not_found(error):
                return True
            raise
        return meta.uid(found) != owner.uid
