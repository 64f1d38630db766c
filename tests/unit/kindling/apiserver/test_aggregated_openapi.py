"""OpenAPI of aggregated servers at the cluster's own API server: over HTTPS, and whatever they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from tests.support.apiserver import RunningServer, running_server
from tests.support.upstreams import add_aggregated, definitions, session, upstream
from tests.support.waiting import until

GROUP = "things.example.com"
NAME = f"apis/{GROUP}/v1"
PATHS = {f"/{NAME}/things": {"get": {"responses": {"200": {"description": "OK"}}}}}


class Described:
    """An aggregated API server, whose documents are what a test says."""

    def __init__(self) -> None:
        self.v2: bytes = orjson.dumps({"swagger": "2.0", "paths": PATHS, "definitions": {}})
        self.v3: bytes = orjson.dumps({"openapi": "3.0.0", "paths": PATHS})
        self.tags: list[str | None] = []
        self.hangs = False

    async def serve(self, request: web.Request) -> web.Response:
        if not request.path.startswith("/openapi"):
            return web.json_response({"resources": []})
        if self.hangs:
            await asyncio.Event().wait()
        if request.path == "/openapi/v2":
            self.tags.append(request.headers.get("If-None-Match"))
            if self.tags[-1] == '"one"':
                return web.Response(status=304)
            return web.Response(body=self.v2, headers={"ETag": '"one"'})
        return web.Response(body=self.v3)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        return app


@asynccontextmanager
async def aggregated(
    tmp_path: Path, server: Described
) -> AsyncIterator[tuple[RunningServer, aiohttp.ClientSession]]:
    async with upstream(server.app()) as port, running_server(tmp_path, definitions()) as running:
        await add_aggregated(running, port)
        async with session(running) as http:
            yield running, http


async def get(running: RunningServer, http: aiohttp.ClientSession, path: str) -> Any:
    async with http.get(f"{running.url}{path}") as answer:
        return await answer.json() if answer.status == 200 else None


async def test_both_documents_describe_what_an_aggregated_server_serves(tmp_path: Path) -> None:
    server = Described()
    async with aggregated(tmp_path, server) as (running, http):
        document = await until(lambda: get(running, http, f"/openapi/v3/{NAME}"))
        assert document["paths"] == PATHS
        index = await get(running, http, "/openapi/v3")
        url = index["paths"][NAME]["serverRelativeURL"]
        async with http.get(f"{running.url}{url}") as answer:
            assert answer.status == 200
            tag = answer.headers["ETag"]
        async with http.get(f"{running.url}/openapi/v3/{NAME}", headers={"If-None-Match": tag}) as answer:
            assert answer.status == 304

        async def merged() -> Any:
            return (await get(running, http, "/openapi/v2"))["paths"].get(f"/{NAME}/things")

        assert await until(merged) == PATHS[f"/{NAME}/things"]
        protobuf = {"Accept": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
        async with http.get(f"{running.url}/openapi/v2", headers=protobuf) as answer:
            assert f"/{NAME}/things".encode() in await answer.read()


async def test_documents_are_kept_while_the_server_says_that_they_are_the_same(tmp_path: Path) -> None:
    server = Described()
    async with aggregated(tmp_path, server) as (running, http):
        await until(lambda: get(running, http, f"/openapi/v3/{NAME}"))
        openapis = running.server.openapis
        await openapis.refresh()
        generation = openapis.generation
        await openapis.refresh()
        assert (server.tags[0], server.tags[-1]) == (None, '"one"')
        assert openapis.generation == generation
        assert openapis.all()[GROUP, "v1"].v2 is not None


@pytest.mark.parametrize("bad", [b"nonsense", b" " * (4 << 20), b'{"paths": {"/apis": 5}}'])
async def test_nonsense_takes_nothing_from_what_was_known(tmp_path: Path, bad: bytes) -> None:
    server = Described()
    async with aggregated(tmp_path, server) as (running, http):
        before = await until(lambda: get(running, http, f"/openapi/v3/{NAME}"))
        server.v2 = server.v3 = bad
        await running.server.openapis.refresh()
        assert await get(running, http, f"/openapi/v3/{NAME}") == before
        assert await get(running, http, "/openapi/v2") is not None


async def test_a_server_that_never_answers_holds_up_no_reader(tmp_path: Path) -> None:
    server = Described()
    server.hangs = True
    async with aggregated(tmp_path, server) as (running, http):
        async with asyncio.timeout(3):
            assert NAME not in (await get(running, http, "/openapi/v3"))["paths"]
            assert await get(running, http, "/openapi/v2") is not None
            assert await get(running, http, f"/openapi/v3/{NAME}") is None


async def test_what_is_aggregated_no_more_is_described_no_more(tmp_path: Path) -> None:
    server = Described()
    async with aggregated(tmp_path, server) as (running, http):
        await until(lambda: get(running, http, f"/openapi/v3/{NAME}"))
        async with http.delete(
            f"{running.url}/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}"
        ) as answer:
            assert answer.status == 200

        async def gone() -> bool:
            return NAME not in (await get(running, http, "/openapi/v3"))["paths"]

        assert await until(gone)
