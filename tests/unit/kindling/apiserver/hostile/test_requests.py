"""Requests that abuse HTTP, query parameters, credentials or paths."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from tests.support.hostile import ADMIN_TOKEN, Target, bystander_unharmed, read_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MAPS = "/api/v1/namespaces/attacked/configmaps"
_MAY = f"Authorization: Bearer {ADMIN_TOKEN}\r\n"
_BIG = 2_000_000


def _text(first: str, *lines: str) -> bytes:
    return "\r\n".join((first, "Host: x", f"Authorization: Bearer {ADMIN_TOKEN}", *lines, "", "")).encode(
        "latin-1"
    )


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (
            _text(f"POST {_MAPS} HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
            400,
        ),
        (_text(f"POST {_MAPS} HTTP/1.1", "Content-Length: 5", "Content-Length: 6") + b"abcdef", 400),
        (_text(f"POST {_MAPS} HTTP/1.1", "Content-Length: -5"), 400),
        (_text(f"POST {_MAPS} HTTP/1.1", "Transfer-Encoding: chunked") + b"f" * 20 + b"\r\n", 400),
        (_text(f"GET {_MAPS} HTTP/1.1", "X: " + "a" * _BIG), 431),
        (_text(f"GET {_MAPS} HTTP/1.1", *(f"X{i}: a" for i in range(100_000))), 431),
        (_text(f"GET /{'a' * _BIG} HTTP/1.1"), 431),
        (_text("GET / HTTP/9.9"), 400),
        (_text("STEAL /api HTTP/1.1"), 400),
        (_text("GET /api\0 HTTP/1.1"), 400),
        (_text("GET /\xff HTTP/1.1"), 400),
        (_text("PRI * HTTP/2.0"), 400),
        (b"\x16\x03\x01\x02\x00\x01" * 1000 + b"\r\n\r\n", 400),
        (_text("CONNECT elsewhere:1 HTTP/1.1"), 404),
        (_text("GET /%ff%fe/%00 HTTP/1.1"), 404),
        (_text(f"GET {_MAPS}/%ff HTTP/1.1"), 404),
        (_text(f"GET {_MAPS}/a%2f..%2f..%2fsecrets HTTP/1.1"), 404),
        (_text(f"GET {_MAPS}?labelSelector=%ff%00 HTTP/1.1"), 400),
        (_text(f"GET {_MAPS} HTTP/1.1", "Accept: " + "a/b;q=1," * 900), 406),
        (_text("GET /api HTTP/1.1", "Impersonate-Group: a"), 400),
    ],
    ids=range(20),
)
async def test_what_is_no_proper_request_is_refused(
    target: Target, request_bytes: bytes, status: int
) -> None:
    reply = await target.raw(request_bytes)
    assert reply.status == status, reply.body[:300]
    assert reply.seconds < 10
    assert b"aaaaaaaa" not in reply.body  # what was sent is not sent back


async def test_a_second_request_hidden_in_a_body_is_not_served(target: Target) -> None:
    hidden = _text(f"DELETE {_MAPS} HTTP/1.1")
    reader, writer = await target.open()
    smuggling = _text(f"POST {_MAPS} HTTP/1.1", "Content-Length: 3", "Transfer-Encoding: chunked")
    writer.write(smuggling + b"0\r\n\r\n" + hidden)
    assert (await read_reply(reader)).status == 400
    assert await asyncio.wait_for(reader.read(), 15) == b""
    writer.close()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=" + "9" * 30, "value out of range"),
        ("limit=" + "9" * 5000, "value out of range"),
        ("limit=1_000", "invalid syntax"),
        ("limit=%201", "invalid syntax"),
        ("limit=1e3", "invalid syntax"),
        ("watch=1&timeoutSeconds=" + "9" * 20, "value out of range"),
        ("resourceVersion=" + "9" * 5000, "value out of range"),
        ("resourceVersion=-1", "invalid syntax"),
        ("resourceVersion=%D9%A1", "invalid syntax"),
        ("continue=!!!", "invalid continue token: continue key is not valid"),
        ("continue=" + "A" * 10_000, "invalid continue token: continue key is not valid"),
        ("labelSelector=" + "(" * 10_000, "found '(', expected: !, identifier, or 'end of string'"),
        ("labelSelector=a%20in%20(" + "x," * 10_000, "found '', expected: ','"),
        ("fieldSelector=a,b%5C", "invalid selector"),
        ("fieldSelector=secret%3Dx", '"secret" is not a known field selector'),
    ],
    ids=range(15),
)
async def test_absurd_query_parameters_are_refused(target: Target, query: str, words: str) -> None:
    reply = await target.request("GET", f"{_MAPS}?{query}")
    assert (reply.status, reply.reason) == (400, "BadRequest"), reply.body[:300]
    assert words in reply.message, reply.message[:300]


@pytest.mark.parametrize(
    "token",
    [
        {"v": "meta.k8s.io/v1", "rv": "1", "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 1.5, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 0, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 5, "start": ""},
        {"v": "other", "rv": 5, "start": "a"},
        [],
        "x",
    ],
    ids=range(7),
)
async def test_tampered_continue_tokens_are_refused(target: Target, token: object) -> None:
    text = base64.urlsafe_b64encode(json.dumps(token).encode()).rstrip(b"=").decode()
    reply = await target.request("GET", f"{_MAPS}?limit=1&continue={text}")
    assert reply.status == 400, reply.body[:300]
    assert "invalid continue token" in reply.message


async def test_a_continue_token_leads_nowhere_but_where_the_request_may_read(target: Target) -> None:
    for start in ("../quiet/small-1", "\0", "/", "\U0010ffff", "quiet/small-0\0"):
        token = {"v": "meta.k8s.io/v1", "rv": -1, "start": start}
        text = base64.urlsafe_b64encode(json.dumps(token).encode()).rstrip(b"=").decode()
        reply = await target.request("GET", f"{_MAPS}?limit=5&continue={text}")
        assert reply.status in (200, 400)
        found = reply.document.get("items") or []
        assert all(item["metadata"]["namespace"] == "attacked" for item in found)


async def test_enormous_selectors_match_in_the_time_that_labels_take(target: Target) -> None:
    for number in range(50):
        metadata = {"name": f"labelled-{number}", "labels": {"a": "b", "c": str(number)}}
        assert (await target.request("POST", _MAPS, {"metadata": metadata})).status == 201
    excluding = ",".join(f"!k{number}" for number in range(4000))
    values = "a%20notin%20(" + ",".join(f"v{number}" for number in range(4000)) + ")"
    unequal = ",".join(f"metadata.name!%3Dn{number}" for number in range(900))
    async with bystander_unharmed(target, growth_mib=60):
        for query in (f"labelSelector={excluding}", f"labelSelector={values}", f"fieldSelector={unequal}"):
            reply = await target.request("GET", f"/api/v1/configmaps?{query}")
            assert reply.status == 200, reply.body[:300]
            assert len(reply.document["items"]) >= 50
        unheard = f"{_MAPS}?labelSelector=c%3Dnowhere,{excluding}"
        assert (await target.request("DELETE", unheard)).document["items"] == []
        assert (await target.request("GET", f"{_MAPS}?labelSelector={excluding * 3}")).status == 431


async def test_paths_that_clients_make_up_leave_nothing_behind(target: Target) -> None:
    before = len((await target.request("GET", "/metrics")).body)
    reader, writer = await target.open()
    for number in range(500):
        writer.write(f"GET /apis/g{number}/v1/r{number}/n HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await read_reply(reader)).status == 403
    writer.close()
    assert len((await target.request("GET", "/metrics")).body) - before < 20_000


@pytest.mark.parametrize(
    "token",
    [
        "a.b.c" * 1000,
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
        "..",
        "e30.e30.e30",
        "\xff\xfe",
        base64.urlsafe_b64encode(b'{"alg":"RS256","b64":false,"crit":["b64"]}').decode() + ".e30.e30",
    ],
    ids=range(6),
)
async def test_made_up_tokens_are_nobodys(target: Target, token: str) -> None:
    text = f"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode("latin-1")
    reply = await target.raw(text)
    assert (reply.status, reply.reason) == (401, "Unauthorized"), reply.body[:300]
