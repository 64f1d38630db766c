"""Get and list requests, and the form of objects in responses."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.large_requests import LARGE_BYTES
from kubecore.objects.field_selectors import FieldRequirement, FieldSelector, parse_field_selector
from kubecore.objects.selectors import SelectorError

from ..registry import encoding, preconditions, reads
from ..registry.definition import ResourceDefinition, TableConverter
from ..registry.reads import ListQuery, Matcher
from ..registry.registry import Registry, Written, object_path
from ..storage.store import Item
from . import options_check, responses, tables
from .call import Call
from .media import JSON, PARTIAL, TABLE
from .responses import Response


def selected(call: Call, definition: ResourceDefinition) -> Matcher:
    """The selectors of the request. Raises StatusError (400)."""
    return reads.matcher(definition, call.query.get("labelSelector", ""), _field_selector(call))


def _field_selector(call: Call) -> str:
    """The request's field selector; below ``/watch/`` it selects the object that the path names."""
    text, info = call.query.get("fieldSelector", ""), call.info
    if info.prefix != "watch" or not info.is_named:
        return text
    only = FieldSelector((FieldRequirement("metadata.name", True, info.name),))
    try:
        agrees = not text or parse_field_selector(text).exact("metadata.name") == info.name
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    if not agrees:
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    return text or str(only)


def list_query(call: Call) -> ListQuery:
    """The checked options of a list. Raises StatusError."""
    limit = call.integer("limit") or 0
    query = ListQuery(
        max(limit, 0),
        call.query.get("continue", ""),
        call.query.get("resourceVersion", ""),
        call.query.get("resourceVersionMatch", ""),
    )
    options_check.check_list_options(call, query, watch=False)
    return query


def document_response(
    call: Call,
    definition: ResourceDefinition,
    document: JsonObject,
    status: int,
    columns: TableConverter | None = None,
) -> Response:
    """An object in the form and media type that the client accepts; `columns` is the table of a document
    that is not of the definition's kind. Raises StatusError (406).
    """
    wanted = call.media
    if wanted.as_kind:
        tables.check_shape(definition, wanted, is_list=False)
    if wanted.as_kind == TABLE:
        include = tables.include_object(call.query.get("includeObject"))
        version = document.get("metadata", {}).get("resourceVersion")
        metadata = {"resourceVersion": version} if version else {}
        document = tables.table(
            definition, [document], metadata, version=wanted.as_version, include=include, converter=columns
        )
    elif wanted.as_kind == PARTIAL:
        document = tables.partial(document, wanted.as_version)
    return responses.document_response(status, document, wanted.type, pretty=wanted.pretty)


def shaped_list(
    call: Call, definition: ResourceDefinition, documents: list[JsonObject], metadata: JsonObject
) -> Response:
    """A list as a table, or of metadata alone."""
    media = call.media
    if media.as_kind == TABLE:
        include = tables.include_object(call.query.get("includeObject"))
        document = tables.table(definition, documents, metadata, version=media.as_version, include=include)
    else:
        document = tables.partial_list(metadata, documents, media.as_version)
    return responses.document_response(200, document, media.type, pretty=media.pretty)


class Reading:
    """Answers get and list, and every other request whose response is an object."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def get(self, call: Call, definition: ResourceDefinition) -> Response:
        """Answer a GET of one object. Raises StatusError."""
        item = self.find(call, definition)
        return await self.item_response(call, definition, item, 200)

    def find(self, call: Call, definition: ResourceDefinition) -> Item:
        """The object that a request names, not older than it asks for. Raises StatusError."""
        store, info = self._registry.store, call.info
        version = call.query.get("resourceVersion", "")
        if version and version != "0":
            wanted = preconditions.parse_read_version(version)
            if wanted > store.revision:
                raise errors.too_large_resource_version(wanted, store.revision)
        path = object_path(definition, info.namespace, info.name)
        item = store.get(definition.storage_prefix, path)
        if item is None:
            raise errors.not_found(definition.resource, info.name)
        return item

    async def item_response(
        self, call: Call, definition: ResourceDefinition, item: Item, status: int
    ) -> Response:
        """A stored object in the form and media type that the client accepts. Raises StatusError (406)."""
        wanted = call.media
        if not wanted.as_kind and wanted.type == JSON and not wanted.pretty:
            return Response(status, (await self._registry.values(definition, [item]))[0])
        document = await self._registry.document(definition, item)
        size = len(item.value)
        return await self._in_shape(size, lambda: document_response(call, definition, document, status))

    async def _in_shape(self, size: int, work: Callable[[], Response]) -> Response:
        """Build a response; in a thread if `size` bytes make it slow (YAML, tables)."""
        return work() if size <= LARGE_BYTES else await self._registry.large_requests.run(work)

    async def written_response(self, call: Call, written: Written, status: int) -> Response:
        """What a write has left, in the same way; a dry run has stored nothing."""
        if written.item is not None:
            return await self.item_response(call, written.definition, written.item, status)
        return document_response(call, written.definition, written.document, status)

    async def list(self, call: Call, definition: ResourceDefinition) -> Response:
        """Answer a GET of a collection. Raises StatusError."""
        query = list_query(call)
        wanted = selected(call, definition)
        prefix = f"{call.info.namespace}/" if definition.resource.namespaced and call.info.namespace else ""
        listing = await reads.list_items(self._registry, definition, prefix, query, wanted)
        if not definition.recorded:
            listing.metadata.pop("resourceVersion")
        return await self.list_response(call, definition, listing)

    async def list_response(
        self, call: Call, definition: ResourceDefinition, listing: reads.Listing
    ) -> Response:
        """A list in the form and media type that the client accepts. Raises StatusError (406)."""
        media = call.media
        if media.as_kind:
            tables.check_shape(definition, media, is_list=True)
            documents = await self._registry.documents(definition, listing.items)
            size = sum(len(item.value) for item in listing.items)
            return await self._in_shape(
                size, lambda: shaped_list(call, definition, documents, listing.metadata)
            )
        values = await self._registry.values(definition, listing.items)
        if definition.custom:
            listing.metadata.setdefault("continue", "")
        cut = 0 if definition.custom else len(encoding.header(definition))
        body = encoding.encode_list(
            definition.list_kind, definition.resource.api_version, listing.metadata, values, cut
        )
        if media.type != JSON or media.pretty:
            return await self._in_shape(
                len(body),
                lambda: responses.document_response(200, orjson.loads(body), media.type, pretty=media.pretty),
            )
        return Response(200, body)
