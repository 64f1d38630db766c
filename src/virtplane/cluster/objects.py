"""Helpers for objects decoded into structs: references, patches, and the original documents."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from kubecore.errors import StatusError, conflict, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.patch.guarded import guarded_patch, replacing, same_version
from kubecore.resources import ResourceType
from kubecore.runtime import Informer, Key
from virtplane.api.conditions import Condition
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta, OwnerReference
from virtplane.cluster.caches import Cluster, HasMetadata

logger = logging.getLogger(__name__)

Typed = TypeVar("Typed", bound=HasMetadata)

INVALID = "InvalidObject"
"""The event on an object that waits because a document, its own or another's, does not fit its type."""


class AnyObject(ApiStruct, kw_only=True):
    """What deleting needs of an object: one whose spec cannot be read can still be deleted."""

    metadata: ObjectMeta = ObjectMeta()


def any_object(informer: Informer[Typed], namespace: str, name: str) -> Typed | AnyObject | None:
    """The cached object; one that cannot be read as far as deleting needs it. Raises UnfitDocument."""
    try:
        return informer.get(namespace, name)
    except UnfitDocument as error:
        return decode(AnyObject, error.document)


def unfit_of(informer: Informer[Typed], owner: ObjectMeta) -> Iterator[tuple[UnfitDocument, AnyObject]]:
    """The objects managed by `owner` that are there but cannot be read: why, and what deleting needs of them.

    Raises UnfitDocument.
    """
    for error in informer.unfit.values():
        if error.namespace == owner.namespace:
            obj = decode(AnyObject, error.document)
            if obj.metadata.is_controlled_by(owner):
                yield error, obj


class Object(HasMetadata, Protocol):
    """An object of any kind, read as a struct."""

    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...


def described(obj: Object) -> JsonObject:
    """Kind and metadata as a document, for events, owner references and tests in patches."""
    return {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": encode(obj.metadata)}


def owners_patch(obj: HasMetadata, owners: Iterable[OwnerReference]) -> list[JsonObject]:
    """The operations that set the owner references of an object; none if it has them."""
    before = {"metadata": encode(obj.metadata)}
    after: JsonObject = {**before["metadata"], "ownerReferences": [encode(owner) for owner in owners]}
    if not after["ownerReferences"]:
        del after["ownerReferences"]
    return guarded_patch(before, {"metadata": after}, ("metadata",))


def finalizer_patch(metadata: ObjectMeta, finalizer: str, *, present: bool) -> list[JsonObject]:
    """Operations that add or remove `finalizer`; none where that is done."""
    if (finalizer in metadata.finalizers) == present:
        return []
    others = tuple(other for other in metadata.finalizers if other != finalizer)
    changed = replace(metadata, finalizers=(*others, finalizer) if present else others)
    return guarded_patch({"metadata": encode(metadata)}, {"metadata": encode(changed)}, ("metadata",))


def controller_reference(owner: Object, kind: ResourceType) -> OwnerReference:
    """The owner reference by which `owner` controls another object."""
    return decode(OwnerReference, meta.new_controller_ref(described(owner), kind))


def condition_documents(conditions: Iterable[Condition]) -> list[JsonObject]:
    """Conditions as KubeVirt writes them: both times are always present, and may be null."""
    times: JsonObject = {"lastProbeTime": None, "lastTransitionTime": None}
    return [times | encode(condition) for condition in conditions]


def status_patch(
    obj: Object, struct: type[msgspec.Struct], before: msgspec.Struct | None, after: JsonObject
) -> list[JsonObject]:
    """Operations that make `after` (a document of `struct`) of the status `before`, field by field.

    They hold at the very version of `obj` only. None where nothing changes; null and absent are the same,
    and so are an empty status and none: structs do not tell them apart.
    """
    old = encode(before) if before is not None else {}
    new = encode(decode(struct, after))
    if old == new:
        return []
    if not old:
        return [*same_version(described(obj)), {"op": "add", "path": "/status", "value": after}]
    operations: list[JsonObject] = []
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            operations.append(replacing([], f"/status/{key}", old.get(key), after.get(key)))
    return [*same_version(described(obj)), *operations]


async def as_written(cluster: Cluster, kind: ResourceType, obj: HasMetadata) -> JsonObject:
    """The document that `obj` was read from: what its user wrote is copied from it, fields unknown here too.

    Raises StatusError; a conflict where the object was written since.
    """
    found = await cluster.client.get(kind, obj.metadata.name, obj.metadata.namespace)
    if meta.resource_version(found) != obj.metadata.resource_version:
        raise conflict(kind, obj.metadata.name)
    return found


async def patch(
    cluster: Cluster,
    kind: ResourceType,
    obj: HasMetadata,
    operations: list[JsonObject],
    subresource: str | None = None,
    *,
    must_exist: bool = False,
) -> None:
    """Apply a JSON patch; an empty one asks nothing of the server. Raises StatusError.

    An object that is gone needs no patch, unless it `must_exist`.
    """
    if not operations:
        return
    name, namespace = obj.metadata.name, obj.metadata.namespace
    try:
        await cluster.client.patch(kind, name, operations, namespace, type="json", subresource=subresource)
    except StatusError as error:
        if must_exist or not is_not_found(error):
            raise


async def leave_unfit(
    cluster: Cluster, kind: ResourceType, key: Key, error: UnfitDocument, finalizer: str = ""
) -> None:
    """What becomes of an object that cannot be read: an event says why nothing is done until it is corrected.

    One that is being deleted loses `finalizer`. Raises StatusError.
    """
    logger.error("an object cannot be decoded and is ignored until it is corrected: %s", error)
    try:
        found = await cluster.client.get(kind, key[1], key[0])
    except StatusError as failure:
        if is_not_found(failure):
            return
        raise
    obj = decode(AnyObject, found)
    if not obj.metadata.is_being_deleted:
        cluster.recorder.event(found, "Warning", INVALID, str(error))
    elif finalizer:
        await patch(cluster, kind, obj, finalizer_patch(obj.metadata, finalizer, present=False))
