"""Requests that delete: one object or a collection."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject

from ..registry import deletes, reads
from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition
from ..registry.registry import Registry
from . import bodies, options_check, reading, responses
from .call import Call
from .contexts import Contexts
from .responses import Response


class Deleting:
    """Answers delete and deletecollection."""

    def __init__(self, registry: Registry, contexts: Contexts) -> None:
        self._registry = registry
        self._contexts = contexts

    async def delete(self, call: Call, definition: ResourceDefinition) -> Response:
        options = await _delete_options(call)
        ctx = self._context(call, definition, options)
        deleted = await deletes.delete(self._registry, ctx, definition)
        if deleted.gone and not definition.strategy.returns_deleted_object:
            metadata = deleted.document["metadata"]
            if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds") is None:
                return _deletion_status(call, definition, deleted.document)
        status = 202 if not deleted.gone and options.get("orphanDependents") is False else 200
        return reading.document_response(call, definition, deleted.document, status)

    async def delete_collection(self, call: Call, definition: ResourceDefinition) -> Response:
        query = reading.list_query(call)
        wanted = reading.selected(call, definition)
        options = await _delete_options(call)
        prefix = f"{call.info.namespace}/" if definition.resource.namespaced else ""
        listing = await reads.list_items(self._registry, definition, prefix, query, wanted)
        documents: list[JsonObject] = []
        for item in listing.items:
            ctx = self._context(call, definition, dict(options))
            ctx.name = item.path.rpartition("/")[2]
            try:
                deleted = await deletes.delete(self._registry, ctx, definition)
            except errors.StatusError as error:
                if errors.is_not_found(error):
                    continue
                raise
            documents.append(deleted.document)
        if definition.custom:
            listing.metadata.setdefault("continue", "")
        else:
            for document in documents:
                document.pop("kind", None)
                document.pop("apiVersion", None)
        body = {
            "kind": definition.list_kind,
            "apiVersion": definition.resource.api_version,
            "metadata": listing.metadata,
            "items": documents,
        }
        return responses.document_response(200, body, call.media.type, pretty=call.media.pretty)

    def _context(self, call: Call, definition: ResourceDefinition, options: JsonObject) -> RequestContext:
        ctx = self._contexts.of(call, definition, "delete")
        ctx.options = options
        ctx.dry_run = bool(options.get("dryRun"))
        return ctx


async def _delete_options(call: Call) -> JsonObject:
    """DeleteOptions of the body, or else of the query. Raises StatusError."""
    raw = await bodies.read(call.request)
    options: JsonObject = {}
    if raw:
        options = dict((await bodies.decoded(call.request, raw, bodies.media_type(call.request))).document)
    else:
        seconds = call.integer("gracePeriodSeconds")
        if seconds is not None:
            options["gracePeriodSeconds"] = seconds
        if "orphanDependents" in call.query:
            options["orphanDependents"] = call.flag("orphanDependents")
        if call.query.get("propagationPolicy"):
            options["propagationPolicy"] = call.query["propagationPolicy"]
    if "dryRun" in call.query:
        options["dryRun"] = call.query.getall("dryRun")
    options_check.check_delete_options(options)
    return options


def _deletion_status(call: Call, definition: ResourceDefinition, obj: JsonObject) -> Response:
    resource = definition.resource
    details = {"name": obj["metadata"]["name"], "group": resource.group, "kind": resource.plural}
    details["uid"] = obj["metadata"].get("uid", "")
    found = {key: value for key, value in details.items() if value}
    return responses.document_response(200, responses.success_status(found), call.media.type)
