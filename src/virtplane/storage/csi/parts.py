"""What every part is given, and what all of them need: retries, secrets, patches."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object
from kubecore.patch.guarded import same_version
from kubecore.resources import SECRETS, ResourceType
from kubecore.runtime import EventKind, EventRecorder, Manager
from kubecore.runtime.queue import ItemBackoff
from virtplane.api.storage_kinds import SecretReference
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.objects import Object, described

if TYPE_CHECKING:
    # The snapshot controller needs retries and patches, but no driver: gRPC stays out of its process.
    from kubecore.wire import Message
    from virtplane.storage.csi.driver import Driver, Identity

_LONGEST_RETRY_KEYS = 100_000


class Problem(Exception):
    """A part cannot go on with an object now. The text is for the object's user, in an event or a status."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What one part works with. `timeout_seconds` is for each call of the driver."""

    client: Client
    manager: Manager
    recorder: EventRecorder
    driver: Driver
    timeout_seconds: float
    retry_start_seconds: float = 1.0
    retry_most_seconds: float = 300.0
    workers: int = 10

    @property
    def identity(self) -> Identity:
        """Who the driver is."""
        return self.driver.identity

    async def controller(self, method: str, values: Mapping[str, Any]) -> Message:
        """Call the driver's controller service. Raises CallError."""
        return await self.driver.call("Controller", method, values, self.timeout_seconds)

    async def group_controller(self, method: str, values: Mapping[str, Any]) -> Message:
        """Call the driver's service for groups of volumes. Raises CallError."""
        return await self.driver.call("GroupController", method, values, self.timeout_seconds)

    def event(self, obj: Object, kind: EventKind, reason: str, text: str) -> None:
        """Record an event on `obj`."""
        self.recorder.event(described(obj), kind, reason, text)

    def retries(self, clock: Callable[[], float]) -> Retries:
        """Retries with this part's delays."""
        return Retries(self.retry_start_seconds, self.retry_most_seconds, clock)


class Retries:
    """When to ask a driver again for what failed: later and later, unless what is asked for has changed.

    Events of an object do not shorten the wait: users, and this program's own writes, could make it a storm.
    """

    def __init__(self, start_seconds: float, most_seconds: float, clock: Callable[[], float]) -> None:
        self._most_seconds = most_seconds
        self._backoff: ItemBackoff[Hashable] = ItemBackoff(start_seconds, most_seconds)
        self._clock = clock
        self._due: dict[Hashable, tuple[Hashable, float]] = {}

    def remaining(self, key: Hashable, wanted: Hashable) -> float:
        """Seconds until `wanted` may be tried again for `key`; 0 for at once."""
        found = self._due.get(key)
        if found is None:
            return 0.0
        if found[0] != wanted:
            self.forget(key)
            return 0.0
        return max(0.0, found[1] - self._clock())

    def failed(self, key: Hashable, wanted: Hashable, *, hopeless: bool = False) -> float:
        """The delay in seconds before the next try; the longest where it is `hopeless`."""
        delay = self._backoff.next_delay(key)
        if hopeless:
            delay = self._most_seconds
        if len(self._due) >= _LONGEST_RETRY_KEYS:
            self._due.pop(next(iter(self._due)))
        self._due[key] = (wanted, self._clock() + delay)
        return delay

    def forget(self, key: Hashable) -> None:
        """It worked, or is no longer wanted."""
        self._backoff.forget(key)
        self._due.pop(key, None)


async def read_secret(client: Client, reference: SecretReference | None) -> dict[str, str]:
    """What a secret holds, for the driver; nothing for none. Raises Problem."""
    if reference is None:
        return {}
    name, namespace = reference.name, reference.namespace
    try:
        found = await client.get(SECRETS, name, namespace)
    except StatusError as error:
        text = f"error getting secret {name} in namespace {namespace}: {error.message}"
        raise Problem(text) from error
    values: dict[str, str] = {}
    for key, value in get_object(found, "data").items():
        try:
            values[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            text = f"secret {name} in namespace {namespace}: the value of {key} is no text"
            raise Problem(text) from error
    return values


async def read_annotated_secret(
    client: Client, annotations: Mapping[str, str], keys: tuple[str, str], what: str
) -> dict[str, str]:
    """What the secret holds whose name and namespace are the annotations `keys`; nothing without them.

    `what` is the annotated object, for messages. Raises Problem.
    """
    name, namespace = (annotations.get(key) for key in keys)
    if name is None or namespace is None:
        return {}
    if not name or not namespace:
        text = f"cannot retrieve secrets for {what}, err: secret name or namespace not specified"
        raise Problem(text)
    try:
        return await read_secret(client, SecretReference(name=name, namespace=namespace))
    except Problem as problem:
        raise Problem(f"cannot get credentials for {what}: {problem}") from problem


def versioned(obj: Object, operations: list[JsonObject]) -> list[JsonObject]:
    """The operations for the very version of `obj` that was read; none where there are none.

    A struct does not tell an empty member from none, so tests of single members might never hold.
    """
    return [*same_version(described(obj)), *operations] if operations else []


def members_patch(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[JsonObject]:
    """The operations that make the members `after` of the object at `path`; empty ones are left out."""
    operations: list[JsonObject] = []
    for key in sorted({*before, *after}):
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if new in (None, [], {}):
            operations += [] if old in (None, [], {}) else [{"op": "remove", "path": place}]
        else:
            operations.append({"op": "add", "path": place, "value": new})
    return operations


def annotations_patch(obj: Object, changes: Mapping[str, str | None]) -> list[JsonObject]:
    """The operations that set annotations, or remove those of None; none where that is done."""
    before = dict(obj.metadata.annotations)
    wanted = {**before, **changes}
    after = {key: value for key, value in wanted.items() if value is not None}
    if after == before:
        return []
    return versioned(
        obj, members_patch("/metadata", {"annotations": before} if before else {}, {"annotations": after})
    )


async def patch(
    client: Client,
    kind: ResourceType,
    obj: HasMetadata,
    operations: list[JsonObject],
    subresource: str | None = None,
) -> JsonObject | None:
    """Apply a JSON patch; None for an empty one, and for an object that is gone. Raises StatusError."""
    if not operations:
        return None
    namespace = obj.metadata.namespace or None
    try:
        return await client.patch(
            kind, obj.metadata.name, operations, namespace, type="json", subresource=subresource
        )
    except StatusError as error:
        if is_not_found(error):
            return None
        raise


async def delete(client: Client, kind: ResourceType, obj: HasMetadata) -> None:
    """Delete that very object, if it is still there. Raises StatusError."""
    try:
        await client.delete(kind, obj.metadata.name, obj.metadata.namespace or None, uid=obj.metadata.uid)
    except StatusError as error:
        # 409: another object has its name by now.
        if not is_not_found(error) and error.code != 409:
            raise
