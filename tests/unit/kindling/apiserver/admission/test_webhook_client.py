"""Calling webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from tests.support.web import serve_app

from kindling.apiserver.admission.webhook_client import WebhookCallError, WebhookClient
from kindling.apiserver.registry.admission import ServiceEndpoint
from kubecore import errors
from kubecore.json import JsonObject


class Hook:
    """A webhook server of this test, as ``hook.ns.svc`` and on 127.0.0.1."""

    def __init__(self, authority: trustme.CA, bundle: str) -> None:
        self.port = 0
        self.authority = authority
        self.bundle = bundle
        self.held = asyncio.Semaphore(0)
        """Released for each call that gets no answer."""

    def config(self, path: str) -> JsonObject:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle}

    async def hold(self, _request: web.Request) -> web.Response:
        self.held.release()
        await asyncio.Event().wait()
        raise AssertionError


async def _echo(request: web.Request) -> web.Response:
    return web.json_response({"asked": await request.json(), "timeout": request.query["timeout"]})


async def _caller(request: web.Request) -> web.Response:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert") or {}
    return web.json_response({"names": [value for _, value in certificate.get("subjectAltName", ())]})


async def _broken(request: web.Request) -> web.Response:
    return web.Response(status=500, text="broken\n")


async def _slow(request: web.Request) -> web.Response:
    await asyncio.sleep(5)
    return web.json_response({})


async def _nonsense(request: web.Request) -> web.Response:
    return web.Response(text="not json")


async def _in_pieces(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for piece in (b'{"all":', b' "of', b' it"}'):
        await answer.write(piece)
        # So that the client has read this one before the next one comes.
        await asyncio.sleep(0.02)
    await answer.write_eof()
    return answer


async def _long(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(64):
        await answer.write(b" " * 65536)
    await answer.write_eof(b"{}")
    return answer


async def _trailing(request: web.Request) -> web.Response:
    return web.Response(text='{"allowed": true} {"allowed": false}')


async def _packed(request: web.Request) -> web.Response:
    assert request.headers["Accept-Encoding"] == "identity"
    return web.Response(body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "hook.ns.svc").configure_cert(context)
    made = Hook(authority, base64.b64encode(authority.cert_pem.bytes()).decode())
    app = web.Application()
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    app.router.add_post("/echo", _echo)
    app.router.add_post("/caller", _caller)
    app.router.add_post("/broken", _broken)
    app.router.add_post("/slow", _slow)
    app.router.add_post("/nonsense", _nonsense)
    app.router.add_post("/pieces", _in_pieces)
    app.router.add_post("/long", _long)
    app.router.add_post("/trailing", _trailing)
    app.router.add_post("/packed", _packed)
    app.router.add_post("/held", made.hold)
    async with serve_app(app, context) as made.port:
        yield made


@pytest.fixture
async def client(hook: Hook) -> AsyncIterator[WebhookClient]:
    def resolve(namespace: str, name: str, port: int) -> ServiceEndpoint:
        if name == "none":
            raise errors.service_unavailable('service "none" not found')
        return ServiceEndpoint("127.0.0.1", hook.port, f"{name}.{namespace}.svc")

    made = WebhookClient(resolve)
    yield made
    await made.close()


async def test_a_url_is_asked(hook: Hook, client: WebhookClient) -> None:
    assert await client.call(hook.config("/echo"), {"a": 1}, 5) == {"asked": {"a": 1}, "timeout": "5s"}


async def test_a_service_is_asked_by_its_name_in_the_certificate(hook: Hook, client: WebhookClient) -> None:
    service = {"namespace": "ns", "name": "hook", "path": "/echo", "port": 443}
    answer = await client.call({"service": service, "caBundle": hook.bundle}, {}, 2)
    assert answer["timeout"] == "2s"


async def test_an_answer_is_read_to_its_end(hook: Hook, client: WebhookClient) -> None:
    assert await client.call(hook.config("/pieces"), {}, 5) == {"all": "of it"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/long", "the answer is longer than 3145728 bytes"),
        ("/trailing", "json parse error"),
        ("/packed", "json parse error"),
    ],
)
async def test_answers_are_bounded_and_whole(
    hook: Hook, client: WebhookClient, path: str, message: str
) -> None:
    with pytest.raises(WebhookCallError, match=message):
        await client.call(hook.config(path), {}, 5)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/broken", 'an error on the server ("broken") has prevented the request from succeeding'),
        ("/missing", "the server could not find the requested resource"),
        ("/slow", "context deadline exceeded"),
        ("/nonsense", "couldn't get version/kind; json parse error"),
    ],
)
async def test_what_goes_wrong_is_told(hook: Hook, client: WebhookClient, path: str, message: str) -> None:
    with pytest.raises(WebhookCallError) as caught:
        await client.call(hook.config(path), {}, 0.2)
    assert message in str(caught.value)


async def test_a_webhook_that_never_answers_takes_no_call_from_the_others(
    hook: Hook, client: WebhookClient
) -> None:
    still = [asyncio.create_task(client.call(hook.config("/held"), {}, 60)) for _ in range(100)]
    for _ in still:
        await hook.held.acquire()
    assert await client.call(hook.config("/echo"), {}, 20) == {"asked": {}, "timeout": "20s"}
    for each in still:
        each.cancel()
    await asyncio.gather(*still, return_exceptions=True)


async def test_other_authorities_are_not_trusted(hook: Hook, client: WebhookClient) -> None:
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    with pytest.raises(WebhookCallError, match="certificate signed by unknown authority"):
        await client.call({**hook.config("/echo"), "caBundle": other}, {}, 2)


async def test_nobody_listening_is_a_refused_connection(client: WebhookClient) -> None:
    with pytest.raises(WebhookCallError) as caught:
        await client.call({"url": "https://127.0.0.1:1/x"}, {}, 5)
    assert str(caught.value) == (
        'Post "https://127.0.0.1:1/x?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'
    )


async def test_a_service_that_is_missing_is_named(client: WebhookClient) -> None:
    with pytest.raises(WebhookCallError) as caught:
        await client.call({"service": {"namespace": "ns", "name": "none", "path": "/x"}}, {}, 5)
    assert str(caught.value) == 'Post "https://none.ns.svc:443/x?timeout=5s": service "none" not found'


async def test_a_webhook_can_tell_the_api_server_by_its_certificate(hook: Hook, tmp_path: Path) -> None:
    shown = hook.authority.issue_cert("front-proxy.test")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in shown.cert_chain_pems))
    key.write_bytes(shown.private_key_pem.bytes())
    known = WebhookClient(_unknown_service, (certificate, key))
    anybody = WebhookClient(_unknown_service)
    try:
        assert await known.call(hook.config("/caller"), {}, 5) == {"names": ["front-proxy.test"]}
        assert await anybody.call(hook.config("/caller"), {}, 5) == {"names": []}
    finally:
        await known.close()
        await anybody.close()


def _unknown_service(namespace: str, name: str, port: int) -> ServiceEndpoint:
    raise errors.service_unavailable(f"service {name!r} not found")
