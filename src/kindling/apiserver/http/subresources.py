"""Requests for subresources: status like an object, scale, and actions such as binding and eviction."""

from __future__ import annotations

from kubecore import errors

from ..kinds.machinery.printing import AGE, Column, Table, name_of, plain
from ..registry import decoding, object_meta, patches, scales, writes
from ..registry.admission import AdmissionAttributes
from ..registry.definition import ResourceDefinition, Subresource
from ..registry.registry import Registry
from . import bodies, reading, responses, writing
from .call import Call
from .contexts import Contexts
from .reading import Reading
from .responses import Response
from .writing import Writing

_SCALE_TABLE = Table(
    Column("Name", read=name_of),
    plain("Desired", "spec.replicas", absent=0, kind="integer"),
    plain("Available", "status.replicas", absent=0, kind="integer"),
    AGE,
)


class Subresources:
    """Answers requests for subresources that are no streams."""

    def __init__(self, registry: Registry, contexts: Contexts, reading: Reading, writing: Writing) -> None:
        self._registry = registry
        self._contexts = contexts
        self._reading = reading
        self._writing = writing

    async def handle(self, call: Call, definition: ResourceDefinition) -> Response:
        """Answer a request for a subresource that is no stream. Raises StatusError."""
        subresource = definition.subresources[call.info.subresource]
        verb = call.info.verb
        if verb not in ("get", "update", "patch", "create") or verb not in subresource.verbs:
            raise errors.method_not_allowed()
        if subresource.action is not None:
            return await self._action(call, definition, subresource)
        if subresource.scale is not None:
            return await self._scale(call, definition, subresource, verb)
        if verb == "get":
            return await self._reading.item_response(
                call, definition, self._reading.find(call, definition), 200
            )
        target = writes.Target(definition, subresource)
        return await (
            self._writing.update(call, target) if verb == "update" else self._writing.patch(call, target)
        )

    async def _action(self, call: Call, definition: ResourceDefinition, subresource: Subresource) -> Response:
        ctx = self._contexts.for_write(call, definition, "create", "CreateOptions")
        content_type = bodies.media_type(call.request)
        raw = await bodies.read(call.request)
        ctx.weight = len(raw)
        document = (await bodies.decoded(call.request, raw, content_type, subresource.kind)).document
        group = subresource.group or (definition.resource.group if not subresource.version else "")
        version = subresource.version or definition.resource.version
        api_version = f"{group}/{version}" if group else version
        older = [f"{group}/{each}" for each in subresource.older_versions]
        bodies.check_kind(document, api_version, subresource.kind, older)
        if subresource.schema is not None:
            await ctx.run(decoding.prune_body, subresource.schema, document)
        metadata = document.setdefault("metadata", {}) or {}
        document["metadata"] = metadata
        object_meta.check_namespace(metadata, ctx.namespace)
        if subresource.action is None:
            raise errors.method_not_allowed()
        attributes = AdmissionAttributes(
            ctx,
            definition,
            "CREATE",
            object=document,
            options=writes.options_document(ctx, "CreateOptions"),
            api_version=api_version,
            kind=subresource.kind,
        )
        await self._registry.chain.mutate(attributes)
        await self._registry.chain.validate(attributes)
        response = await subresource.action(ctx, attributes.object or document)
        status = 201
        if response.get("kind") == "Status":
            status = int(response.get("code") or 201)
        return responses.document_response(status, response, call.media.type, pretty=call.media.pretty)

    async def _scale(
        self, call: Call, definition: ResourceDefinition, subresource: Subresource, verb: str
    ) -> Response:
        if verb == "get":
            item = self._reading.find(call, definition)
            current = await self._registry.document(definition, item)
            document = scales.view(definition, subresource, current, must_exist=True)
            return reading.document_response(call, definition, document, 200, _SCALE_TABLE)
        kind = "UpdateOptions" if verb == "update" else "PatchOptions"
        if verb == "update":
            ctx = self._contexts.for_write(call, definition, "update", kind)
            raw = await bodies.read(call.request)
            body = (
                await bodies.decoded(call.request, raw, bodies.media_type(call.request), "Scale")
            ).document
            bodies.check_kind(body, "autoscaling/v1", "Scale")
            scales.check_body(ctx, body, raw)
            object_meta.check_name((body.get("metadata") or {}).get("name"), ctx.name)
            change = scales.replacement(definition, subresource, ctx, body)
        else:
            patch_type = writing.patch_type_of(call, definition)
            ctx = self._contexts.for_write(
                call, definition, "apply" if patch_type == "apply" else "patch", kind
            )
            raw = await bodies.read(call.request)
            if patch_type == "apply":
                ctx.weight = len(raw)
                document, _ = await ctx.run(patches.decode_applied, raw)
                force = bool(ctx.options.get("force"))
                change = scales.applied(definition, subresource, ctx, document, force=force)
            else:
                change = scales.patched(definition, subresource, ctx, patch_type, raw)
        target = writes.Target(definition, subresource)
        written = await writes.update(self._registry, ctx, target, change, options_kind=kind)
        document = scales.view(definition, subresource, written.document)
        return reading.document_response(call, definition, document, 200, _SCALE_TABLE)
