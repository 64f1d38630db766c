"""The context of a request, which every strategy, action and admission plugin gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from kubecore.json import JsonObject
from kubecore.large_requests import LARGE_BYTES, LargeRequestPool
from kubecore.resources import ResourceType

from .addresses import AddressPool

_MAX_WARNINGS = 512
"""More never fit into the response (see ``http.responses``)."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UserInfo:
    """An authenticated identity, as TokenReview and SubjectAccessReview name its parts."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The ``userInfo`` of reviews: empty parts are left out."""
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


class ObjectReader(Protocol):
    """Current objects from the server's memory. What it returns is the caller's own copy.

    Objects come back in the version they are stored in (built-in kinds have only one).
    """

    def get(self, resource: ResourceType, namespace: str | None, name: str) -> JsonObject | None:
        """The object, or None."""

    def list(self, resource: ResourceType, namespace: str | None = None) -> Sequence[JsonObject]:
        """All objects of a kind, ordered by key; in all namespaces if `namespace` is None."""

    def exists(self, resource: ResourceType, namespace: str | None, name: str) -> bool:
        """Whether the object exists, without decoding it."""


class ObjectWriter(ObjectReader, Protocol):
    """Writes made by the server itself: no authorization, no admission webhooks, strategies apply."""

    async def create(self, resource: ResourceType, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create; raises StatusError (AlreadyExists, Invalid, ...)."""

    async def modify(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        change: Callable[[JsonObject], JsonObject | None],
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        """Read, `change`, write, again while others write in between.

        `change` may edit its argument or raise StatusError; returning None leaves the object as it is.
        The strategy's update hooks do not run: `change` is trusted. Raises NotFound.
        """

    async def delete(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        *,
        options: JsonObject | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Delete with `options` (a DeleteOptions document): grace period, preconditions, propagation."""


def _allow() -> None:
    """The server itself may create."""


@dataclass(slots=True)
class RequestContext:
    """One request on its way through strategy, admission and storage."""

    user: UserInfo
    verb: str
    """create, update, patch, delete, ... (``create`` also for an update that creates)."""
    resource: ResourceType
    namespace: str
    """Empty for resources outside namespaces."""
    name: str
    """Empty while a generated name is not known."""
    subresource: str
    objects: ObjectWriter
    addresses: AddressPool
    dry_run: bool = False
    internal: bool = False
    """A write of the server itself: admission is not asked."""
    field_manager: str = ""
    options: JsonObject = field(default_factory=dict)
    """CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request."""
    warnings: list[str] = field(default_factory=list)
    rollbacks: list[Callable[[], None]] = field(default_factory=list)
    commits: list[Callable[[], Awaitable[None] | None]] = field(default_factory=list)
    weight: int = 0
    """Bytes of the biggest document that the request is about."""
    check_create: Callable[[], None] = _allow
    """Raises StatusError (403) where the user may not create: asked when an update or a patch is about to."""
    large_requests: LargeRequestPool | None = None
    """Where long computing is done for big documents; None: here."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Compute something from documents, in a thread where they are big."""
        if self.weight <= LARGE_BYTES or self.large_requests is None:
            return work(*args, **kwargs)
        return await self.large_requests.run(work, *args, **kwargs)

    def warn(self, message: str) -> None:
        """Send a ``Warning: 299`` header with the response (each text once)."""
        if len(self.warnings) < _MAX_WARNINGS and message not in self.warnings:
            self.warnings.append(message)

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call `undo` when the request fails or was a dry run."""
        self.rollbacks.append(undo)

    def on_commit(self, action: Callable[[], Awaitable[None] | None]) -> None:
        """Call `action` after the write is durable, before the response is sent."""
        self.commits.append(action)
