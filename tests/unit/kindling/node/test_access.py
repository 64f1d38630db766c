"""Who may use a node's endpoint, with the certificates and the default roles of a cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from tests.support.roles import default_rights

from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kindling.cluster import certificates
from kindling.cluster.instance import Instance
from kindling.node.server import http
from kindling.node.server.access import Access, attributes
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.testing import MemoryApi

LOGS = "/containerLogs/ns/pod/c"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Instance(tmp_path_factory.mktemp("state"), "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    certificates.ensure(made)
    return made.pki


def reviewed(request: Request) -> Response | None:
    """What the API server of a new cluster answers to an access review."""
    if not request.path.endswith("/subjectaccessreviews"):
        return None
    spec = orjson.loads(request.body or b"{}")["spec"]
    wanted = spec["resourceAttributes"]
    user = UserInfo(spec["user"], groups=tuple(spec["groups"]))
    query = AuthorizationQuery(
        user, wanted["verb"], "", "v1", wanted["resource"], wanted["subresource"], "", wanted["name"]
    )
    allowed, _ = default_rights().authorize(query)
    return Response(201, {}, orjson.dumps({"status": {"allowed": allowed}}))


@asynccontextmanager
async def endpoint(pki: Path, api: MemoryApi) -> AsyncIterator[int]:
    async def answer(request: http.Request, connection: http.Connection) -> None:
        await connection.answer(200, request.path.encode())

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "node-node01-server.crt", pki / "node-node01-server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    async with api.client() as client:
        server = await http.serve(answer, "127.0.0.1", 0, context, Access(client, "node01").check)
        async with server:
            yield server.sockets[0].getsockname()[1]


async def ask(pki: Path, port: int, identity: str, path: str = LOGS, method: str = "GET") -> bytes:
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.load_cert_chain(pki / f"{identity}.crt", pki / f"{identity}.key")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="node01")
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
    pki: Path, identity: str, status: bytes, method: str
) -> None:
    api = MemoryApi()
    api.reactions.append(reviewed)
    expected = status
    if identity == "controllers" and method == "GET":
        expected = b"200"  # the garbage collector reads and deletes whatever there is
    async with endpoint(pki, api) as port:
        assert (await ask(pki, port, identity, method=method)).startswith(b"HTTP/1.1 " + expected)


@pytest.mark.parametrize("identity", ["node-node01-server", "apiserver"])
async def test_a_servers_certificate_is_no_credential(pki: Path, identity: str) -> None:
    api = MemoryApi()
    api.reactions.append(reviewed)
    async with endpoint(pki, api) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert await ask(pki, port, identity) == b"", "it was accepted"
            raise ConnectionError("closed without an answer")
    assert api.requests == []


async def test_a_node_that_cannot_ask_refuses(pki: Path) -> None:
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
    wanted = attributes("n", http.parse_request(f"{line} HTTP/1.1\r\n\r\n".encode()))
    assert (wanted["verb"], wanted["subresource"]) == (verb, subresource)
    assert (wanted["resource"], wanted["name"]) == ("nodes", "n")
