"""The API server as a whole: its parts put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable

from aiohttp import web

from kubecore import errors

from .auth.authentication import Authenticator, FrontProxy, load_token_file
from .http import tls
from .http.call import Call
from .http.connection import HttpServer
from .http.resources import ResourceApi
from .http.server import RequestServer, Routes
from .registry.addresses import AddressPool
from .registry.admission import AuthorizationQuery
from .registry.catalog import Catalog
from .registry.context import UserInfo
from .registry.definition import ResourceDefinition, Subresource
from .registry.objects import ServerObjects
from .registry.registry import Registry
from .settings import Settings
from .storage.journal import Journal
from .storage.memory import MemoryJournal
from .storage.sqlite import SqliteJournal
from .storage.store import Store

_LOG = logging.getLogger(__name__)


class ApiServer:
    """One API server. Make it, ``await start()``, ``await stop()``."""

    def __init__(self, settings: Settings, definitions: Iterable[ResourceDefinition]) -> None:
        self.settings = settings
        journal: Journal = SqliteJournal(settings.storage) if settings.storage else MemoryJournal()
        self.store = Store(journal)
        self.catalog = Catalog()
        self.catalog.replace("built-in", definitions)
        self.addresses = AddressPool(settings.service_cidr, settings.node_ports)
        self.registry = Registry(self.store, self.catalog, self.addresses)
        self.objects = ServerObjects(self.registry)
        self.authenticator = Authenticator()
        self.port = settings.port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._http: HttpServer | None = None

    @property
    def url(self) -> str:
        """The base URL once started."""
        scheme = "https" if self.settings.tls_cert else "http"
        return f"{scheme}://{self.settings.bind}:{self.port}"

    async def start(self) -> None:
        """Load what is stored and listen. Raises StorageError, OSError."""
        settings = self.settings
        self.store.open()
        if settings.token_file is not None:
            self.authenticator.static_tokens = load_token_file(settings.token_file)
        self.authenticator.front_proxy = FrontProxy()
        routes = Routes(
            ResourceApi(self.registry, self.objects, self._connect),
            lambda path: None,
            self.authenticator,
            self._authorize,
            lambda request, user: user,
        )
        self._http = HttpServer(RequestServer(routes).handle, keepalive_timeout=120.0)
        context = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            authorities = [ca for ca in (settings.client_ca, settings.front_proxy_ca) if ca is not None]
            context = tls.server_context(settings.tls_cert, settings.tls_key, authorities)
        self._server = await asyncio.get_running_loop().create_server(
            self._http, settings.bind, settings.port, ssl=context, backlog=1024, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        _LOG.info("Serving", extra={"address": settings.bind, "port": self.port})

    async def stop(self) -> None:
        """Stop listening, end open requests, close the store."""
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            await self._http.shutdown(self.settings.shutdown_grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    def spawn(self, work: Awaitable[None], name: str) -> None:
        """Run a coroutine as a task that the server owns; its failure is logged."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception:  # the boundary of a background task: nobody else hears of it
                _LOG.exception("A background task failed", extra={"task": name})

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _authorize(query: AuthorizationQuery) -> tuple[bool, str]:
        return "system:masters" in query.user.groups, ""

    @staticmethod
    async def _connect(call: Call, definition: ResourceDefinition, sub: Subresource) -> web.StreamResponse:
        raise errors.service_unavailable("no node can be reached")


def admin_user() -> UserInfo:
    """The bootstrap administrator."""
    return UserInfo("system:admin", groups=("system:masters",))
