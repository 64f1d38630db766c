"""Health of a process: named checks, and the small HTTP server that answers for them.

``/healthz`` and ``/livez`` run the liveness checks, ``/readyz`` the readiness checks, ``/metrics`` gives
the registry in Prometheus' text format, to those who may read it. Answers have the form of the API
server's: ``ok``, or every check with ``[+]`` or ``[-]``. Where components tell details of themselves,
``/healthz`` gives a JSON object of those instead, and of that text as ``health``. A process may answer for
more paths (`Guarded`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from prometheus_client import REGISTRY, CollectorRegistry

from kubecore.runtime.metrics import CONTENT_TYPE, exposition

Check = Callable[[], str]
"""Gives what is wrong, or "" when all is well. Must not block."""

MetricsAccess = Callable[[str, str], Awaitable[int]]
"""Gives the HTTP status for an Authorization header and a path: 200 lets the reader in."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request."""

    status: int
    text: str | bytes = ""
    content_type: str = "text/plain; charset=utf-8"

    @property
    def body(self) -> bytes:
        """What is sent."""
        return self.text.encode() if isinstance(self.text, str) else self.text


@dataclass(frozen=True, slots=True)
class Guarded:
    """More paths that a process answers for, to those whom `access` lets in."""

    paths: Collection[str]
    answer: Callable[[str], Awaitable[Answer]]
    """Gives the answer for one of the paths."""
    access: MetricsAccess


class Health:
    """The checks of one process."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._details: dict[str, Callable[[], str]] = {}

    def add_live(self, name: str, check: Check) -> None:
        """Add a liveness check: if it fails, the process should be restarted."""
        self._live[name] = check

    def add_ready(self, name: str, check: Check) -> None:
        """Add a readiness check: if it fails, the process cannot serve now."""
        self._ready[name] = check

    def add_detail(self, name: str, tell: Callable[[], str]) -> None:
        """Add something that ``/healthz`` tells beside its checks."""
        self._details[name] = tell

    def details(self) -> dict[str, str]:
        """What ``/healthz`` tells beside its checks."""
        return {name: tell() for name, tell in self._details.items()}

    def live(self) -> tuple[bool, str]:
        """Whether all liveness checks pass, and the text to answer with."""
        return _run("healthz", self._live)

    def ready(self) -> tuple[bool, str]:
        """Whether all checks pass, and the text to answer with."""
        return _run("readyz", {**self._live, **self._ready})


def _run(endpoint: str, checks: dict[str, Check]) -> tuple[bool, str]:
    failures = {name: check() for name, check in checks.items()}
    if not any(failures.values()):
        return True, "ok"
    lines = [
        f"[-]{name} failed: {reason}" if reason else f"[+]{name} ok" for name, reason in failures.items()
    ]
    return False, "\n".join([*lines, f"{endpoint} check failed", ""])


_Page = Callable[[str, Mapping[str, str]], Awaitable[Answer]]
"""Answers for a path, with the headers of the request."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The metrics of `registry`, for those whom `access` lets in; None lets everybody in.

    `waits`: collecting them waits for disks, so it is done in a thread, for one request at a time.
    """

    registry: CollectorRegistry
    access: MetricsAccess | None
    waits: bool = False
    _collecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a request for `path`."""
        if self.access is not None:
            status = await self.access(headers.get("Authorization", ""), path)
            if status != 200:
                return Answer(status, HTTPStatus(status).phrase)
        if not self.waits:
            return Answer(200, exposition(self.registry), CONTENT_TYPE)
        async with self._collecting:
            return Answer(200, await asyncio.to_thread(exposition, self.registry), CONTENT_TYPE)


@dataclass(frozen=True, slots=True)
class _Pages:
    """What a process answers for."""

    health: Health
    metrics: MetricsPage
    more: Guarded | None

    def by_path(self) -> Mapping[str, _Page]:
        """All pages."""
        own: dict[str, _Page] = {
            "/healthz": self._live,
            "/livez": self._live,
            "/readyz": self._ready,
            "/metrics": self.metrics.answer,
        }
        return own | dict.fromkeys(self.more.paths if self.more is not None else (), self._more)

    async def _live(self, _path: str, _headers: Mapping[str, str]) -> Answer:
        passed, text = self.health.live()
        status, details = 200 if passed else 500, self.health.details()
        if details:
            document = json.dumps({"health": text, **details})
            return Answer(status, document, "application/json; charset=utf-8")
        return Answer(status, text)

    async def _ready(self, _path: str, _headers: Mapping[str, str]) -> Answer:
        passed, text = self.health.ready()
        return Answer(200 if passed else 500, text)

    async def _more(self, path: str, headers: Mapping[str, str]) -> Answer:
        assert self.more is not None
        status = await self.more.access(headers.get("Authorization", ""), path)
        return await self.more.answer(path) if status == 200 else Answer(status, HTTPStatus(status).phrase)


@asynccontextmanager
async def serve_health(
    health: Health,
    port: int,
    *,
    host: str = "",
    tls: ssl.SSLContext | None = None,
    registry: CollectorRegistry = REGISTRY,
    metrics_access: MetricsAccess | None = None,
    metrics_wait: bool = False,
    more: Guarded | None = None,
) -> AsyncIterator[int]:
    """Serve the health of this process on `port` (0: any free one) as long as the context lasts.

    `metrics_access` decides who may read the metrics; None allows everybody. `metrics_wait`: collecting them
    waits for disks, so it is done in a thread, for one request at a time. Yields the port. Raises
    OSError when it is in use.
    """
    # Command lines import this package for its types and must not load aiohttp's server.
    from aiohttp import web  # noqa: PLC0415

    from kubecore.connections import Connections, CountedSite  # noqa: PLC0415

    pages = _Pages(health, MetricsPage(registry, metrics_access, metrics_wait), more)

    def answered(page: _Page) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            answer = await page(request.path, request.headers)
            headers = {"Content-Type": answer.content_type}
            return web.Response(status=answer.status, body=answer.body, headers=headers)

        return handle

    # As Go's servers do, on whom clients rely that put a slash before a path which has one.
    plain_path = web.normalize_path_middleware(append_slash=False, redirect_class=web.HTTPMovedPermanently)
    app = web.Application(middlewares=[plain_path])
    for path, page in pages.by_path().items():
        app.router.add_get(path, answered(page))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = CountedSite(runner, port, tls, Connections(), host=host)
        await site.start()
        yield site.port
    finally:
        await runner.cleanup()
