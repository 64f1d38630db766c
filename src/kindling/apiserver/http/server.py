"""Request handling: authentication, authorization, dispatching, and sending the response."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from kubecore import errors
from kubecore.json import TOO_DEEP, TooDeep

from ..auth.authentication import Authenticator
from ..registry.admission import AuthorizationQuery, Authorize
from ..registry.context import UserInfo
from ..registry.identifiers import new_uuid
from ..storage.journal import StorageError
from . import deadlines, media, responses
from .call import Call, wants_pretty
from .connection import Connection
from .deadlines import Deadlines
from .media import JSON, Media
from .request_info import RequestInfo, parse
from .resources import ResourceApi, check_place
from .responses import Response

_LOG = logging.getLogger(__name__)

Page = Callable[[Call], Awaitable[Response | web.StreamResponse]]
"""Serves a path outside resources."""
Impersonate = Callable[[web.BaseRequest, UserInfo, RequestInfo], UserInfo]
Observe = Callable[[Call, int, float], None]
"""Told about each finished request: (call, status, seconds)."""
Aggregate = Callable[[RequestInfo], Callable[[Call], Awaitable[web.StreamResponse]] | None]
"""Who serves a path that an aggregated API owns; None when it is ours."""


@dataclass(slots=True)
class Routes:
    """The handlers of authorized requests, and the authentication before them."""

    resources: ResourceApi
    pages: Callable[[str], Page | None]
    """The page at a path, if there is one."""
    authenticator: Authenticator
    authorize: Authorize
    impersonate: Impersonate
    aggregate: Aggregate = lambda info: None
    observers: list[Observe] = field(default_factory=list)


class RequestServer:
    """The handler of aiohttp's low-level server."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._deadlines = Deadlines()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises but for cancellation."""
        started = time.monotonic()
        query = request.query
        info = parse(request.method, request.rel_url.raw_path, query)
        audit_id = request.headers.get("Audit-ID") or new_uuid()
        call = Call(request, info, UserInfo(""), query, Media(), audit_id=audit_id)
        connection = request.protocol
        if not isinstance(connection, Connection):
            response = await self._respond(call)
        else:
            connection.begin_request()
            try:
                response = await self._respond(call)
            finally:
                connection.end_request()
        seconds = time.monotonic() - started
        for observe in self._routes.observers:
            observe(call, response.status, seconds)
        return response

    async def _respond(self, call: Call) -> web.StreamResponse:
        try:
            response = await self._dispatch(call)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise
        except Exception as error:
            if call.request.writer.output_size:
                text = "A request failed after the head of its response was sent; its connection is ended"
                _LOG.exception(text, extra={"path": call.info.path, "audit": call.audit_id})
                raise ConnectionError(text) from error
            response = self._failure(call, error)
        if isinstance(response, web.StreamResponse):
            return response
        extra = [("Audit-Id", call.audit_id), ("Cache-Control", "no-cache, private")]
        extra += responses.warning_headers(call.warnings)
        accepts_gzip = "gzip" in call.request.headers.get("Accept-Encoding", "")
        if accepts_gzip and responses.is_worth_compressing(response):
            # Compressing large lists takes tens of milliseconds: not on the event loop.
            await asyncio.to_thread(responses.compress, response)
        return responses.to_aiohttp(response, extra=extra)

    def _failure(self, call: Call, error: Exception) -> Response:
        """The response to a request that raised `error`; unexpected ones are logged."""
        if isinstance(error, errors.StatusError):
            return self._error(call, error)
        if isinstance(error, RecursionError | TooDeep):
            return self._error(call, errors.bad_request(TOO_DEEP))
        if isinstance(error, StorageError):
            _LOG.error("Storage refused a write", extra={"err": str(error)})
            return responses.error_response(errors.internal(str(error)))
        _LOG.error("A request failed", exc_info=error)
        return responses.error_response(errors.internal(f"{type(error).__name__}: {error}"))

    @staticmethod
    def _error(call: Call, error: errors.StatusError) -> Response:
        """The Status in a format that the client accepts; indented JSON if it accepts none."""
        chosen = media.choose(
            media.parse_accept(call.request.headers.get("Accept") or "*/*"), transforms=False
        )
        pretty = chosen is None or wants_pretty(call.request)
        return responses.error_response(error, chosen.type if chosen else JSON, pretty=pretty)

    async def _dispatch(self, call: Call) -> Response | web.StreamResponse:
        routes, info, request = self._routes, call.info, call.request
        limit = deadlines.seconds_of(call)
        user = await routes.authenticator.authenticate(request)
        if isinstance(request.protocol, Connection):
            request.protocol.share.belongs_to(user.name)
        call.user = routes.impersonate(request, user, info)
        self._authorize(call)
        check_place(info)
        handler = routes.aggregate(info)
        if handler is not None:
            return await handler(call)
        if info.is_resource:
            call.media = routes.resources.negotiate(call)
            if limit is not None:
                return await self._deadlines.within(limit, routes.resources.handle(call))
            return await routes.resources.handle(call)
        page = routes.pages(info.path)
        if page is None:
            if routes.resources.owns(info):
                raise errors.page_not_found()
            return responses.text_response(404, "404 page not found\n")
        return await page(call)

    def _authorize(self, call: Call) -> None:
        query = call.authorization(call.info.verb)
        allowed, reason = self._routes.authorize(query)
        if not allowed:
            raise forbidden(query, reason)


def forbidden(query: AuthorizationQuery, reason: str) -> errors.StatusError:
    """403 with Kubernetes' message."""
    user = f'User "{query.user.name}" cannot {query.verb}'
    if not query.resource:
        text = f'{user} path "{query.path}"'
        suffix = f": {reason}" if reason else ""
        return errors.forbidden("", "", text + suffix)
    resource = f"{query.resource}/{query.subresource}" if query.subresource else query.resource
    text = f'{user} resource "{resource}" in API group "{query.group}"'
    text += f' in the namespace "{query.namespace}"' if query.namespace else " at the cluster scope"
    if reason:
        text += f": {reason}"
    plural = f"{query.resource}.{query.group}" if query.group else query.resource
    return errors.forbidden(plural, query.name, text)
