"""Requests that write: create, update and patch."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject, deep_copy

from ..registry import decoding, managed, object_meta, patches, writes
from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition
from ..registry.registry import Registry
from . import bodies, reading
from .call import Call
from .contexts import Contexts
from .media import OFFERED
from .reading import Reading
from .responses import Response

_PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


class Writing:
    """Answers create, update and patch, of objects and of their subresources."""

    def __init__(self, registry: Registry, contexts: Contexts, reading: Reading) -> None:
        self._registry = registry
        self._contexts = contexts
        self._reading = reading

    async def create(self, call: Call, definition: ResourceDefinition) -> Response:
        """Answer a POST: create an object, or have a virtual one (a review) answered. Raises StatusError."""
        ctx = self._contexts.for_write(call, definition, "create", "CreateOptions")
        obj = await self._body(call, definition, ctx)
        if definition.virtual is not None:
            if call.media.as_kind:
                raise errors.not_acceptable(OFFERED)
            if definition.resource.namespaced:
                _settle_namespace(definition, ctx, obj)
            object_meta.wipe_system_fields(obj["metadata"])
            object_meta.tidy(obj["metadata"])
            document = await definition.virtual(ctx, obj)
            return reading.document_response(call, definition, document, 201)
        _settle_namespace(definition, ctx, obj)
        ctx.name = str(obj["metadata"].get("name") or "")
        await ctx.run(managed.track_write, definition, None, obj, ctx)
        written = await writes.create(self._registry, ctx, definition, obj)
        return await self._reading.written_response(call, written, 201)

    async def update(self, call: Call, target: writes.Target) -> Response:
        """Answer a PUT of an object or subresource. Raises StatusError."""
        definition = target.definition
        ctx = self._contexts.for_write(call, definition, "update", "UpdateOptions")
        obj = await self._body(call, definition, ctx)
        _settle_namespace(definition, ctx, obj)
        object_meta.check_name(obj["metadata"].get("name"), ctx.name)

        async def change(current: JsonObject | None) -> JsonObject:
            new = deep_copy(obj)
            await ctx.run(managed.track_write, definition, current, new, ctx, target.subresource)
            return new

        written = await writes.update(self._registry, ctx, target, change)
        return await self._reading.written_response(call, written, 201 if written.created else 200)

    async def patch(self, call: Call, target: writes.Target) -> Response:
        """Answer a PATCH, which by apply may create the object. Raises StatusError."""
        definition = target.definition
        patch_type = patch_type_of(call, definition)
        ctx = self._contexts.for_write(
            call, definition, "apply" if patch_type == "apply" else "patch", "PatchOptions"
        )
        change = await self._patch_change(call, target, ctx, patch_type)
        written = await writes.update(self._registry, ctx, target, change, options_kind="PatchOptions")
        return await self._reading.written_response(call, written, 201 if written.created else 200)

    async def _patch_change(
        self, call: Call, target: writes.Target, ctx: RequestContext, patch_type: str
    ) -> writes.Change:
        raw = await bodies.read(call.request)
        ctx.weight = len(raw)
        if patch_type != "apply":
            return patches.change(target, ctx, patch_type, raw)
        document, repeated = await ctx.run(patches.decode_applied, raw)
        force = bool(ctx.options.get("force"))
        return patches.applying(target, ctx, document, repeated, force=force)

    async def _body(self, call: Call, definition: ResourceDefinition, ctx: RequestContext) -> JsonObject:
        """The decoded, checked, pruned and defaulted object of a create or update."""
        content_type = bodies.media_type(call.request)
        raw = await bodies.read(call.request)
        ctx.weight = len(raw)
        return await ctx.run(_decoded, definition, ctx, raw, content_type)


def _decoded(
    definition: ResourceDefinition, ctx: RequestContext, raw: bytes, content_type: str
) -> JsonObject:
    strict = ctx.options.get("fieldValidation") or "Warn"
    body = bodies.decode(raw, content_type, definition.resource.kind, check_duplicates=strict != "Ignore")
    if definition.custom and body.document.get("kind"):
        decoding.report_other_version(definition, body.document, strict, ctx)
    document: JsonObject = body.document
    resource = definition.resource
    if definition.custom:
        bodies.check_custom_kind(document, resource.api_version, raw, resource.kind)
    else:
        bodies.check_kind(document, resource.api_version, resource.kind)
    decoding.complete(definition, document, body.duplicates, strict, ctx, raw, body.repeated_keys)
    return document


def patch_type_of(call: Call, definition: ResourceDefinition) -> str:
    """The kind of patch that the Content-Type names. Raises StatusError (415)."""
    header = (call.request.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    found = _PATCH_TYPES.get(header)
    if found is None and not definition.custom:
        raise errors.StatusError(415, errors.UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type", {})
    if found is None or (found == "strategic" and definition.custom):
        supported = [name for name, kind in _PATCH_TYPES.items() if kind != "strategic"]
        raise errors.unsupported_media_type(supported)
    return found


def _settle_namespace(definition: ResourceDefinition, ctx: RequestContext, obj: JsonObject) -> None:
    """Give the object the namespace of the request; refuse another (400)."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    if not definition.resource.namespaced:
        metadata.pop("namespace", None)
        return
    object_meta.check_namespace(metadata, ctx.namespace)
    metadata["namespace"] = ctx.namespace
