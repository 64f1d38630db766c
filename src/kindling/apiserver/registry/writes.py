"""Creating and updating: one path for every kind, in the order the API promises (see ``definition``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import orjson

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import fields, times
from kubecore.resources import NAMESPACES

from ..storage.store import Conflict, Item
from . import decoding, encoding, object_meta, preconditions
from .admission import AdmissionAttributes
from .context import RequestContext
from .definition import ResourceDefinition, Strategy, Subresource
from .registry import Registry, Written, object_path, to_storage

_Outcome = TypeVar("_Outcome")
_GENERATE_ATTEMPTS = 8


def _warn_of_repeated_owners(ctx: RequestContext, metadata: JsonObject, when: str) -> None:
    """Drop owner references that occur twice, and say so."""
    repeated = object_meta.deduplicate_owners(metadata)
    if repeated:
        ctx.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references "
            "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
            f"duplicate UID(s) observed: {repeated}"
        )


@dataclass(slots=True)
class Target:
    """The target of a write: the resource itself, or a subresource of the same object."""

    definition: ResourceDefinition
    subresource: Subresource | None = None

    @property
    def strategy(self) -> Strategy:
        """The rules of this endpoint."""
        if self.subresource is not None and self.subresource.strategy is not None:
            return self.subresource.strategy
        return self.definition.strategy


Change = Callable[[JsonObject | None], Awaitable[JsonObject]]
"""Makes the wanted object from the current one (a copy of its own, in the definition's version; None when
there is none). Called again when somebody else wrote in between. Raises StatusError."""


def invalid(
    definition: ResourceDefinition, name: str, problems: list[fields.FieldError], obj: JsonObject
) -> errors.StatusError:
    """422 for this kind, in the group in which its objects are kept (events have two).

    Custom resources are named by the kind that they claim.
    """
    group = definition.storage_version.rpartition("/")[0]
    kind = str(obj.get("kind") or "") if definition.custom else ""
    return errors.invalid(kind or definition.resource.kind, group, name, problems)


def options_document(ctx: RequestContext, kind: str) -> JsonObject:
    """The request's options as admission reviews carry them; a patch is shown as the update it makes."""
    kind = "UpdateOptions" if kind == "PatchOptions" else kind
    options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if ctx.dry_run:
        options["dryRun"] = ["All"]
    hidden = ("kind", "apiVersion", "force")
    options.update({key: value for key, value in ctx.options.items() if key not in hidden})
    return options


async def create(
    registry: Registry, ctx: RequestContext, definition: ResourceDefinition, obj: JsonObject
) -> Written:
    """Store a new object; `obj` is decoded and defaulted, and becomes the stored document."""
    try:
        written = await _create(registry, ctx, Target(definition), obj)
    except BaseException:
        undo(ctx)
        raise
    await finish(ctx)
    return written


async def _create(registry: Registry, ctx: RequestContext, target: Target, obj: JsonObject) -> Written:
    definition = target.definition
    metadata: JsonObject = obj.setdefault("metadata", {})
    object_meta.wipe_system_fields(metadata)
    _warn_of_repeated_owners(ctx, metadata, "")
    options = options_document(ctx, "CreateOptions")
    redefault = decoding.redefault(definition)
    attributes = AdmissionAttributes(ctx, definition, "CREATE", obj, None, options, redefault)
    await registry.admission(ctx).mutate(attributes)
    obj = attributes.object or obj
    metadata = obj["metadata"]
    _warn_of_repeated_owners(ctx, metadata, " after mutating admission happens")
    object_meta.fill_system_fields(metadata, times.now_rfc3339())
    generate = str(metadata.get("generateName") or "") if not metadata.get("name") else ""
    if not generate:
        return await _store_new(registry, ctx, attributes, obj)
    for attempt in range(_GENERATE_ATTEMPTS):
        metadata["name"] = object_meta.generated_name(generate)
        try:
            return await _store_new(registry, ctx, attributes, deep_copy(obj))
        except errors.StatusError as error:
            undo(ctx)
            if not errors.is_already_exists(error) or attempt == _GENERATE_ATTEMPTS - 1:
                raise
    raise errors.generate_name_conflict(definition.resource, str(metadata["name"]))


