"""The client: objects in, objects out, for any resource the server knows.

Objects are raw documents. Refusals raise `kubecore.errors.StatusError`; `ConnectionFailed` means that there
was no response. Requests are retried when the response asks for it (429 and 5xx with ``Retry-After``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from kubecore.client import parameters
from kubecore.client.config import ClientConfig
from kubecore.client.failures import retry_after_seconds, status_error, streamed_error
from kubecore.client.transport import (
    ConnectionFailed,
    Query,
    Request,
    Response,
    StreamedResponse,
    Transport,
    split_lines,
)
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.logs import TRACE
from kubecore.resources import ResourceType

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

PatchType = Literal["json", "merge", "strategic", "apply"]
WatchEventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

PATCH_CONTENT_TYPES: Mapping[PatchType, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

MAX_RETRIES = 10
"""How often a request is repeated because the server said ``Retry-After`` (client-go's number)."""

PAGE_SIZE = 500

WATCH_GRACE_SECONDS = 30.0
"""How much longer than its ``timeoutSeconds`` a watch is believed to go on."""

_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. A ``BOOKMARK``'s object carries nothing but its resourceVersion."""

    type: WatchEventType
    object: JsonObject


class Client:
    """Speaks with one API server as one identity. Use it as an async context manager, or call `close`."""

    def __init__(self, config: ClientConfig, transport: Transport | None = None) -> None:
        self.config = config
        self._transport = transport

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. The client may be used again afterwards."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    async def get(
        self, resource: ResourceType, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> JsonObject:
        """Get one object, or the response of one of its subresources."""
        return await self._json("GET", resource.path(namespace, name, subresource))

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        *,
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> JsonObject:
        """List all objects, read in pages of `limit` objects (0: `PAGE_SIZE`).

        With `metadata_only`, objects come as ``PartialObjectMetadata``.

        The list's resourceVersion is that of the first page, from which a watch may continue. When the
        continue token expires (410), the list is read again without paging. With `resource_version` "0" the
        server may answer from any cached state.
        """
        query = parameters.selectors(label_selector, field_selector)
        if resource_version:
            query["resourceVersion"] = resource_version
        else:
            query["limit"] = str(limit or PAGE_SIZE)
        path = resource.path(namespace)
        headers = {"Accept": _PARTIAL_LIST} if metadata_only else None
        try:
            return await self._pages(path, query, headers)
        except StatusError as error:
            if error.code != 410 or resource_version:
                raise
            query.pop("limit")
            return await self._json("GET", path, query=query, headers=headers)

    async def create(
        self,
        resource: ResourceType,
        obj: JsonObject,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> JsonObject:
        """Create an object in `namespace` (default: the object's own); with `subresource`, post to that of
        `name`.
        """
        namespace = namespace or get_str(obj, "metadata", "namespace") or None
        path = resource.path(namespace, name if subresource else None, subresource)
        query = parameters.of_write(self.config, dry_run, field_manager)
        return await self._json("POST", path, query=query, body=obj)

    async def update(
        self,
        resource: ResourceType,
        obj: JsonObject,
        subresource: str | None = None,
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> JsonObject:
        """Replace an object. It must have name and namespace; its resourceVersion makes the update fail on
        a conflict.
        """
        namespace = get_str(obj, "metadata", "namespace") or None
        path = resource.path(namespace, get_str(obj, "metadata", "name"), subresource)
        query = parameters.of_write(self.config, dry_run, field_manager)
        return await self._json("PUT", path, query=query, body=obj)

    async def patch(  # noqa: PLR0913 - the parameters are those of the API
        self,
        resource: ResourceType,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        namespace: str | None = None,
        *,
        type: PatchType,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> JsonObject:
        """Patch an object; `force` takes over other managers' fields and belongs to type "apply"."""
        query = parameters.of_write(self.config, dry_run, field_manager)
        if type == "apply":
            query.setdefault("fieldManager", self.config.user_agent)
            if force:
                query["force"] = "true"
        headers = {"Content-Type": PATCH_CONTENT_TYPES[type]}
        path = resource.path(namespace, name, subresource)
        return await self._json("PATCH", path, query=query, body=patch, headers=headers)

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        grace_period_seconds: int | None = None,
        propagation_policy: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Delete an object, only if it still has that `uid` and `resource_version` when given (else 409)."""
        options = parameters.delete_options(grace_period_seconds, propagation_policy, dry_run)
        options |= parameters.preconditions(uid, resource_version)
        return await self._json("DELETE", resource.path(namespace, name), body=options)

    async def delete_collection(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        grace_period_seconds: int | None = None,
        propagation_policy: str | None = None,
    ) -> JsonObject:
        """Delete all objects that the selectors choose."""
        return await self._json(
            "DELETE",
            resource.path(namespace),
            query=parameters.selectors(label_selector, field_selector),
            body=parameters.delete_options(grace_period_seconds, propagation_policy, False),
        )

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = False,
        timeout_seconds: int | None = None,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Events from `resource_version` on, until the server ends the watch.

        Raises StatusError: code 410 means that the version is too old and the caller must list again.
        With `bookmarks`, BOOKMARK events are yielded too, so that the caller can go on from there.

        The server is asked to end the watch after `timeout_seconds`. Raises ConnectionFailed if the server
        does not: then the server or a proxy has lost the watch.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            **parameters.selectors(label_selector, field_selector),
        }
        if resource_version:
            query["resourceVersion"] = resource_version
        if timeout_seconds is not None:
            query["timeoutSeconds"] = str(timeout_seconds)
        headers = {"Accept": _PARTIAL} if metadata_only else None
        deadline = None if timeout_seconds is None else timeout_seconds + WATCH_GRACE_SECONDS
        path = resource.path(namespace)
        async for line in self.stream(path, query=query, headers=headers, deadline_seconds=deadline):
            event = orjson.loads(line)
            if event["type"] == "ERROR":
                raise StatusError.from_status(event["object"])
            if event["type"] != "BOOKMARK" or bookmarks:
                yield WatchEvent(event["type"], event["object"])

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Any request. `body` is sent unchanged when bytes, as JSON otherwise.

        Raises StatusError for status 400 and above, and ConnectionFailed where no response comes within
        `REQUEST_SECONDS`.
        """
        request = self._build(method, path, query, body, headers)
        for attempt in range(MAX_RETRIES + 1):
            response = await self._connection().request(request)
            logger.log(TRACE, "%s %s: %d", method, path, response.status)
            if response.status < 400:
                return response
            delay = retry_after_seconds(response)
            if delay is None or attempt == MAX_RETRIES:
                break
            await asyncio.sleep(delay)
        raise status_error(request, response)

    async def stream(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_seconds: float | None = None,
    ) -> AsyncIterator[bytes]:
        """The lines of a streamed response (a watch, followed logs) without line ends, as they arrive.

        Raises StatusError, and ConnectionFailed where it breaks or goes on for more than `deadline_seconds`.
        """
        opened = self.open(path, query=query, headers=headers, deadline_seconds=deadline_seconds)
        async with opened as response:
            async for line in split_lines(response.chunks()):
                yield line

    @asynccontextmanager
    async def open(
        self,
        path: str,
        *,
        method: str = "GET",
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        deadline_seconds: float | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """A streamed response: its body is read in chunks. Raises StatusError for status 400 and above."""
        request = self._build(method, path, query, body, headers)
        request = replace(request, deadline_seconds=deadline_seconds)
        async with self._connection().stream(request) as response:
            logger.log(TRACE, "%s %s: %d, streamed", method, path, response.status)
            if response.status >= 400:
                raise await streamed_error(request, response)
            yield response

    async def websocket(
        self,
        path: str,
        protocols: Sequence[str] = (),
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientWebSocketResponse:
        """A websocket to `path`; the caller closes it. Raises StatusError when the server refuses."""
        request = self._build("GET", path, query, None, headers)
        return await self._connection().websocket(request, protocols)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        response = await self.request(method, path, query=query, body=body, headers=headers)
        document: Any = response.json()
        if not isinstance(document, dict):
            raise ConnectionFailed(f"the answer to {method} {path} is no JSON object")
        return document

    async def _pages(self, path: str, query: dict[str, str], headers: Mapping[str, str] | None) -> JsonObject:
        result = await self._json("GET", path, query=query, headers=headers)
        token = get_str(result, "metadata", "continue")
        items = get_list(result, "items")
        while token:
            # A continue token contains its resourceVersion; the server refuses both together.
            rest = {key: value for key, value in query.items() if key != "resourceVersion"}
            page = await self._json("GET", path, query={**rest, "continue": token}, headers=headers)
            items += get_list(page, "items")
            token = get_str(page, "metadata", "continue")
        result["items"] = items
        for transient in ("continue", "remainingItemCount"):
            get_object(result, "metadata").pop(transient, None)
        return result

    def _build(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        headers: Mapping[str, str] | None,
    ) -> Request:
        # The second part is for responses without a body, which have no media type.
        defaults = {"Accept": "application/json, */*", "User-Agent": self.config.user_agent}
        content: bytes | None = None
        if body is not None:
            content = body if isinstance(body, bytes) else orjson.dumps(body)
            defaults["Content-Type"] = "application/json"
        sent = (*{**defaults, **(headers or {})}.items(), *parameters.impersonation_headers(self.config))
        pairs = [*(query.items() if isinstance(query, Mapping) else query or ())]
        if self.config.request_seconds:
            pairs.append(("timeout", f"{self.config.request_seconds:g}s"))
        return Request(method, path, tuple(pairs), sent, content)

    def _connection(self) -> Transport:
        if self._transport is None:
            # Importing aiohttp takes long; commands that never send a request must not pay for it.
            from kubecore.client.http import HttpTransport  # noqa: PLC0415

            self._transport = HttpTransport(self.config)
        return self._transport
