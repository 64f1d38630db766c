"""Watch requests: their options and the encoding of their events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject

from ..registry import encoding, preconditions
from ..registry.definition import ResourceDefinition
from ..registry.reads import ListQuery
from ..registry.registry import Registry
from ..storage.store import Item
from . import options_check, reading, responses, tables
from .call import Call
from .connection import Connection
from .large_events import LargeEventSender
from .media import JSON, PARTIAL, PARTIAL_LIST, TABLE, YAML
from .watching import Shape, Watch, WatchQuery

_LOG = logging.getLogger(__name__)
_WATCH_TYPES = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


class WatchRequests:
    """Serves watches."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._large_events = LargeEventSender()

    async def serve(self, call: Call, definition: ResourceDefinition) -> web.StreamResponse:
        """Answer a watch until it ends. Raises StatusError for one that makes no sense."""
        if call.media.type == YAML:
            raise errors.not_acceptable([_WATCH_TYPES])
        query = self._query(call, definition)
        wanted = reading.selected(call, definition)
        media = call.media
        shape = Shape(
            head=encoding.header(definition),
            render=self._renderer(call, definition),
            frame_key=(definition, media.as_kind, media.as_version, call.query.get("includeObject")),
            bookmark=self._bookmark(call, definition),
        )
        watch = Watch(self._registry, definition, query, wanted, shape, self._large_events)
        response = web.StreamResponse(headers={"Content-Type": JSON, **_common_headers(call)})
        for header in responses.warning_headers(call.warnings):
            response.headers.add(*header)
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        await response.write(b"")
        connection = call.request.protocol
        if isinstance(connection, Connection):
            connection.closers.add(watch.ended)
        try:
            await watch.run(response, call.request)
        except errors.StatusError as error:
            # As in Kubernetes, the end of the response is all that tells the client: its status is sent.
            resource = definition.resource.group_resource
            text = "A watch ends at an object that cannot be converted; look at the webhook that converts it"
            _LOG.warning(text, extra={"resource": resource, "err": error.message})
        finally:
            if isinstance(connection, Connection):
                connection.closers.discard(watch.ended)
        if call.request.transport is not None and not call.request.transport.is_closing():
            await response.write_eof()
        return response

    def _query(self, call: Call, definition: ResourceDefinition) -> WatchQuery:
        """What is watched, and from where on. Raises StatusError."""
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
        if query.send_initial_events is None and query.resource_version in ("", "0"):
            query.send_initial_events = True  # such watches begin with the existing objects anyway
        if query.resource_version:
            revision = preconditions.parse_read_version(query.resource_version)
            if query.send_initial_events and revision > self._registry.store.revision:
                raise errors.too_large_resource_version(revision, self._registry.store.revision)
        if definition.resource.namespaced and call.info.namespace:
            query.prefix = f"{call.info.namespace}/"
        return query

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


def _common_headers(call: Call) -> dict[str, str]:
    return {"Audit-Id": call.audit_id, "Cache-Control": "no-cache, private"}