async def _store_new(
    registry: Registry, ctx: RequestContext, attributes: AdmissionAttributes, obj: JsonObject
) -> Written:
    """From prepare_for_create to the disk."""
    definition = attributes.definition
    strategy = definition.strategy
    metadata = obj["metadata"]
    name = str(metadata.get("name") or "")
    path = object_path(definition, ctx.namespace, name)
    ctx.name = name
    strategy.prepare_for_create(ctx, obj)
    object_meta.tidy(metadata)
    await ctx.run(_check_new, ctx, definition, obj)
    attributes.object = obj
    await registry.admission(ctx).validate(attributes)
    if ctx.dry_run:
        if registry.store.newest(definition.storage_prefix, path) is not None:
            _refuse_existing(registry, definition, path, name)
        return Written(definition, None, obj, created=True)
    # Checked last, as in Kubernetes, where storage refuses it; dry runs store nothing.
    if metadata.pop("resourceVersion", None) not in (None, "", "0"):
        raise errors.plain_internal("resourceVersion should not be set on objects to be created")
    registry.room.for_new(ctx, definition)
    stored = await to_storage(definition, obj)
    try:
        item = await registry.store.put(definition.storage_prefix, path, encoder(stored), None)
    except Conflict:
        _refuse_existing(registry, definition, path, name)
        raise
    metadata["resourceVersion"] = str(item.revision)
    strategy.after_write(ctx, obj, None)
    return Written(definition, item, obj, created=True)


def _check_new(ctx: RequestContext, definition: ResourceDefinition, obj: JsonObject) -> None:
    """Validate, warn and canonicalize. Raises StatusError (422)."""
    strategy = definition.strategy
    problems = object_meta.validate(definition, strategy, obj) + strategy.validate(ctx, obj)
    if problems:
        raise invalid(definition, str(obj["metadata"].get("name") or ""), problems, obj)
    for message in strategy.warnings(ctx, obj, None):
        ctx.warn(message)
    strategy.canonicalize(obj)


def _refuse_existing(registry: Registry, definition: ResourceDefinition, path: str, name: str) -> None:
    item = registry.store.newest(definition.storage_prefix, path)
    being_deleted = False
    if item is not None:
        being_deleted = bool((item.document().get("metadata") or {}).get("deletionTimestamp"))
    raise errors.already_exists(definition.resource, name, being_deleted=being_deleted)


def encoder(document: JsonObject) -> Callable[[int], bytes]:
    """Encodes `document` once its revision is known."""

    def encode(revision: int) -> bytes:
        document["metadata"]["resourceVersion"] = str(revision)
        return encoding.encode(document)

    return encode


async def update(
    registry: Registry,
    ctx: RequestContext,
    target: Target,
    change: Change,
    *,
    options_kind: str = "UpdateOptions",
) -> Written:
    """Update the object with `change`; creates it if the kind allows that."""
    definition = target.definition
    path = object_path(definition, ctx.namespace, ctx.name)

    async def attempt() -> Written:
        current = registry.store.newest(definition.storage_prefix, path)
        return await _update_once(registry, ctx, target, current, change, options_kind)

    return await until_settled(ctx, attempt)


async def until_settled(ctx: RequestContext, attempt: Callable[[], Awaitable[_Outcome]]) -> _Outcome:
    """What comes of `attempt`, which is made again while others write in between."""
    try:
        while True:
            try:
                outcome = await attempt()
                break
            except Conflict:
                undo(ctx)
    except BaseException:
        undo(ctx)
        raise
    await finish(ctx)
    return outcome


async def _update_once(
    registry: Registry,
    ctx: RequestContext,
    target: Target,
    current: Item | None,
    change: Change,
    options_kind: str,
) -> Written:
    definition, strategy = target.definition, target.strategy
    if current is None:
        return await _create_on_update(registry, ctx, target, change)
    ctx.weight = max(ctx.weight, len(current.value))
    old = await registry.document(definition, current, ctx)
    new = await change(await ctx.run(deep_copy, old))
    metadata: JsonObject = new.setdefault("metadata", {})
    # Checked before admission, like a precondition.
    if ctx.verb == "update" and metadata.get("uid") and metadata["uid"] != old["metadata"]["uid"]:
        raise preconditions.wrong_uid(definition, ctx, str(metadata["uid"]), str(old["metadata"]["uid"]))
    _warn_of_repeated_owners(ctx, metadata, "")
    options = options_document(ctx, options_kind)
    redefault = decoding.redefault(definition)
    attributes = AdmissionAttributes(ctx, definition, "UPDATE", new, old, options, redefault)
    await registry.admission(ctx).mutate(attributes)
    new = attributes.object or new
    metadata = new["metadata"]
    _warn_of_repeated_owners(ctx, metadata, " after mutating admission happens")
    preconditions.check_resource_version(ctx, definition, strategy, metadata, current)
    metadata["resourceVersion"] = str(current.revision)
    object_meta.carry_over(metadata, old["metadata"])
    strategy.prepare_for_update(ctx, new, old)
    object_meta.tidy(metadata)
    await ctx.run(_check_changed, ctx, target, new, old)
    attributes.object = new
    await registry.admission(ctx).validate(attributes)
    return await _store_changed(registry, ctx, target, current, new, old)


