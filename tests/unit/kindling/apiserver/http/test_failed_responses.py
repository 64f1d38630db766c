"""A request that fails after the head of its response was sent: the client sees a truncated response."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server

from kindling.apiserver.http.call import Call
from kubecore import errors

PART = b"the first half"
FAILURES = [RuntimeError("a defect"), errors.bad_request("too late for a status")]


def serve_half(running: RunningServer, failure: Exception) -> None:
    """A page that fails half-way."""

    async def page(call: Call) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        await response.write(PART)
        raise failure

    running.server.pages.add("/half", page)


@pytest.mark.parametrize("failure", FAILURES, ids=["defect", "status"])
async def test_over_http_1_the_connection_ends_without_the_final_chunk(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(tmp_path, []) as running:
        serve_half(running, failure)
        trust = ssl.create_default_context(cadata=running.ca_data.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=trust)
        writer.write(f"GET /half HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
        async with asyncio.timeout(10):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"%x\r\n%s\r\n" % (len(PART), PART)
    (logged,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.exc_info is not None
    assert logged.exc_info[1] is failure


@pytest.mark.parametrize("failure", FAILURES, ids=["defect", "status"])
async def test_over_http_2_the_stream_is_reset_and_others_go_on(tmp_path: Path, failure: Exception) -> None:
    async with running_server(tmp_path, []) as running:
        serve_half(running, failure)
        trust = ssl.create_default_context(cadata=running.ca_data.decode())
        admin = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(
            base_url=running.url, verify=trust, http2=True, limits=limits, headers=admin
        ) as client:
            async with client.stream("GET", "/half") as response:
                assert (response.http_version, response.status_code) == ("HTTP/2", 200)
                with pytest.raises(httpx.RemoteProtocolError, match=r"StreamReset .*error_code:2"):
                    await response.aread()
            assert (await client.get("/healthz")).text == "ok"
