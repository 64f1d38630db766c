"""Reads what deletions wait for, with the rights of who asks; what may not be read is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType

_UNREADABLE = (403, 404)


@dataclass(frozen=True, slots=True)
class Situation:
    """A deleted object, one of its finalizers, and how to read what that waits for."""

    client: Client
    kind: ResourceType
    document: JsonObject
    now: datetime
    failure: str = ""
    """Why its controller's last attempt failed, where that is known."""
    finalizer: str = ""
    is_reporting: bool = False
    """Whether the answer becomes the event that others read."""
    depth: int = 0
    """How many objects that wait for each other were looked at before."""

    @property
    def name(self) -> str:
        """The object's name."""
        return meta.name(self.document)

    @property
    def namespace(self) -> str:
        """The object's namespace; empty where it has none."""
        return meta.namespace(self.document)

    @property
    def since(self) -> str:
        """When its deletion was asked for: only pods have a grace period, and they are not asked about."""
        return meta.deletion_timestamp(self.document)

    @property
    def within(self) -> str:
        """``-n NAMESPACE`` of commands; empty for objects without one."""
        return f" -n {self.namespace}" if self.namespace else ""

    def of(self, kind: ResourceType, document: JsonObject) -> Situation:
        """The situation of another object that this one waits for."""
        return replace(self, kind=kind, document=document, failure="", finalizer="", depth=self.depth + 1)

    async def found(self, kind: ResourceType, name: str, namespace: str = "") -> JsonObject | None:
        """An object; None if there is none, or it may not be read. Raises StatusError."""
        if not name:
            return None
        try:
            return await self.client.get(kind, name, namespace or None)
        except StatusError as error:
            if error.code not in _UNREADABLE:
                raise
            return None

    async def listed(
        self, kind: ResourceType, namespace: str = "", labelled: str = "", having: str = ""
    ) -> list[JsonObject]:
        """Objects; none if they may not be read. Raises StatusError."""
        try:
            return get_list(await self.client.list(kind, namespace or None, labelled, having), "items")
        except StatusError as error:
            if error.code not in _UNREADABLE:
                raise
            return []

    async def told(self, document: JsonObject | None = None, reason: str = "") -> str:
        """The newest warning about the object (another with `document`), or event of a `reason`. Raises
        StatusError.
        """
        about = self.document if document is None else document
        selector = f"involvedObject.uid={meta.uid(about)}"
        selector += f",reason={reason}" if reason else ",type=Warning"
        events = await self.listed(resources.EVENTS, meta.namespace(about) or "default", having=selector)
        newest = max(events, key=_last_seen, default=None)
        return get_str(newest, "message").strip().rstrip(".")


def _last_seen(event: JsonObject) -> str:
    return get_str(event, "lastTimestamp") or get_str(event, "eventTime")
