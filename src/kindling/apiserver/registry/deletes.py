"""Deleting: preconditions, grace periods, finalizers and propagation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import times
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES

from ..storage.store import Item
from .admission import AdmissionAttributes
from .context import RequestContext
from .definition import ResourceDefinition
from .registry import Registry, object_path, to_storage
from .writes import encoder, options_document, until_settled

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_IN_PHASES = (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS)
"""Kinds whose contents go first; they check preconditions by themselves."""


@dataclass(slots=True)
class Deleted:
    """The outcome: `document` is the object (as it was, or as it waits for its end)."""

    document: JsonObject
    gone: bool
    """The object does not exist any more."""


async def delete(registry: Registry, ctx: RequestContext, definition: ResourceDefinition) -> Deleted:
    """Delete, or start to delete, the object that `ctx` names; ``ctx.options`` is the DeleteOptions."""
    path = object_path(definition, ctx.namespace, ctx.name)

    async def attempt() -> Deleted:
        current = registry.store.newest(definition.storage_prefix, path)
        if current is None:
            raise errors.not_found(definition.resource, ctx.name)
        return await _delete_once(registry, ctx, definition, current)

    return await until_settled(ctx, attempt)


async def _delete_once(
    registry: Registry, ctx: RequestContext, definition: ResourceDefinition, current: Item
) -> Deleted:
    strategy = definition.strategy
    old = await registry.document(definition, current)
    _check_preconditions(definition, ctx, old)
    options = options_document(ctx, "DeleteOptions")
    attributes = AdmissionAttributes(ctx, definition, "DELETE", None, old, options, strategy.default)
    await registry.admission(ctx).mutate(attributes)
    await registry.admission(ctx).validate(attributes)
    replacement = strategy.before_delete(ctx, deep_copy(old))
    if replacement is not None:
        return await _keep(registry, ctx, definition, current, replacement)
    obj = deep_copy(old)
    graceful, pending = _begin_grace(ctx, definition, obj)
    if pending:
        return Deleted(old, gone=False)
    metadata = obj["metadata"]
    finalizers = wanted_finalizers(
        metadata.get("finalizers") or [], ctx.options, strategy.default_propagation
    )
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if finalizers:
        if not graceful:
            _mark_as_deleting(metadata)
        return await _keep(registry, ctx, definition, current, obj)
    if graceful and metadata.get("deletionGracePeriodSeconds"):
        return await _keep(registry, ctx, definition, current, obj)
    return await _remove(registry, ctx, definition, current, obj)


async def _keep(
    registry: Registry, ctx: RequestContext, definition: ResourceDefinition, current: Item, obj: JsonObject
) -> Deleted:
    """Store the dying object."""
    if not ctx.dry_run and obj != await registry.document(definition, current):
        stored = await to_storage(definition, obj)
        item = await registry.store.put(current.bucket, current.path, encoder(stored), current)
        obj["metadata"]["resourceVersion"] = str(item.revision)
    return Deleted(obj, gone=False)


async def _remove(
    registry: Registry, ctx: RequestContext, definition: ResourceDefinition, current: Item, obj: JsonObject
) -> Deleted:
    if not ctx.dry_run:
        stored = await to_storage(definition, deep_copy(obj))
        item = await registry.store.delete(current.bucket, current.path, encoder(stored), current)
        if "deletionTimestamp" in obj["metadata"]:
            obj["metadata"]["resourceVersion"] = str(item.revision)
        definition.strategy.after_delete(ctx, obj)
    return Deleted(obj, gone=True)


def _check_preconditions(definition: ResourceDefinition, ctx: RequestContext, old: JsonObject) -> None:
    preconditions = ctx.options.get("preconditions") or {}
    metadata = old["metadata"]
    if definition.resource in _IN_PHASES:
        for name, key in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
            wanted, found = preconditions.get(key), metadata.get(key)
            if wanted is not None and wanted != found:
                problem = f"{name} in precondition: {wanted}, {name} in object meta: {found}"
                raise errors.conflict(definition.resource, ctx.name, f"Precondition failed: {problem}")
    kind = definition.resource.kind
    named = f"{kind}.{definition.resource.group}" if definition.resource.group else kind
    for name, key, change in (
        ("UID", "uid", "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", "modified"),
    ):
        wanted, found = preconditions.get(key), metadata.get(key)
        if wanted is not None and wanted != found:
            problem = (
                f"the {name} in the precondition ({wanted}) does not match the {name} in record ({found})"
            )
            raise errors.conflict(named, ctx.name, f"{problem}. The object might have been {change}")


def _begin_grace(ctx: RequestContext, definition: ResourceDefinition, obj: JsonObject) -> tuple[bool, bool]:
    """Returns (the object has a new grace period, an earlier one is still running). Changes `obj`."""
    metadata = obj["metadata"]
    requested = ctx.options.get("gracePeriodSeconds")
    requested = requested if isinstance(requested, int) else None
    seconds = definition.strategy.grace_period(ctx, obj, requested)
    if seconds is None:
        return False, False
    if metadata.get("deletionTimestamp"):
        running = metadata.get("deletionGracePeriodSeconds")
        if running is None:
            return False, False
        if requested is None or requested >= running:
            return False, True
        started = times.parse_time(str(metadata["deletionTimestamp"])).timestamp() - int(running)
        metadata["deletionTimestamp"] = _rfc3339(started + requested)
        metadata["deletionGracePeriodSeconds"] = requested
        return True, False
    metadata["deletionTimestamp"] = _rfc3339(times.now().timestamp() + seconds)
    metadata["deletionGracePeriodSeconds"] = seconds
    if metadata.get("generation"):
        metadata["generation"] += 1
    return True, False


def _mark_as_deleting(metadata: JsonObject) -> None:
    """An object that waits for nothing but its finalizers."""
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = times.now_rfc3339()
        if metadata.get("generation"):
            metadata["generation"] += 1
    metadata["deletionGracePeriodSeconds"] = 0


def _rfc3339(seconds: float) -> str:
    return times.format_time(datetime.fromtimestamp(seconds, UTC))


def wanted_finalizers(present: list[str], options: JsonObject, default_propagation: str) -> list[str]:
    """The finalizers of an object to be deleted, with those of the garbage collector by the delete
    options.
    """
    policy = options.get("propagationPolicy")
    orphan_dependents = options.get("orphanDependents")
    if policy is None and orphan_dependents is not None:
        policy = "Orphan" if orphan_dependents else "Background"
    if policy is None:
        if ORPHAN in present:
            policy = "Orphan"
        elif FOREGROUND in present:
            policy = "Foreground"
        else:
            policy = default_propagation
    kept = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        kept.append(ORPHAN)
    elif policy == "Foreground":
        kept.append(FOREGROUND)
    return kept
