"""The transport over aiohttp against a real server on this machine."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web
from tests.support.web import serve_app

from kubecore.client import Client, ClientConfig, ConfigError, ConnectionFailed, client, failures, http
from kubecore.client.credentials import Credentials
from kubecore.client.http import environment_proxy, tls_context
from kubecore.errors import StatusError
from kubecore.resources import NODES


def test_importing_the_client_does_not_import_aiohttp() -> None:
    script = "import sys, kubecore.client; sys.exit('aiohttp' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": "src"}, check=False).returncode == 0
    )


async def nodes(request: web.Request) -> web.Response:
    certificate = request.transport and request.transport.get_extra_info("peercert")
    return web.json_response(
        {"items": [], "metadata": {}, "cert": bool(certificate), "url": str(request.rel_url)}
    )


async def test_requests_go_over_tls_with_a_client_certificate() -> None:
    authority = trustme.CA()
    server, client_cert = authority.issue_cert("kubernetes"), authority.issue_cert("admin@example.org")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_get("/api/v1/nodes", nodes)
    async with serve_app(app, context) as port:
        config = ClientConfig(
            server=f"https://127.0.0.1:{port}",
            ca_data=authority.cert_pem.bytes(),
            client_cert=client_cert.cert_chain_pems[0].bytes(),
            client_key=client_cert.private_key_pem.bytes(),
            tls_server_name="kubernetes",
        )
        async with Client(config) as client:
            assert (await client.list(NODES))["cert"] is True
        other_name = ClientConfig(server=config.server, ca_data=config.ca_data)
        async with Client(other_name) as client:
            with pytest.raises(ConnectionFailed):
                await client.list(NODES)
        async with Client(ClientConfig(server=config.server, insecure=True)) as client:
            assert (await client.list(NODES))["cert"] is False


@pytest.mark.parametrize("name", ["", "kubernetes"])
def test_with_an_authority_of_its_own_a_configuration_trusts_no_other(name: str) -> None:
    """Whatever name the server's certificate is to have."""
    authority = trustme.CA().cert_pem.bytes()
    config = ClientConfig(server="https://127.0.0.1", ca_data=authority, tls_server_name=name)
    context = tls_context(config, Credentials())
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(authority.decode())]


async def test_nothing_listening_is_a_failed_connection() -> None:
    async with Client(ClientConfig(server="http://127.0.0.1:9")) as client:
        with pytest.raises(ConnectionFailed, match="did you specify the right host or port"):
            await client.list(NODES)


async def test_a_netrc_of_the_user_does_not_stand_in_the_way_of_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async def whoami(request: web.Request) -> web.Response:
        return web.json_response({"items": [], "authorization": request.headers["Authorization"]})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", whoami)
    async with serve_app(app) as port:
        config = ClientConfig(server=f"http://127.0.0.1:{port}", token="of-a-pod")
        async with Client(config) as client:
            assert (await client.list(NODES))["authorization"] == "Bearer of-a-pod"


async def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def through(request: web.Request) -> web.Response:
        return web.json_response({"items": [], "asked": str(request.url.origin())})

    app = web.Application()
    app.router.add_get("/{path:.*}", through)
    async with serve_app(app) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        async with Client(ClientConfig(server="http://far.example:1")) as client:
            assert (await client.list(NODES))["asked"] == "http://far.example:1"


