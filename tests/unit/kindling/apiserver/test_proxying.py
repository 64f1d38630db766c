"""Requests passed on: logs and exec through a node, upgrades as raw bytes, aggregated groups."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.apiserver import running_server, sample_definitions
from tests.support.upstreams import add_aggregated, add_pod, definitions, session, upstream
from yarl import URL

from kubecore import resources


async def test_logs_come_from_the_node_without_the_clients_credentials(tmp_path: Path) -> None:
    seen: list[web.Request] = []

    async def logs(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(text="line\n")

    app = web.Application()
    app.router.add_get("/containerLogs/default/p/main", logs)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        async with session(running) as client:
            url = f"{running.url}/api/v1/namespaces/default/pods/p/log?tailLines=5"
            async with client.get(url) as answer:
                assert (answer.status, await answer.text()) == (200, "line\n")
    assert seen[0].query["tailLines"] == "5"
    assert "Authorization" not in seen[0].headers


async def test_a_pod_that_is_on_no_node_has_no_log_yet(tmp_path: Path) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    async with running_server(tmp_path, definitions()) as running, session(running) as client:
        await running.server.objects.create(resources.PODS, pod)
        async with client.get(f"{running.url}/api/v1/namespaces/default/pods/p/log") as answer:
            assert (answer.status, await answer.read()) == (204, b"")
            assert "Content-Type" not in answer.headers


async def test_a_websocket_is_tunnelled_to_the_node_byte_for_byte(tmp_path: Path) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        await socket.send_str("&".join(request.query.getall("command")) + f" tty={request.query['tty']}")
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/exec/default/p/main", echo)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        async with session(running) as client:
            url = f"{running.url}/api/v1/namespaces/default/pods/p/exec?command=ls&command=-l&tty=true"
            async with client.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket:
                assert socket.protocol == "v5.channel.k8s.io"
                assert (await socket.receive_str()) == "ls&-l tty=1"
                await socket.send_bytes(b"x" * 300_000)
                assert len(await socket.receive_bytes()) == 300_000


async def test_a_client_that_goes_ends_its_tunnel_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def listen(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("hello")
        async for _ in socket:
            continue
        ended.set()
        return socket

    app = web.Application()
    app.router.add_get("/exec/default/p/main", listen)
    async with (
        upstream(app) as port,
        running_server(tmp_path, definitions()) as running,
        session(running) as client,
    ):
        await add_pod(running, port)
        socket = await client.ws_connect(f"{running.url}/api/v1/namespaces/default/pods/p/exec?command=ls")
        assert await socket.receive_str() == "hello"
        connection = socket._response.connection
        assert connection is not None and connection.transport is not None
        connection.transport.abort()
        async with asyncio.timeout(10):
            await ended.wait()
    # The server has stopped, so every request has ended, this one among them.
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_exec_without_an_upgrade_is_refused(tmp_path: Path) -> None:
    async with running_server(tmp_path, definitions()) as running:
        await add_pod(running, 1)
        async with session(running) as client:
            url = f"{running.url}/api/v1/namespaces/default/pods/p/exec?command=ls"
            async with client.post(url) as answer:
                assert answer.status == 400
                assert (await answer.json())["message"] == "Upgrade request required"


async def test_an_aggregated_group_is_served_by_its_service_in_the_callers_name(tmp_path: Path) -> None:
    seen: list[web.Request] = []
    bodies: list[bytes] = []

    async def things(request: web.Request) -> web.Response:
        seen.append(request)
        bodies.append(await request.read())
        return web.json_response({"kind": "ThingList", "resources": []})

    app = web.Application()
    app.router.add_get("/apis/things.example.com/v1{rest:.*}", things)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_aggregated(running, port)
        async with session(running) as client:
            path = "/apis/things.example.com/v1/things?x=1"
            async with client.get(f"{running.url}{path}", data=b"even a question may have one") as answer:
                assert answer.status == 200
            async with client.get(f"{running.url}/apis") as answer:
                groups = [group["name"] for group in (await answer.json())["groups"]]
    assert "things.example.com" in groups
    assert bodies[-1] == b"even a question may have one"
    assert seen[-1].query["x"] == "1"
    assert seen[-1].headers["X-Remote-User"] == "admin"
    assert seen[-1].headers.getall("X-Remote-Group") == ["system:masters", "system:authenticated"]


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/version", 200), ("/metrics", 200)])
async def test_paths_outside_resources_answer(tmp_path: Path, path: str, status: int) -> None:
    async with (
        running_server(tmp_path, sample_definitions()) as running,
        session(running) as client,
        client.get(running.url + path) as answer,
    ):
        assert answer.status == status


@pytest.mark.parametrize(
    ("protocol", "as_text"), [((), False), (("binary.k8s.io",), False), (("base64.binary.k8s.io",), True)]
)
async def test_logs_are_read_over_a_websocket(
    tmp_path: Path, protocol: tuple[str, ...], as_text: bool
) -> None:
    async def logs(_request: web.Request) -> web.Response:
        return web.Response(text="line\n" * 3)

    app = web.Application()
    app.router.add_get("/containerLogs/default/p/main", logs)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        url = f"{running.url}/api/v1/namespaces/default/pods/p/log?container=main"
        async with session(running) as client, client.ws_connect(url, protocols=protocol) as socket:
            assert socket.protocol == (protocol[0] if protocol else None)
            messages = [message.data async for message in socket]
    received = b"".join(base64.b64decode(data) if as_text else data for data in messages)
    assert received == b"line\n" * 3


async def test_a_followed_log_ends_when_the_websockets_client_leaves(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def logs(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"line\n")
                await asyncio.sleep(0.01)
        finally:
            left.set()

    app = web.Application()
    app.router.add_get("/containerLogs/default/p/main", logs)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        url = f"{running.url}/api/v1/namespaces/default/pods/p/log?follow=true"
        async with session(running) as client:
            async with client.ws_connect(url) as socket:
                while (await socket.receive_bytes()) != b"line\n":
                    continue
            await asyncio.wait_for(left.wait(), 5)


async def test_a_node_that_refuses_a_log_refuses_the_websocket(tmp_path: Path) -> None:
    async def logs(_request: web.Request) -> web.Response:
        return web.Response(status=400, text="container is waiting")

    app = web.Application()
    app.router.add_get("/containerLogs/default/p/main", logs)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        url = f"{running.url}/api/v1/namespaces/default/pods/p/log"
        async with session(running) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(url)
            assert caught.value.status == 400
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(url, protocols=("other.k8s.io",))
            assert caught.value.status == 400


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (400, "BadRequest", 'container "main" in pod "p" is waiting to start: PodInitializing'),
        (404, "NotFound", "the server could not find the requested resource ( pods/log p)"),
        (500, "InternalError", "Internal error occurred: disk"),
    ],
)
async def test_a_log_that_a_node_refuses_is_answered_with_a_status(
    tmp_path: Path, code: int, reason: str, message: str
) -> None:
    async def logs(_request: web.Request) -> web.Response:
        return web.Response(status=code, text=message.rpartition("occurred: ")[2])

    app = web.Application()
    app.router.add_get("/containerLogs/default/p/main", logs)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)
        url = f"{running.url}/api/v1/namespaces/default/pods/p/log"
        async with session(running) as client, client.get(url) as answer:
            status = await answer.json()
    assert (answer.status, status["kind"], status["code"]) == (code, "Status", code)
    assert (status["reason"], status["message"]) == (reason, message)


@asynccontextmanager
async def proxied_pod(
    tmp_path: Path, app: web.Application
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A client, and the proxy's address of a pod that serves `app`."""
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_pod(running, port)

        def addressed(pod: dict[str, Any]) -> dict[str, Any]:
            pod["status"] = {"podIP": "127.0.0.1"}
            return pod

        await running.server.objects.modify(resources.PODS, "default", "p", addressed)
        async with session(running) as client:
            yield client, f"{running.url}/api/v1/namespaces/default/pods/https:p:{port}/proxy"