def _check_changed(ctx: RequestContext, target: Target, new: JsonObject, old: JsonObject) -> None:
    """Count the generation, validate, warn and canonicalize. Raises StatusError (422)."""
    strategy, metadata = target.strategy, new["metadata"]
    if strategy.generation_changed(new, old):
        metadata["generation"] = int(old["metadata"].get("generation") or 0) + 1
    problems = object_meta.validate_update(target.definition, strategy, new, old)
    problems += strategy.validate_update(ctx, new, old)
    if problems:
        raise invalid(target.definition, ctx.name, problems, new)
    for message in strategy.warnings(ctx, new, old):
        ctx.warn(message)
    strategy.canonicalize(new)


async def _store_changed(
    registry: Registry,
    ctx: RequestContext,
    target: Target,
    current: Item,
    new: JsonObject,
    old: JsonObject,
) -> Written:
    definition = target.definition
    metadata = new["metadata"]
    is_same = await ctx.run(_is_same, new, old)
    if registry.store.newest(current.bucket, current.path) is not current:
        raise Conflict(None)
    if ctx.dry_run:
        return Written(definition, None, new)
    gone = not metadata.get("finalizers") and _is_last_finalizer_gone(metadata, old["metadata"])
    gone = gone and not _holds_content(definition, new)
    if not gone and is_same:
        return Written(definition, current, new)
    stored = await to_storage(definition, new)
    store = registry.store
    if gone:
        # Watchers see the object as it was last stored; the caller sees what it sent.
        item = await store.delete(current.bucket, current.path, encoder(current.document()), current)
        metadata["resourceVersion"] = str(item.revision)
        definition.strategy.after_delete(ctx, new)
        return Written(definition, None, new)
    registry.room.for_change(ctx, definition, current, stored)
    item = await store.put(current.bucket, current.path, encoder(stored), current)
    metadata["resourceVersion"] = str(item.revision)
    target.strategy.after_write(ctx, new, old)
    return Written(definition, item, new)


async def _create_on_update(
    registry: Registry, ctx: RequestContext, target: Target, change: Change
) -> Written:
    definition = target.definition
    if target.subresource is not None or not (
        definition.strategy.allow_create_on_update or ctx.verb == "apply"
    ):
        raise errors.not_found(definition.resource, ctx.name)
    new = await change(None)
    uid = new.get("metadata", {}).get("uid")
    if uid:
        raise preconditions.wrong_uid(definition, ctx, str(uid), "")
    if new["metadata"].get("resourceVersion") not in (None, "", "0"):
        raise errors.conflict(definition.resource, ctx.name)
    ctx.check_create()
    return await _create(registry, ctx, target, new)


def _is_last_finalizer_gone(new: JsonObject, old: JsonObject) -> bool:
    """Whether this update removes the last finalizer of an object being deleted, which is then removed."""
    return bool(old.get("deletionTimestamp")) and not old.get("deletionGracePeriodSeconds")


def _holds_content(definition: ResourceDefinition, new: JsonObject) -> bool:
    """Whether a namespace still has finalizers in its spec, which stand for its content."""
    return definition.resource == NAMESPACES and bool(new.get("spec", {}).get("finalizers"))


def _is_same(new: JsonObject, old: JsonObject) -> bool:
    # Python takes 1, 1.0 and True for equal; the encoded form does not.
    return new == old and (
        orjson.dumps(new, option=orjson.OPT_SORT_KEYS) == orjson.dumps(old, option=orjson.OPT_SORT_KEYS)
    )


def undo(ctx: RequestContext) -> None:
    """Take back what a write that failed has allocated, last first; nothing of what it deferred runs."""
    while ctx.rollbacks:
        ctx.rollbacks.pop()()
    ctx.commits.clear()


async def finish(ctx: RequestContext) -> None:
    """A dry run releases its allocations; a real write runs what was deferred until it is durable."""
    if ctx.dry_run:
        undo(ctx)
        return
    ctx.rollbacks.clear()
    actions, ctx.commits = ctx.commits, []
    for action in actions:
        outcome = action()
        if outcome is not None:
            await outcome
