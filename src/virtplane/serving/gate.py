"""Who gets in: the API server, users that its front proxy vouches for, and everybody to open paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from kubecore import errors
from kubecore.client import ConnectionFailed
from kubecore.connections import Connections
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.large_requests import LARGE_BYTES, LargeRequestPool, RequestShare
from virtplane.serving import frontproxy
from virtplane.serving.frontproxy import ProxySettings, User
from virtplane.serving.rights import Authorizer

MOST_BYTES = 3 << 20
"""Of a user's request: no larger object can be stored. Reviews, which hold two, are the API server's."""

_ASKER = web.RequestKey("asker", User)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _all(request: web.Request) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Guarded:
    """How the paths of a server are guarded."""

    webhooks: Collection[str]
    is_open: Callable[[str], bool]
    """Whether everybody may read a path."""
    attributes: Callable[[str, str], JsonObject | None]
    """The access that a method on a path needs; None for paths that mean nothing."""
    accepts: Callable[[web.Request], bool] = _all
    """Whether the client takes what is answered."""


class Gate:
    """Authentication and authorization. `proxy` changes with the API server's settings.

    With `webhooks_need_certificate`, webhooks accept only the API server, which must send the certificate of
    its front proxy; it does so only if configured to (upstream's webhooks accept every client).
    """

    def __init__(
        self, authorizer: Authorizer, guarded: Guarded, *, webhooks_need_certificate: bool = False
    ) -> None:
        self.proxy = ProxySettings()
        self.connections = Connections()
        """Those of the server behind this gate. All that come from an API server's address are let in."""
        self._authorizer = authorizer
        self._guarded = guarded
        self._webhooks_need_certificate = webhooks_need_certificate
        self._held = LargeRequestPool()

    def application(self, most_bytes: int) -> web.Application:
        """An application behind the gate, whose requests have at most so many bytes."""
        # As Go's servers do, on whom clients rely that put a slash before a path which has one.
        plain_path = web.normalize_path_middleware(
            append_slash=False, redirect_class=web.HTTPMovedPermanently
        )
        return web.Application(middlewares=[plain_path, self._guard], client_max_size=most_bytes)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authentication, authorization, content negotiation, and errors in the forms that clients know.

        A slash that is encoded separates for some readers of a path and not for others. The API server never
        sends one, and no name has one.
        """
        if "%2f" in request.rel_url.raw_path.lower():
            return web.Response(status=404, text="404: Page Not Found")
        try:
            refusal = await self._refusal(request)
            if refusal is not None:
                return refusal
            with self._room_for(request):
                is_unmeasured = request.body_exists and request.content_length is None
                if is_unmeasured and asker(request) is not None:
                    request = request.clone(client_max_size=MOST_BYTES)
                return await handler(request)
        except StatusError as error:
            return web.json_response(error.to_status(), status=error.code)
        except web.HTTPNotFound:
            return web.Response(status=404, text="404: Page Not Found")
        except web.HTTPMethodNotAllowed:
            return web.Response(status=405, text="405: Method Not Allowed")
        except ConnectionFailed as error:
            return web.Response(status=500, text=str(error))

    @contextmanager
    def _room_for(self, request: web.Request) -> Iterator[None]:
        """Room for the body of a user's request. Raises StatusError (413, 429).

        It is taken before the body comes, which may be slowly: who may start a machine may send as many as he
        likes, and one user has a part of the room.
        """
        user, size = asker(request), request.content_length
        if user is None or not request.body_exists or (size is not None and size <= LARGE_BYTES):
            yield
            return
        if size is not None and size > MOST_BYTES:
            raise errors.too_large(f"limit is {MOST_BYTES}")
        share = RequestShare(self._held)
        share.belongs_to(user.name)
        share.hold(MOST_BYTES if size is None else size)
        try:
            yield
        finally:
            share.give_back()

    async def _refusal(self, request: web.Request) -> web.Response | None:
        guarded = self._guarded
        is_front_proxy = frontproxy.is_front_proxy(request.transport, self.proxy)
        if is_front_proxy and request.remote:
            self.connections.trust(request.remote)
        if guarded.is_open(request.path):
            return None
        if request.path in guarded.webhooks and (is_front_proxy or not self._webhooks_need_certificate):
            return None
        user = frontproxy.user_of(request.headers.items(), self.proxy) if is_front_proxy else None
        if user is None:
            return web.Response(status=401, text="request is not authenticated")
        wanted = guarded.attributes(request.method, request.path)
        if wanted is None:
            return web.Response(status=401, text="unknown api endpoint")
        denial = await self._authorizer.refusal(user, wanted)
        if denial:
            return web.Response(status=401, text=denial)
        request[_ASKER] = user
        if not guarded.accepts(request):
            return web.Response(status=406, text="406: Not Acceptable\n\nAvailable representations: ")
        return None


def asker(request: web.Request) -> User | None:
    """The user of a request that came through a gate; None on what is open to everybody."""
    return request.get(_ASKER)


def document(build: Callable[[], JsonObject]) -> Handler:
    """Answers with a document."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response(build())

    return handle
