"""``/healthz`` by the driver's own word (the livenessprobe)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from virtplane.storage.csi.driver import CallError, Driver

logger = logging.getLogger(__name__)


async def probe(driver: Driver, timeout_seconds: float) -> str:
    """What is wrong with the driver; nothing where it is ready."""
    try:
        answer = await driver.call("Identity", "Probe", {}, timeout_seconds)
    except CallError as error:
        return str(error)
    if answer.HasField("ready") and not answer.ready.value:
        return "driver responded but is not ready"
    return ""


@asynccontextmanager
async def serve_liveness(driver: Driver, host: str, port: int, timeout_seconds: float) -> AsyncIterator[int]:
    """Answer ``/healthz`` as long as the context lasts; yields the port. Raises OSError."""
    # The other parts need no server of web pages.
    from aiohttp import web  # noqa: PLC0415

    async def healthz(_: web.Request) -> web.Response:
        problem = await probe(driver, timeout_seconds)
        if problem:
            logger.warning("the CSI driver is not healthy: %s", problem)
            return web.Response(status=500, text=problem)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