async def test_pages_and_redirects_of_a_proxied_pod_lead_through_the_proxy(tmp_path: Path) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f'<a href="/next">{request.path_qs}</a>', content_type="text/html")

    async def text(_request: web.Request) -> web.Response:
        return web.Response(text='<a href="/next">')

    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/next?a=b"})

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get("/text", text)
    app.router.add_get("/redirect", redirect)
    async with proxied_pod(tmp_path, app) as (client, base):
        prefix = base[base.index("/api/") :]
        async with client.get(f"{base}/?q=1") as answer:
            assert await answer.text() == f'<a href="{prefix}/next">/?q=1</a>'
        async with client.get(f"{base}/text") as answer:
            assert await answer.text() == '<a href="/next">'
        async with client.get(f"{base}/redirect", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, f"{prefix}/next?a=b")


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("HEAD", 301), ("POST", 200), ("DELETE", 200)])
async def test_reading_the_proxys_root_without_its_slash_is_redirected(
    tmp_path: Path, method: str, status: int
) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=request.method)

    app = web.Application()
    app.router.add_route("*", "/", page)
    async with (
        proxied_pod(tmp_path, app) as (client, base),
        client.request(method, f"{base}?a=b", allow_redirects=False) as answer,
    ):
        assert answer.status == status
        expected = f"{base[base.index('/api/') :]}/?a=b" if status == 301 else None
        assert answer.headers.get("Location") == expected


@pytest.mark.parametrize("upgrade", [{}, {"Connection": "Upgrade", "Upgrade": "websocket"}])
@pytest.mark.parametrize("port", ["0", "65536", "99999999999999999999", "%C2%B2", "x"])
async def test_a_port_that_nobody_has_is_a_bad_request(
    tmp_path: Path, port: str, upgrade: dict[str, str]
) -> None:
    async with proxied_pod(tmp_path, web.Application()) as (client, base):
        url = URL(f"{base.rpartition('/pods/')[0]}/pods/p:{port}/proxy/", encoded=True)
        async with client.get(url, headers=upgrade) as answer:
            assert answer.status == 400
            assert "invalid port" in (await answer.json())["message"]
