"""Managed fields: who owns which field of an object, kept by every write."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import times
from kubecore.patch import apply, fieldset, managed
from kubecore.patch.fieldset import FieldSet
from kubecore.patch.managed import Write
from kubecore.schema.model import Schema

from .context import RequestContext
from .definition import ResourceDefinition, Subresource

_ANYTHING = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
_KEPT = ("apiVersion", "kind", "metadata", "status")


def _reset_fields(
    definition: ResourceDefinition, obj: JsonObject, subresource: Subresource | None
) -> FieldSet | None:
    """Fields that this kind of write never changes, whatever the client sends."""
    if subresource is None:
        names = definition.strategy.reset_fields
        if not names and "status" in definition.subresources:
            names = ("status",)
        return fieldset.of_fields(*names) if names else None
    if subresource.name == "status":
        return fieldset.of_fields(*(key for key in obj if key not in _KEPT))
    return None


def _write(
    definition: ResourceDefinition, obj: JsonObject, ctx: RequestContext, subresource: Subresource | None
) -> Write:
    through = subresource.name if subresource is not None else ""
    return Write(
        ctx.field_manager,
        definition.resource.api_version,
        "" if through == "scale" else times.now_rfc3339(),  # owners by way of scale carry no time
        through,
        _reset_fields(definition, obj, subresource),
        definition.strategy.blank(),
        definition.versions or None,
    )


def track_write(
    definition: ResourceDefinition,
    current: JsonObject | None,
    new: JsonObject,
    ctx: RequestContext,
    subresource: Subresource | None = None,
) -> None:
    """Set `new`'s managed fields for a create, update or patch by the request's field manager."""
    write = _write(definition, new, ctx, subresource)
    entries = managed.track_update(current, new, definition.schema or _ANYTHING, write)
    metadata = new["metadata"]
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def applied(
    definition: ResourceDefinition,
    current: JsonObject | None,
    configuration: JsonObject,
    ctx: RequestContext,
    *,
    force: bool,
    subresource: Subresource | None = None,
) -> JsonObject:
    """The object after a server-side apply. Raises StatusError, among them the conflicts."""
    metadata = configuration.get("metadata") or {}
    if current is None:
        if metadata.get("uid"):
            raise errors.conflict(
                definition.resource,
                ctx.name,
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object "
                "was found",
            )
        metadata.pop("resourceVersion", None)
    elif metadata.get("resourceVersion") not in (None, "", current["metadata"].get("resourceVersion")):
        raise errors.conflict(definition.resource, ctx.name)
    write = _write(definition, configuration, ctx, subresource)
    schema = definition.schema or _ANYTHING
    return deep_copy(apply.apply_object(current, configuration, schema, write, force=force))
