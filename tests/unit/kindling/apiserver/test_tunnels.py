"""Upgraded connections and proxies under attack: credentials of the server, and where it connects to."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from tests.support.apiserver import ADMIN_TOKEN, LOOPBACK_TOO, RunningServer, running_server
from tests.support.upstreams import add_aggregated, add_pod, add_service, definitions, session, upstream
from tests.support.web import serve_app

from kindling.apiserver.proxying.connectors import client_context
from kindling.apiserver.proxying.target import forwarded_headers, identity_headers
from kindling.apiserver.registry.context import UserInfo
from kubecore import resources
from kubecore.destinations import Destinations
from kubecore.errors import StatusError
from kubecore.json import JsonObject

THINGS = "/apis/things.example.com/v1/things"
FORGED = (
    b"GET /apis/things.example.com/v1/secrets HTTP/1.1\r\nHost: x\r\nX-Remote-User: tenant\r\n"
    b"X-Remote-Group: system:masters\r\n\r\n"
)
_DISCOVERY = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"resources":[]}'
)


@dataclass
class Scripted:
    """An aggregated API server that answers what the test says, and notes every byte it is sent."""

    answers: dict[bytes, bytes] = field(default_factory=dict)
    """First line of the request -> answer; the connection stays open afterwards."""
    heard: list[bytes] = field(default_factory=list)
    """What came on each connection of another request than discovery."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line = head.partition(b"\r\n")[0]
                if line not in self.answers:
                    writer.write(_DISCOVERY)
                    continue
                index = len(self.heard)
                self.heard.append(head)
                self.asked.set()
                writer.write(self.answers[line])
                while data := await reader.read(65536):
                    self.heard[index] += data
                    writer.write(b"echo:" + data)
                self.ended.set()
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(directory: Path, **answers: bytes) -> AsyncIterator[tuple[Scripted, RunningServer]]:
    """The server behind ``things.example.com``; `answers` are those to GET of things below that name."""
    server = Scripted({f"GET {THINGS}/{name} HTTP/1.1".encode(): text for name, text in answers.items()})
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    trustme.CA().issue_cert("127.0.0.1", not_after=tomorrow).configure_cert(context)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    async with listening, running_server(directory, definitions()) as running:
        await add_aggregated(running, listening.sockets[0].getsockname()[1])
        yield server, running


