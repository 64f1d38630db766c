"""Requests that delete: one object or a collection."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields

from ..kinds.schemas.builtin import builtin_schemas
from ..registry import deletes, reads
from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition
from ..registry.go_types import type_error
from ..registry.registry import Registry
from . import bodies, options_check, reading, responses
from .call import Call
from .contexts import Contexts
from .reading import Reading
from .responses import Response

_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


class Deleting:
    """Answers delete and deletecollection."""

    def __init__(self, registry: Registry, contexts: Contexts, reading: Reading) -> None:
        self._registry = registry
        self._contexts = contexts
        self._reading = reading

    async def delete(self, call: Call, definition: ResourceDefinition) -> Response:
        """Answer a DELETE of one object. Raises StatusError."""
        options = await _delete_options(call)
        self._warn(call, definition, options)
        ctx = self._context(call, definition, options)
        deleted = await deletes.delete(self._registry, ctx, definition)
        if deleted.gone and not definition.strategy.returns_deleted_object:
            metadata = deleted.document["metadata"]
            if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds") is None:
                return _deletion_status(call, definition, deleted.document)
        status = 202 if not deleted.gone and options.get("orphanDependents") is False else 200
        return reading.document_response(call, definition, deleted.document, status)

    async def delete_collection(self, call: Call, definition: ResourceDefinition) -> Response:
        """Delete the objects that the list options match; the answer is the list before the deletion."""
        query = reading.list_query(call)
        wanted = reading.selected(call, definition)
        options = await _delete_options(call)
        self._warn(call, definition, options)
        prefix = f"{call.info.namespace}/" if definition.resource.namespaced else ""
        listing = await reads.list_items(self._registry, definition, prefix, query, wanted)
        for item in listing.items:
            ctx = self._context(call, definition, dict(options))
            ctx.name = item.path.rpartition("/")[2]
            with errors.ignoring(404):
                await deletes.delete(self._registry, ctx, definition)
        return await self._reading.list_response(call, definition, listing)

    @staticmethod
    def _warn(call: Call, definition: ResourceDefinition, options: JsonObject) -> None:
        warning = definition.strategy.orphaning_warning
        if warning and options.get("propagationPolicy") is None and options.get("orphanDependents") is None:
            call.warnings.append(warning)

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
        options = (await bodies.decoded(call.request, raw, bodies.media_type(call.request))).document
        _check_body(options, raw)
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


def _check_body(options: JsonObject, raw: bytes) -> None:
    """Refuse another kind (DeleteOptions belong to every group), and values of wrong types (400)."""
    kind = options.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise errors.bad_request(
            f"no kind {fields.go_quote(str(kind))} is registered for version "
            f'{fields.go_quote(str(options.get("apiVersion") or "meta.k8s.io/v1"))} in scheme "{_SCHEME}"'
        )
    problem = type_error(options, builtin_schemas().schema(_DELETE_OPTIONS), raw)
    if problem:
        raise errors.bad_request(problem)


def _deletion_status(call: Call, definition: ResourceDefinition, obj: JsonObject) -> Response:
    resource = definition.resource
    details = {"name": obj["metadata"]["name"], "group": resource.group, "kind": resource.plural}
    details["uid"] = obj["metadata"].get("uid", "")
    found = {key: value for key, value in details.items() if value}
    return responses.document_response(200, responses.success_status(found), call.media.type)
