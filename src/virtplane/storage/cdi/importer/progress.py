"""The metric that the controller reads while an import runs, on CDI's port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, generate_latest

from kubecore.self_signed import self_signed_tls

PORT = 8443


class Progress:
    """The percentage of a volume for the owner `uid` that is done; it never falls.

    `what` is import or clone.
    """

    def __init__(self, uid: str, what: str = "import") -> None:
        self._registry = CollectorRegistry()
        counter = Counter(
            f"kubevirt_cdi_{what}_progress_total",
            f"The percentage of the {what} that is done.",
            ["ownerUID"],
            registry=self._registry,
        )
        self._counter = counter.labels(uid)
        self.percent = 0.0

    def tell(self, percent: float) -> None:
        """Say that `percent` of the import is done."""
        percent = min(percent, 100.0)
        if percent > self.percent:
            self._counter.inc(percent - self.percent)
            self.percent = percent

    def text(self) -> bytes:
        """The metric in Prometheus' format."""
        return generate_latest(self._registry)


@asynccontextmanager
async def served(progress: Progress, port: int = PORT) -> AsyncIterator[int]:
    """`progress` at /metrics over TLS while the context lasts; the port of IPv4 (a free one for 0)."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=progress.text(), content_type="text/plain")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, port=port, ssl_context=self_signed_tls("importer"))
        await site.start()
        # Port 0 is another one for each family: IPv4's addresses are pairs.
        yield next(address[1] for address in runner.addresses if len(address) == 2)
    finally:
        await runner.cleanup()
