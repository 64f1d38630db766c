"""Requests for objects: from a parsed call to the registry's operations and back to an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import fields

from ..registry import decoding, deletes, encoding, managed, patches, reads, scales, writes
from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition, Subresource
from ..registry.objects import ServerObjects
from ..registry.reads import ListQuery, Matcher
from ..registry.registry import Registry, Written, object_path
from ..storage.store import Item
from . import answers, bodies, options_check, tables
from .answers import Answer
from .call import Call, write_options
from .connection import Connection
from .media import JSON, OFFERED, PARTIAL, PARTIAL_LIST, TABLE, YAML
from .request_info import RequestInfo
from .watching import Watch, WatchQuery

_WATCH_TYPES = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

Connector = Callable[[Call, ResourceDefinition, Subresource], Awaitable[web.StreamResponse]]
"""Serves a streaming subresource (log, exec, proxy, ...)."""


_NO_PAGE = "404 page not found\n"


class ResourceApi:
    """Serves every resource of the catalog."""

    def __init__(self, registry: Registry, objects: ServerObjects, connect: Connector) -> None:
        self._registry = registry
        self._objects = objects
        self._connect = connect

    def is_custom(self, info: RequestInfo) -> bool:
        """Whether the request is about a custom resource."""
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        return definition is not None and definition.custom

    async def handle(self, call: Call) -> Answer | web.StreamResponse:
        """Answer a request for a resource. Raises StatusError."""
        info = call.info
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        if definition is None or self._is_no_page(definition, call):
            if definition or not self._registry.catalog.in_group_version(info.group, info.version):
                return answers.text_answer(404, _NO_PAGE)
            raise errors.page_not_found()
        if definition.deprecation_warning:
            call.warnings.append(definition.deprecation_warning)
        self._check_path(definition, call)
        if info.subresource:
            return await self._subresource(call, definition)
        if info.name and not info.watch_prefix and info.verb not in ("list", "watch"):
            return await self._handle_item(call, definition)
        method = call.request.method
        if method in ("GET", "HEAD"):
            if info.verb == "watch":
                self._need(definition, "watch")
                return await self._watch(call, definition)
            self._need(definition, "list")
            return await self._list(call, definition)
        if definition.resource.namespaced and not info.namespace:
            raise errors.method_not_allowed()
        if method == "POST":
            self._need(definition, "create")
            return await self._create(call, definition)
        if method == "DELETE":
            self._need(definition, "deletecollection")
            return await self._delete_collection(call, definition)
        raise errors.method_not_allowed()

    async def _handle_item(self, call: Call, definition: ResourceDefinition) -> Answer:
        """A request for one object by name."""
        method = call.request.method
        if method in ("GET", "HEAD"):
            return await self._get(call, definition)
        if method == "PUT":
            self._need(definition, "update")
            return await self._update(call, writes.Target(definition))
        if method == "PATCH":
            self._need(definition, "patch")
            return await self._patch(call, writes.Target(definition))
        if method == "DELETE":
            self._need(definition, "delete")
            return await self._delete(call, definition)
        if method == "POST" and definition.custom:
            # The paths of custom resources are not routed by method: the name in the URL goes unread.
            self._need(definition, "create")
            return await self._create(call, definition)
        raise errors.method_not_allowed()

    @staticmethod
    def _need(definition: ResourceDefinition, verb: str) -> None:
        if verb not in definition.verbs:
            raise errors.method_not_allowed()

    @staticmethod
    def _is_no_page(definition: ResourceDefinition, call: Call) -> bool:
        """Whether a path below a custom resource leads nowhere. Raises StatusError for its subresources."""
        if not definition.custom:
            return False
        info = call.info
        if info.subresource and info.subresource not in definition.subresources:
            raise errors.not_found(definition.resource, info.name)
        return bool(info.namespace) and not definition.resource.namespaced

    @staticmethod
    def _check_path(definition: ResourceDefinition, call: Call) -> None:
        """404 for paths that no resource of this kind has."""
        info = call.info
        named = len(info.parts) > 1
        if definition.resource.namespaced:
            if named and not info.namespace:
                raise errors.page_not_found()
        elif info.namespace and info.resource != "namespaces":
            raise errors.page_not_found()
        if any(not part or "/" in part for part in info.parts[:2]):
            raise errors.page_not_found()
        if named and definition.virtual is not None:
            raise errors.page_not_found()
        if info.subresource and info.subresource not in definition.subresources:
            raise errors.page_not_found()
        if len(info.parts) > 3 and not definition.subresources[info.subresource].connect:
            raise errors.page_not_found()

    def context(self, call: Call, definition: ResourceDefinition, verb: str) -> RequestContext:
        """The context of an operation."""
        info = call.info
        namespaced = definition.resource.namespaced
        return RequestContext(
            user=call.user,
            verb=verb,
            resource=definition.resource,
            namespace=info.namespace if namespaced else "",
            name=info.name,
            subresource=info.subresource,
            objects=self._objects,
            addresses=self._registry.addresses,
            warnings=call.warnings,
        )

    def _write_context(
        self, call: Call, definition: ResourceDefinition, verb: str, kind: str
    ) -> RequestContext:
        options = write_options(call, kind)
        ctx = self.context(call, definition, verb)
        ctx.dry_run = options.dry_run
        ctx.field_manager = options.field_manager or call.user_agent_manager
        ctx.options = options.document()
        if options.field_manager:
            ctx.options["fieldManager"] = options.field_manager
        return ctx

    # --- reading

    async def _get(self, call: Call, definition: ResourceDefinition) -> Answer:
        self._need(definition, "get")
        item = self._find(call, definition)
        return await self._item_answer(call, definition, item, 200)

    def _find(self, call: Call, definition: ResourceDefinition) -> Item:
        store, info = self._registry.store, call.info
        version = call.query.get("resourceVersion", "")
        if version and version != "0":
            wanted = writes.parse_list_version(version)
            if wanted > store.revision:
                raise errors.too_large_resource_version(wanted, store.revision)
        path = object_path(definition, info.namespace, info.name)
        item = store.get(definition.storage_prefix, path)
        if item is None:
            raise errors.not_found(definition.resource, info.name)
        return item

    async def _item_answer(
        self, call: Call, definition: ResourceDefinition, item: Item, status: int
    ) -> Answer:
        wanted = call.media
        if not wanted.as_kind and wanted.type == JSON and not wanted.pretty:
            return Answer(status, (await self._registry.values(definition, [item]))[0])
        document = await self._registry.document(definition, item)
        return self._document_answer(call, definition, document, status)

    def _document_answer(
        self, call: Call, definition: ResourceDefinition, document: JsonObject, status: int
    ) -> Answer:
        wanted = call.media
        if wanted.as_kind:
            tables.check_shape(definition, wanted, is_list=False)
        if wanted.as_kind == TABLE:
            include = tables.include_object(call.query.get("includeObject"))
            version = document.get("metadata", {}).get("resourceVersion")
            metadata = {"resourceVersion": version} if version else {}
            document = tables.table(
                definition, [document], metadata, version=wanted.as_version, include=include
            )
        elif wanted.as_kind == PARTIAL:
            document = tables.partial(document, wanted.as_version)
        return answers.document_answer(status, document, wanted.type, pretty=wanted.pretty)

    async def _written_answer(self, call: Call, written: Written, status: int) -> Answer:
        if written.item is not None:
            return await self._item_answer(call, written.definition, written.item, status)
        return self._document_answer(call, written.definition, written.document, status)

    def _selected(self, call: Call, definition: ResourceDefinition) -> Matcher:
        return reads.matcher(
            definition, call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
        )

    def _list_query(self, call: Call) -> ListQuery:
        limit = call.integer("limit") or 0
        query = ListQuery(
            max(limit, 0),
            call.query.get("continue", ""),
            call.query.get("resourceVersion", ""),
            call.query.get("resourceVersionMatch", ""),
        )
        options_check.check_list_options(call, query, watch=False)
        return query

    async def _list(self, call: Call, definition: ResourceDefinition) -> Answer:
        query = self._list_query(call)
        wanted = self._selected(call, definition)
        prefix = f"{call.info.namespace}/" if definition.resource.namespaced and call.info.namespace else ""
        listing = reads.list_items(self._registry.store, definition.storage_prefix, prefix, query, wanted)
        if not definition.recorded:
            listing.metadata.pop("resourceVersion")
        media = call.media
        if media.as_kind:
            tables.check_shape(definition, media, is_list=True)
            documents = await self._registry.documents(definition, listing.items)
            if media.as_kind == TABLE:
                include = tables.include_object(call.query.get("includeObject"))
                document = tables.table(
                    definition, documents, listing.metadata, version=media.as_version, include=include
                )
            else:
                document = tables.partial_list(listing.metadata, documents, media.as_version)
            return answers.document_answer(200, document, media.type, pretty=media.pretty)
        values = await self._registry.values(definition, listing.items)
        if definition.custom:
            listing.metadata.setdefault("continue", "")
        cut = 0 if definition.custom else len(encoding.header(definition))
        body = encoding.encode_list(
            definition.list_kind, definition.resource.api_version, listing.metadata, values, cut
        )
        if media.type != JSON or media.pretty:
            return answers.document_answer(200, orjson.loads(body), media.type, pretty=media.pretty)
        return Answer(200, body)

    async def _watch(self, call: Call, definition: ResourceDefinition) -> web.StreamResponse:
        if call.media.type == YAML:
            raise errors.not_acceptable([_WATCH_TYPES])
        query = WatchQuery(
            call.query.get("resourceVersion", ""),
            float(call.integer("timeoutSeconds") or 0),
            call.flag("allowWatchBookmarks"),
            call.optional_flag("sendInitialEvents"),
        )
        options_check.check_list_options(
            call,
            ListQuery(
                0,
                call.query.get("continue", ""),
                query.resource_version,
                call.query.get("resourceVersionMatch", ""),
            ),
            watch=True,
        )
        if query.resource_version:
            writes.parse_list_version(query.resource_version)
        wanted = self._selected(call, definition)
        if definition.resource.namespaced and call.info.namespace:
            query.prefix = f"{call.info.namespace}/"
        watch = Watch(
            self._registry,
            definition,
            query,
            wanted,
            head=encoding.header(definition),
            render=self._renderer(call, definition),
            frame_key=(
                definition,
                call.media.as_kind,
                call.media.as_version,
                call.query.get("includeObject"),
            ),
            bookmark=self._bookmark(call, definition),
        )
        response = web.StreamResponse(headers={"Content-Type": JSON, **_common_headers(call)})
        for text in call.warnings:
            response.headers.add(*answers.warning_header(text))
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        await response.write(b"")
        connection = call.request.protocol
        if isinstance(connection, Connection):
            connection.closers.add(watch.ended)
        try:
            await watch.run(response, call.request)
        finally:
            if isinstance(connection, Connection):
                connection.closers.discard(watch.ended)
        if call.request.transport is not None and not call.request.transport.is_closing():
            await response.write_eof()
        return response

    def _renderer(
        self, call: Call, definition: ResourceDefinition
    ) -> Callable[[Item, str], Awaitable[bytes]] | None:
        media = call.media
        if not media.as_kind:
            return None
        include = tables.include_object(call.query.get("includeObject"))

        async def render(item: Item, event_type: str) -> bytes:
            document = await self._registry.document(definition, item)
            if media.as_kind == TABLE:
                metadata = {"resourceVersion": str(item.revision)}
                return orjson.dumps(
                    tables.table(definition, [document], metadata, version=media.as_version, include=include)
                )
            return orjson.dumps(tables.partial(document, media.as_version))

        return render

    @staticmethod
    def _bookmark(call: Call, definition: ResourceDefinition) -> Callable[[int, JsonObject], bytes]:
        resource = definition.resource
        kind, api_version = resource.kind, resource.api_version
        if call.media.as_kind in (PARTIAL, PARTIAL_LIST):
            kind, api_version = PARTIAL, f"meta.k8s.io/{call.media.as_version}"

        def render(revision: int, extra: JsonObject) -> bytes:
            metadata = {"resourceVersion": str(revision), **extra}
            document: JsonObject = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
            if call.media.as_kind == TABLE:
                document = tables.table(definition, [], {"resourceVersion": str(revision)})
            return orjson.dumps(document)

        return render

    # --- writing

    async def _body(self, call: Call, definition: ResourceDefinition, ctx: RequestContext) -> JsonObject:
        """The decoded, checked, pruned and defaulted object of a create or update."""
        content_type = bodies.media_type(call.request)
        raw = await bodies.read(call.request)
        strict = ctx.options.get("fieldValidation") or "Warn"
        body = bodies.decode(raw, content_type, definition.resource.kind, check_duplicates=strict != "Ignore")
        if definition.custom:
            decoding.report_other_version(definition, body.document, strict, ctx)
        bodies.check_kind(
            body.document, definition.resource.api_version, definition.resource.kind, custom=definition.custom
        )
        document: JsonObject = body.document
        decoding.complete(definition, document, body.duplicates, strict, ctx, raw)
        return document

    async def _create(self, call: Call, definition: ResourceDefinition) -> Answer:
        ctx = self._write_context(call, definition, "create", "CreateOptions")
        obj = await self._body(call, definition, ctx)
        if definition.virtual is not None:
            if call.media.as_kind:
                raise errors.not_acceptable(OFFERED)
            if definition.resource.namespaced:
                _settle_namespace(definition, ctx, obj)
            document = await definition.virtual(ctx, obj)
            return self._document_answer(call, definition, document, 201)
        _settle_namespace(definition, ctx, obj)
        ctx.name = str(obj["metadata"].get("name") or "")
        managed.track_write(definition, None, obj, ctx)
        written = await writes.create(self._registry, ctx, definition, obj)
        return await self._written_answer(call, written, 201)

    async def _update(self, call: Call, target: writes.Target) -> Answer:
        definition = target.definition
        ctx = self._write_context(call, definition, "update", "UpdateOptions")
        obj = await self._body(call, definition, ctx)
        _settle_namespace(definition, ctx, obj)
        _check_name(ctx.name, obj)

        async def change(current: JsonObject | None) -> JsonObject:
            new = deep_copy(obj)
            managed.track_write(definition, current, new, ctx, target.subresource)
            return new

        written = await writes.update(self._registry, ctx, target, change)
        return await self._written_answer(call, written, 201 if written.created else 200)

    async def _patch(self, call: Call, target: writes.Target) -> Answer:
        definition = target.definition
        patch_type = self._patch_type(call, definition)
        ctx = self._write_context(
            call, definition, "apply" if patch_type == "apply" else "patch", "PatchOptions"
        )
        change = await self._patch_change(call, target, ctx, patch_type)
        written = await writes.update(self._registry, ctx, target, change, options_kind="PatchOptions")
        return await self._written_answer(call, written, 201 if written.created else 200)

    async def _patch_change(
        self, call: Call, target: writes.Target, ctx: RequestContext, patch_type: str
    ) -> writes.Change:
        raw = await bodies.read(call.request)
        if patch_type != "apply":
            if "force" in call.query:
                problem = fields.forbidden("force", "may not be specified for non-apply patch")
                raise errors.invalid("PatchOptions", "meta.k8s.io", "", [problem])
            return patches.change(target, ctx, patch_type, raw)
        self._check_apply(call)
        document, duplicates = patches.decode_applied(raw)
        force = bool(ctx.options.get("force"))
        return patches.applying(target, ctx, document, duplicates, force=force)

    @staticmethod
    def _check_apply(call: Call) -> None:
        if not call.query.get("fieldManager"):
            problem = fields.required("fieldManager", "is required for apply patch")
            raise errors.invalid("PatchOptions", "meta.k8s.io", "", [problem])

    @staticmethod
    def _patch_type(call: Call, definition: ResourceDefinition) -> str:
        header = (call.request.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        found = _PATCH_TYPES.get(header)
        if found is None and not definition.custom:
            raise errors.StatusError(415, errors.UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type", {})
        if found is None or (found == "strategic" and definition.custom):
            supported = [name for name, kind in _PATCH_TYPES.items() if kind != "strategic"]
            raise errors.unsupported_media_type(supported)
        return found

    async def _delete_options(self, call: Call) -> JsonObject:
        """DeleteOptions of the body, or else of the query. Raises StatusError."""
        raw = await bodies.read(call.request)
        options: JsonObject = {}
        if raw:
            options = dict(bodies.decode(raw, bodies.media_type(call.request), "").document)
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

    def _delete_context(
        self, call: Call, definition: ResourceDefinition, options: JsonObject
    ) -> RequestContext:
        ctx = self.context(call, definition, "delete")
        ctx.options = options
        ctx.dry_run = bool(options.get("dryRun"))
        return ctx

    async def _delete(self, call: Call, definition: ResourceDefinition) -> Answer:
        options = await self._delete_options(call)
        ctx = self._delete_context(call, definition, options)
        deleted = await deletes.delete(self._registry, ctx, definition)
        if deleted.gone and not definition.strategy.returns_deleted_object:
            metadata = deleted.document["metadata"]
            if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds") is None:
                return self._deletion_status(call, definition, deleted.document)
        status = 202 if not deleted.gone and options.get("orphanDependents") is False else 200
        return self._document_answer(call, definition, deleted.document, status)

    def _deletion_status(self, call: Call, definition: ResourceDefinition, obj: JsonObject) -> Answer:
        resource = definition.resource
        details = {"name": obj["metadata"]["name"], "group": resource.group, "kind": resource.plural}
        details["uid"] = obj["metadata"].get("uid", "")
        found = {key: value for key, value in details.items() if value}
        return answers.document_answer(200, answers.success_status(found), call.media.type)

    async def _delete_collection(self, call: Call, definition: ResourceDefinition) -> Answer:
        query = self._list_query(call)
        wanted = self._selected(call, definition)
        options = await self._delete_options(call)
        prefix = f"{call.info.namespace}/" if definition.resource.namespaced else ""
        listing = reads.list_items(self._registry.store, definition.storage_prefix, prefix, query, wanted)
        documents: list[JsonObject] = []
        for item in listing.items:
            ctx = self._delete_context(call, definition, dict(options))
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
        return answers.document_answer(200, body, call.media.type, pretty=call.media.pretty)

    # --- subresources

    async def _subresource(self, call: Call, definition: ResourceDefinition) -> Answer | web.StreamResponse:
        subresource = definition.subresources[call.info.subresource]
        method = call.request.method
        if subresource.connect:
            return await self._connect(call, definition, subresource)
        verb = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(method)
        if verb is None or verb not in subresource.verbs:
            raise errors.method_not_allowed()
        if subresource.action is not None:
            return await self._action(call, definition, subresource)
        if subresource.scale is not None:
            return await self._scale(call, definition, subresource, verb)
        if verb == "get":
            return await self._item_answer(call, definition, self._find(call, definition), 200)
        target = writes.Target(definition, subresource)
        return await (self._update(call, target) if verb == "update" else self._patch(call, target))

    async def _action(self, call: Call, definition: ResourceDefinition, subresource: Subresource) -> Answer:
        ctx = self._write_context(call, definition, "create", "CreateOptions")
        content_type = bodies.media_type(call.request)
        body = bodies.decode(await bodies.read(call.request), content_type, subresource.kind)
        document = body.document
        group = subresource.group or (definition.resource.group if not subresource.version else "")
        version = subresource.version or definition.resource.version
        api_version = f"{group}/{version}" if group else version
        if subresource.older_versions:
            _accept_older_version(document, subresource, api_version)
        bodies.check_kind(document, api_version, subresource.kind)
        if subresource.schema is not None:
            decoding.prune_body(subresource.schema, document)
        metadata = document.setdefault("metadata", {}) or {}
        document["metadata"] = metadata
        if metadata.get("namespace") not in (None, "", ctx.namespace):
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if subresource.action is None:
            raise errors.method_not_allowed()
        attributes = writes.action_attributes(ctx, definition, subresource, api_version, document)
        await self._registry.chain.mutate(attributes)
        await self._registry.chain.validate(attributes)
        answer = await subresource.action(ctx, attributes.object or document)
        status = 201
        if answer.get("kind") == "Status":
            status = int(answer.get("code") or 201)
        return answers.document_answer(status, answer, call.media.type, pretty=call.media.pretty)

    async def _scale(
        self, call: Call, definition: ResourceDefinition, subresource: Subresource, verb: str
    ) -> Answer:
        if verb == "get":
            item = self._find(call, definition)
            current = await self._registry.document(definition, item)
            document = scales.view(definition, subresource, current, must_exist=True)
            return answers.document_answer(200, document, call.media.type, pretty=call.media.pretty)
        kind = "UpdateOptions" if verb == "update" else "PatchOptions"
        if verb == "update":
            ctx = self._write_context(call, definition, "update", kind)
            raw = await bodies.read(call.request)
            body = bodies.decode(raw, bodies.media_type(call.request), "Scale").document
            scales.check_body(body, raw)
            change = scales.replacement(definition, subresource, ctx, body)
        else:
            patch_type = self._patch_type(call, definition)
            ctx = self._write_context(call, definition, "patch", kind)
            raw = await bodies.read(call.request)
            if patch_type == "apply":
                self._check_apply(call)
                document, _ = patches.decode_applied(raw)
                force = bool(ctx.options.get("force"))
                change = scales.applied(definition, subresource, ctx, document, force=force)
            else:
                change = scales.patched(definition, subresource, ctx, patch_type, raw)
        target = scales.target(definition, subresource)
        written = await writes.update(self._registry, ctx, target, change, options_kind=kind)
        document = scales.view(definition, subresource, written.document)
        return answers.document_answer(200, document, call.media.type, pretty=call.media.pretty)


def _common_headers(call: Call) -> dict[str, str]:
    return {"Audit-Id": call.audit_id, "Cache-Control": "no-cache, private"}


def _check_name(name: str, obj: JsonObject) -> None:
    sent = str(obj["metadata"].get("name") or "")
    if not sent:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if sent != name:
        raise errors.bad_request(
            f"the name of the object ({sent}) does not match the name on the URL ({name})"
        )


def _settle_namespace(definition: ResourceDefinition, ctx: RequestContext, obj: JsonObject) -> None:
    """Give the object the namespace of the request; refuse another (400)."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    if not definition.resource.namespaced:
        metadata.pop("namespace", None)
        return
    sent = metadata.get("namespace")
    if sent and sent != ctx.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = ctx.namespace


def _accept_older_version(document: JsonObject, subresource: Subresource, api_version: str) -> None:
    """Read the body of an action in one of its older versions as the present one (400 for unknown ones)."""
    sent = str(document.get("apiVersion") or "")
    group, _, version = sent.rpartition("/")
    if not sent or sent == api_version:
        return
    if group == subresource.group and version in subresource.older_versions:
        document["apiVersion"] = api_version
        return
    kind = subresource.kind
    scheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    raise errors.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: '
        f'no kind "{kind}" is registered for version "{sent}" in scheme "{scheme}"'
    )
