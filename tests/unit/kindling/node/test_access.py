"""Who may use a node's endpoint, with the certificates and the default roles of a cluster."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from tests.support.roles import rights
from tests.unit.kindling.node.conftest import Pki

from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kindling.node.server.access import Access, attributes
from kubecore import client
from kubecore.errors import StatusError
from kubecore.testing import MemoryApi

LOGS = "/containerLogs/ns/pod/c"


def reviewed(request: client.Request) -> client.Response | None:
    """What the API server of a new cluster answers to an access review."""
    if not request.path.endswith("/subjectaccessreviews"):
        return None
    spec = orjson.loads(request.body or b"{}")["spec"]
    wanted = spec["resourceAttributes"]
    user = UserInfo(spec["user"], groups=tuple(spec["groups"]))
    query = AuthorizationQuery(
        user, wanted["verb"], "", "v1", wanted["resource"], wanted["subresource"], "", wanted["name"]
    )
    allowed, _ = rights().authorize(query)
    return client.Response(201, {}, orjson.dumps({"status": {"allowed": allowed}}))


@asynccontextmanager
async def endpoint(pki: Pki, api: MemoryApi) -> AsyncIterator[int]:
    async def answer(request: BaseRequest) -> Response:
        return Response(text=request.path)

    async with api.client() as connected, pki.serving(answer, Access(connected, "node01").check) as port:
        yield port


async def ask(pki: Pki, port: int, identity: str, path: str = LOGS, method: str = "GET") -> bytes:
    reader, writer = await pki.connect(port, identity)
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: node01\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("identity", "status"),
    [
        ("apiserver-kubelet-client", b"200"),
        ("admin", b"200"),
        ("controllers", b"403"),
        ("scheduler", b"403"),
        ("service-proxy", b"403"),
        ("node-node01", b"403"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_api_server_uses_a_nodes_endpoint_and_other_components_do_not(
    pki: Pki, identity: str, status: bytes, method: str
) -> None:
    api = MemoryApi()
    api.reactions.append(reviewed)
    expected = status
    if identity == "controllers" and method == "GET":
        expected = b"200"  # the garbage collector reads and deletes whatever there is
    async with endpoint(pki, api) as port:
        assert (await ask(pki, port, identity, method=method)).startswith(b"HTTP/1.1 " + expected)


@pytest.mark.parametrize("identity", ["node-node01-server", "apiserver"])
async def test_a_servers_certificate_is_no_credential(pki: Pki, identity: str) -> None:
    api = MemoryApi()
    api.reactions.append(reviewed)
    async with endpoint(pki, api) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert await ask(pki, port, identity) == b"", "it was accepted"
            raise ConnectionError("closed without an answer")
    assert api.requests == []


async def test_a_node_that_cannot_ask_refuses(pki: Pki) -> None:
    api = MemoryApi()
    api.reactions.append(lambda _: StatusError(503, "ServiceUnavailable", "not now"))
    async with endpoint(pki, api) as port:
        answer = await ask(pki, port, "apiserver-kubelet-client")
    assert answer.startswith(b"HTTP/1.1 500")


@pytest.mark.parametrize(
    ("line", "verb", "subresource"),
    [
        ("GET /containerLogs/a/b/c", "get", "proxy"),
        ("POST /exec/a/b/c", "create", "proxy"),
        ("GET /stats/summary", "get", "stats"),
        ("GET /metrics", "get", "metrics"),
        ("GET /metrics%2Fcadvisor", "get", "metrics"),
        ("GET /logs/x", "get", "log"),
        ("DELETE /", "delete", "proxy"),
    ],
)
def test_paths_are_subresources_of_the_node(line: str, verb: str, subresource: str) -> None:
    wanted = attributes("n", make_mocked_request(*line.split(" ")))
    assert (wanted["verb"], wanted["subresource"]) == (verb, subresource)
    assert (wanted["resource"], wanted["name"]) == ("nodes", "n")
