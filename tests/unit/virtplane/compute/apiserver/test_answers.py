"""Answers of virt-handler that virt-api passes on while they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.support.web import serve_app

from virtplane.compute.apiserver.subresources.answers import pass_on

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", handler)
    async with serve_app(app) as port:
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _asked(agent: Handler) -> AsyncIterator[aiohttp.ClientResponse]:
    """What a client of virt-api gets of a virt-handler."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        inner = await stack.enter_async_context(_serving(agent))

        async def api(request: web.Request) -> web.StreamResponse:
            async with session.get(inner) as answer:
                return await pass_on(request, answer)

        outer = await stack.enter_async_context(_serving(api))
        yield await stack.enter_async_context(session.get(outer))


async def test_an_answer_of_any_length_arrives_with_its_type() -> None:
    async def agent(_: web.Request) -> web.Response:
        return web.Response(body=b"P6" * (2 << 20), content_type="image/png")

    async with _asked(agent) as got:
        assert (got.status, got.content_type, got.content_length) == (200, "image/png", 4 << 20)
        assert await got.read() == b"P6" * (2 << 20)


async def test_a_refusal_is_told_in_virt_handlers_words_and_not_at_any_length() -> None:
    async def agent(_: web.Request) -> web.Response:
        return web.Response(status=503, text="no guest " * 10_000)

    async with _asked(agent) as got:
        text = await got.text()
        assert (got.status, text[:9], len(text)) == (500, "no guest ", 16384)


async def test_an_answer_that_ends_early_is_not_taken_for_a_whole_one() -> None:
    async def agent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with _asked(agent) as got:
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()