@pytest.mark.parametrize(
    ("server", "exceptions", "found"),
    [
        ("https://far.example", "", "http://proxy.example:3128"),
        ("https://far.example:6443", "near.example", "http://proxy.example:3128"),
        ("https://api.near.example", "near.example", None),
        ("http://far.example", "", None),
    ],
)
def test_the_environment_says_which_proxy_and_for_whom_not(
    server: str, exceptions: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", exceptions)
    assert environment_proxy(server) == found


def test_a_proxy_that_is_no_http_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://proxy.example")
    with pytest.raises(
        ConfigError, match=r"socks5://proxy\.example .* https://far\.example is no HTTP proxy"
    ):
        environment_proxy("https://far.example")


async def test_a_refused_websocket_tells_the_servers_reason() -> None:
    async def refuse(_: web.Request) -> web.Response:
        status = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "VMI is not running"}
        return web.json_response(status, status=409)

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["plain.kubevirt.io"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/refuse", refuse)
    app.router.add_get("/echo", echo)
    async with serve_app(app) as port, Client(ClientConfig(server=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(StatusError, match="VMI is not running") as caught:
            await client.websocket("/refuse")
        assert caught.value.code == 409
        socket = await client.websocket("/echo", ["plain.kubevirt.io"])
        assert socket.protocol == "plain.kubevirt.io"
        await socket.send_bytes(b"ping")
        assert (await socket.receive()).data == b"ping"
        await socket.close()


async def test_lines_of_a_stream_come_as_they_are_written_whatever_their_length() -> None:
    async def lines(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntw")
        await response.write(b"o\n" + b"x" * 300_000 + b"\nend")
        return response

    app = web.Application()
    app.router.add_get("/log", lines)
    async with serve_app(app) as port, Client(ClientConfig(server=f"http://127.0.0.1:{port}")) as client:
        read = [line async for line in client.stream("/log", query={"follow": "true"})]
    assert [len(line) for line in read] == [3, 3, 300_000, 3]


async def test_a_new_token_is_read_when_the_server_refuses_the_old_one(tmp_path: Path) -> None:
    tokens = []

    async def guarded(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        if len(tokens) == 1:
            (tmp_path / "token").write_text("new")
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        return web.json_response({"items": [], "metadata": {}})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", guarded)
    (tmp_path / "token").write_text("old")
    async with serve_app(app) as port:
        config = ClientConfig(server=f"http://127.0.0.1:{port}", token_file=str(tmp_path / "token"))
        async with Client(config) as client:
            await client.list(NODES)
    assert tokens == ["Bearer old", "Bearer new"]


async def test_a_query_is_encoded_once() -> None:
    app = web.Application()
    app.router.add_get("/api/v1/nodes", nodes)
    async with serve_app(app) as port, Client(ClientConfig(server=f"http://127.0.0.1:{port}")) as client:
        listing = await client.list(NODES, label_selector="a in (b,c),d=e+f")
    assert "d%3De%2Bf" in listing["url"] or "d=e%2Bf" in listing["url"]


@asynccontextmanager
async def dripping(status: int = 200, body: bytes = b" ") -> AsyncIterator[Client]:
    """A client of a server that answers every request at once, and goes on with `body` again and again."""

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(body)
            await asyncio.sleep(0.01)

    app = web.Application()
    app.router.add_get("/{path:.*}", drip)
    async with serve_app(app) as port, Client(ClientConfig(server=f"http://127.0.0.1:{port}")) as made:
        yield made


async def test_a_request_whose_answer_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.1)
    async with dripping() as slow:
        with pytest.raises(ConnectionFailed, match="failed: no answer in time"):
            await slow.list(NODES)


async def test_a_refused_websocket_that_does_not_say_why_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.1)
    async with dripping(403) as slow:
        with pytest.raises(ConnectionFailed, match="failed: no answer in time"):
            await slow.websocket("/exec")


async def test_a_watch_that_outlasts_the_time_it_asked_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it says nothing that makes sense or nothing at all."""
    monkeypatch.setattr(client, "WATCH_GRACE_SECONDS", -0.9)
    for body in (b" ", b""):
        async with dripping(body=body) as slow:
            with pytest.raises(ConnectionFailed, match="failed: no answer in time"):
                async for _ in slow.watch(NODES, timeout_seconds=1):
                    pass


async def test_a_followed_log_may_take_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.05)
    read = 0
    async with dripping(body=b"line\n") as slow:
        async for line in slow.stream("/log"):
            assert line == b"line"
            read += 1
            if read == 20:
                break


async def test_a_refused_stream_that_does_not_say_why_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "REQUEST_SECONDS", 0.1)
    async with dripping(403) as slow:
        with pytest.raises(ConnectionFailed, match=r"refused GET /log \(403\)"):
            async for _ in slow.stream("/log"):
                pass


async def test_a_peer_that_has_vanished_is_noticed_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch on which nothing happens sends nothing, and would never know."""
    made: list[socket.socket] = []
    make = http._keepalive_socket

    def note(address: aiohttp.AddrInfoType) -> socket.socket:
        made.append(make(address))
        return made[-1]

    monkeypatch.setattr(http, "_keepalive_socket", note)
    async with dripping() as slow, slow.open("/watch"):
        (used,) = made
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, count = (used.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert idle + interval * count == 45
