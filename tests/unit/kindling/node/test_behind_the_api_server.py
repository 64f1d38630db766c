"""The node's HTTPS server as users meet it: through the API server's exec and log."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from tests.support.apiserver import running_server
from tests.support.upstreams import add_pod, definitions, session
from tests.unit.kindling.node.conftest import Pki

from kindling.node.server import streams

POD = "/api/v1/namespaces/default/pods/p"
PROTOCOL = "v4.channel.k8s.io"


async def echo(request: web.Request) -> StreamResponse:
    """A container runtime's streaming server."""
    websocket = web.WebSocketResponse(protocols=[PROTOCOL])
    await websocket.prepare(request)
    async for message in websocket:
        await websocket.send_bytes(message.data)
    return websocket


async def test_exec_and_logs_pass_through_the_api_server(pki: Pki, tmp_path: Path) -> None:
    application = web.Application()
    application.router.add_get("/exec/token", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/exec/token"

    async def answer(request: BaseRequest) -> StreamResponse:
        if request.path == "/exec/default/p/main":
            return await streams.proxy_stream(request, url)
        return Response(text=f"{request.path}: log")

    identity = pki.directory / "apiserver-kubelet-client"
    async with (
        pki.serving(answer) as port,
        running_server(
            tmp_path,
            definitions(),
            kubelet_client_cert=identity.with_suffix(".crt"),
            kubelet_client_key=identity.with_suffix(".key"),
        ) as running,
        session(running) as client,
    ):
        await add_pod(running, port)
        async with client.get(f"{running.url}{POD}/log") as log:
            assert (log.status, await log.text()) == (200, "/containerLogs/default/p/main: log")
        exec_url = f"{running.url}{POD}/exec?command=cat&stdin=true&stdout=true"
        async with client.ws_connect(exec_url, protocols=[PROTOCOL]) as websocket:
            assert websocket.protocol == PROTOCOL
            sent = b"\0" + b"x" * 300_000
            await websocket.send_bytes(sent)
            assert await websocket.receive_bytes() == sent
    await runner.cleanup()
