"""The metric that the controller reads while an import runs, on CDI's port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_log = logging.getLogger(__name__)

PORT = 8443


class Progress:
    """The percentage of a volume for the owner `uid` that is done; it never falls.

    `what` is import or clone.
    """

    def __init__(self, uid: str, what: str = "import") -> None:
        self._uid, self._what = uid, what
        self.percent = 0.0

    def tell(self, percent: float) -> None:
        """Say that `percent` of the import is done."""
        self.percent = max(self.percent, min(percent, 100.0))

    def text(self) -> bytes:
        """The metric in Prometheus' format."""
        # Loaded here, with what is below: it takes a tenth of a second, of which a short import has no need.
        from prometheus_client import CollectorRegistry, Counter, generate_latest

        registry = CollectorRegistry()
        text = f"The percentage of the {self._what} that is done."
        counter = Counter(f"kubevirt_cdi_{self._what}_progress_total", text, ["ownerUID"], registry=registry)
        counter.labels(self._uid).inc(self.percent)
        return generate_latest(registry)


@asynccontextmanager
async def served(progress: Progress, port: int = PORT) -> AsyncIterator[int]:
    """`progress` at /metrics over TLS while the context lasts; the port of IPv4 (a free one for 0)."""
    from aiohttp import web

    from kubecore.self_signed import self_signed_tls

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


@asynccontextmanager
async def served_from(seconds: float, progress: Progress, port: int = PORT) -> AsyncIterator[None]:
    """As `served`, but only once the context has lasted `seconds`: nobody misses it in a shorter import."""

    async def serve() -> None:
        await asyncio.sleep(seconds)
        try:
            async with served(progress, port):
                await asyncio.Event().wait()
        except OSError as error:
            _log.warning("nobody can ask how far this is: %s", error)

    serving = asyncio.create_task(serve(), name="progress")
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