@asynccontextmanager
async def connected(
    running: RunningServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.create_default_context(cadata=running.ca_data.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def upgrade(name: str, protocol: str = "websocket", more: str = "") -> bytes:
    lines = [f"GET {THINGS}/{name} HTTP/1.1", "Host: x", f"Authorization: Bearer {ADMIN_TOKEN}"]
    lines += ["Connection: Upgrade", f"Upgrade: {protocol}", *([more] if more else [])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


_REFUSALS = {
    "success": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "refusal": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope",
    "chunks": b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnope\r\n0\r\n\r\n",
    "hint": b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"SSH-2.0-x\r\n\r\n",
}


@pytest.mark.parametrize("early", [True, False], ids=["with the request", "after the answer"])
@pytest.mark.parametrize("name", sorted(_REFUSALS))
async def test_no_byte_follows_an_upgrade_that_the_server_did_not_agree_to(
    tmp_path: Path, name: str, early: bool
) -> None:
    async with scripted(tmp_path, **_REFUSALS) as (server, running), connected(running) as (reader, writer):
        writer.write(upgrade(name) + (FORGED if early else b""))
        answer = await reader.readuntil(b"\r\n\r\n")
        expected = b"403" if name in ("refusal", "chunks") else b"503"
        assert answer.startswith(b"HTTP/1.1 " + expected)
        if not early:
            writer.write(FORGED)
        rest = await reader.read()
        assert (b"nope" in rest) == (expected == b"403")
        await server.ended.wait()
        assert len(server.heard) == 1
        assert b"X-Remote-Group: system:masters" in server.heard[0]  # the administrator's own
        assert b"secrets" not in server.heard[0]


async def test_bytes_follow_once_the_server_has_switched(tmp_path: Path) -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello"
    async with (
        scripted(tmp_path, stream=switching) as (server, running),
        connected(running) as (reader, writer),
    ):
        writer.write(upgrade("stream"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"hello"
        writer.write(b"data")
        assert await reader.readexactly(9) == b"echo:data"
        assert server.heard[0].endswith(b"\r\n\r\ndata")


@pytest.mark.parametrize("protocol", ["h2c", "HTTP/2.0", "TLS/1.2", "websocket, h2c"])
async def test_other_protocols_than_those_of_streams_are_not_switched_to(
    tmp_path: Path, protocol: str
) -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with (
        scripted(tmp_path, stream=switching) as (server, running),
        connected(running) as (_, writer),
    ):
        writer.write(upgrade("stream", protocol))
        await server.asked.wait()
        assert b"upgrade" not in server.heard[0].lower()


async def test_an_upgrade_carries_one_protocol_and_no_body(tmp_path: Path) -> None:
    async with scripted(tmp_path, **_REFUSALS) as (server, running):
        async with connected(running) as (reader, writer):
            writer.write(upgrade("refusal", more="Upgrade: h2c\r\nContent-Length: 5") + b"hello")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        async with connected(running) as (reader, writer):
            writer.write(upgrade("refusal", more="Upgrade: h2c"))
            await reader.readuntil(b"\r\n\r\n")
        (head,) = server.heard
        assert head.lower().count(b"upgrade:") == 1
        assert b"h2c" not in head


async def test_the_identity_of_others_is_not_passed_on_however_it_is_spelled(tmp_path: Path) -> None:
    async with scripted(tmp_path, **_REFUSALS) as (server, running):
        async with connected(running) as (reader, writer):
            writer.write(upgrade("refusal", more="X_Remote_User: forged\r\nX-Remote-Uid: forged"))
            await reader.readuntil(b"\r\n\r\n")
        assert b"forged" not in server.heard[0]


@pytest.mark.parametrize("text", ["a\r\nX-Remote-Group: system:masters", "a\nb", "a\0b"])
def test_names_of_users_cannot_add_headers(text: str) -> None:
    for user in (UserInfo(text), UserInfo("u", groups=(text,)), UserInfo("u", extra={"k": (text,)})):
        with pytest.raises(StatusError):
            forwarded_headers([], identity_headers(user))


async def test_the_path_that_is_passed_on_is_the_one_that_was_authorized(tmp_path: Path) -> None:
    seen: list[str] = []

    async def things(request: web.Request) -> web.Response:
        seen.append(request.rel_url.raw_path)
        return web.json_response({"resources": []})

    app = web.Application()
    app.router.add_get("/apis/things.example.com/v1{rest:.*}", things)
    async with upstream(app) as port, running_server(tmp_path, definitions()) as running:
        await add_aggregated(running, port)
        async with connected(running) as (reader, writer):
            target = "/apis%2Fthings.example.com/v1/namespaces/a%2Fthings%2Fb%20c/x%3Fy"
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode()
            )
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert seen[-1] == "/apis/things.example.com/v1/namespaces/a/things/b%20c/x%3Fy"


# --- nodes' certificates


@asynccontextmanager
async def node(directory: Path, name: str) -> AsyncIterator[tuple[int, Path, list[str]]]:
    """A kubelet whose certificate names a node: its port, its authority's file, the paths asked for."""
    authority, asked = trustme.CA(), list[str]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    authority.issue_cert(name, "127.0.0.1", not_after=tomorrow).configure_cert(context)
    (directory / "kubelet-ca.crt").write_bytes(authority.cert_pem.bytes())

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="line\n")

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    async with serve_app(app, context) as port:
        yield port, directory / "kubelet-ca.crt", asked


@pytest.mark.parametrize("path", ["nodes/n/proxy/metrics", "namespaces/default/pods/p/log"])
@pytest.mark.parametrize(("name", "status"), [("n", 200), ("other", 503)])
async def test_a_kubelet_must_show_the_certificate_of_its_node(
    tmp_path: Path, name: str, status: int, path: str
) -> None:
    async with (
        node(tmp_path, name) as (port, authority, asked),
        running_server(tmp_path, full_definitions(), kubelet_ca=authority) as running,
    ):
        await add_pod(running, port)
        async with session(running) as client, client.get(f"{running.url}/api/v1/{path}") as answer:
            assert answer.status == status
        assert len(asked) == (status == 200)


def test_towards_nodes_no_authority_counts_but_theirs(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(trustme.CA().cert_pem.bytes())
    checked, unchecked = client_context("", "", str(authority)), client_context("", "", "")
    assert (checked.cert_store_stats()["x509_ca"], checked.verify_mode) == (1, ssl.CERT_REQUIRED)
    assert checked.check_hostname
    assert (unchecked.cert_store_stats()["x509_ca"], unchecked.verify_mode) == (0, ssl.CERT_NONE)


# --- where proxies connect to


def full_definitions() -> list[Any]:
    """As `definitions`, with proxies to nodes and services, too."""
    found = definitions()
    for definition in found:
        if definition.resource in (resources.NODES, resources.SERVICES):
            pods = next(other for other in found if other.resource == resources.PODS)
            definition.subresources = {**definition.subresources, "proxy": pods.subresources["proxy"]}
    return found


Place = Callable[[RunningServer, str, int], Awaitable[str]]


async def _node_at(running: RunningServer, address: str, port: int) -> str:
    await add_pod(running, port)
    await _change(running, resources.NODES, None, "n", status=_node_status(address, port))
    return f"nodes/n:{port}/proxy/"


async def _kubelet_at(running: RunningServer, address: str, port: int) -> str:
    await _node_at(running, address, port)
    return "namespaces/default/pods/p/log"


async def _named_node_at(running: RunningServer, address: str, port: int) -> str:
    await add_pod(running, port)
    status = _node_status(address, port)
    status["addresses"][0]["type"] = "Hostname"
    await _change(running, resources.NODES, None, "n", status=status)
    return f"nodes/n:{port}/proxy/"


async def _pod_at(running: RunningServer, address: str, port: int) -> str:
    await add_pod(running, port)
    await _change(running, resources.PODS, "default", "p", status={"podIP": address})
    return f"namespaces/default/pods/p:{port}/proxy/"


async def _service_at(running: RunningServer, address: str, port: int) -> str:
    await add_service(running, port, address)
    return "namespaces/default/services/things:443/proxy/"


def _node_status(address: str, port: int) -> dict[str, Any]:
    return {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


async def _change(running: RunningServer, resource: Any, namespace: str | None, name: str, **to: Any) -> None:
    await running.server.objects.modify(resource, namespace, name, lambda found: {**found, **to})


async def listening(asked: list[bytes]) -> asyncio.Server:
    """Something on this machine that nobody else is to reach."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret")
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize("place", [_node_at, _kubelet_at, _named_node_at, _pod_at, _service_at])
@pytest.mark.parametrize(
    "address", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "localhost", "169.254.169.254", "10.9.8.7"]
)
async def test_proxies_do_not_connect_to_this_machine(tmp_path: Path, place: Place, address: str) -> None:
    asked: list[bytes] = []
    strict = Destinations(is_own=lambda found: found == ipaddress.ip_address("10.9.8.7"))
    async with (
        await listening(asked) as server,
        running_server(tmp_path, full_definitions(), strict) as running,
    ):
        path = await place(running, address, server.sockets[0].getsockname()[1])
        async with session(running) as client, client.get(f"{running.url}/api/v1/{path}") as answer:
            assert answer.status == 400
            assert (await answer.json())["message"] == "address not allowed"
    assert asked == []


async def test_a_proxied_service_is_no_name_of_something_else(tmp_path: Path) -> None:
    asked: list[bytes] = []
    async with (
        await listening(asked) as server,
        running_server(tmp_path, full_definitions(), LOOPBACK_TOO) as running,
    ):
        port = server.sockets[0].getsockname()[1]
        wanted: JsonObject = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        await add_service(running, port, **wanted)
        url = f"{running.url}/api/v1/namespaces/default/services/things:{port}/proxy/"
        async with session(running) as client, client.get(url) as answer:
            assert answer.status == 503
            assert (await answer.json())["message"] == 'no endpoints available for service "things"'
    assert asked == []


async def test_another_port_of_a_node_is_not_spoken_to_as_the_kubelet(tmp_path: Path) -> None:
    asked: list[bytes] = []
    async with await listening(asked) as server, running_server(tmp_path, full_definitions()) as running:
        await add_pod(running, 10250)
        port = server.sockets[0].getsockname()[1]
        url = f"{running.url}/api/v1/nodes/n:{port}/proxy/"
        async with session(running) as client, client.get(url) as answer:
            assert (answer.status, await answer.text()) == (200, "secret")
    assert asked[0].startswith(b"GET / HTTP/1.1")


@pytest.mark.parametrize("slash", ["/", "%2F", "%2f"])
@pytest.mark.parametrize(
    "end", ["@127.0.0.1:{port}/x", "%40127.0.0.1:{port}/x", ":{port}/x", "/127.0.0.1:{port}/x"]
)
async def test_no_path_is_read_as_another_host(tmp_path: Path, end: str, slash: str) -> None:
    asked: list[bytes] = []
    seen: list[str] = []

    async def page(request: web.Request) -> web.Response:
        seen.append(request.rel_url.raw_path)
        return web.Response(text="the pod")

    app = web.Application()
    app.router.add_get("/{rest:.*}", page)
    async with (
        await listening(asked) as other,
        upstream(app) as port,
        running_server(tmp_path, full_definitions()) as running,
    ):
        path = await _pod_at(running, "127.0.0.1", port)
        path = path.replace("/p:", "/https:p:").removesuffix("/")
        target = f"/api/v1/{path}{slash}{end.format(port=other.sockets[0].getsockname()[1])}"
        async with connected(running) as (reader, writer):
            line = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
            writer.write(line.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert asked == []
    assert len(seen) == 1
