"""Who may ask virt-api over HTTPS: the API server, which proves itself by its front proxy's certificate."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import trustme
from prometheus_client import CollectorRegistry
from tests.support.managers import keep_running, working
from tests.support.web import serve_app

from kubecore import resources
from kubecore.client import Request, Response
from kubecore.connections import Connections
from kubecore.json import JsonObject
from kubecore.runtime import Manager
from kubecore.runtime.access import TokenAccess
from kubecore.runtime.health import MetricsPage
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.apiserver.server import Served
from virtplane.compute.apiserver.webhooks import Webhooks
from virtplane.serving.frontproxy import ProxySettings
from virtplane.serving.gate import MOST_BYTES
from virtplane.serving.https import server_tls

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_SUBRESOURCE = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vmi/pause"
_EVICTION = "/pod-eviction-validate"


class Server:
    """virt-api with certificates, and the clients that come to it."""

    def __init__(self, directory: Path) -> None:
        self.api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
        self.front_proxy = trustme.CA()
        self._serving = trustme.CA()
        self._directory = directory
        self.port = 0
        self.connections = Connections()

    @asynccontextmanager
    async def running(self, *, webhooks_need_certificate: bool = True) -> AsyncIterator[None]:
        client = self.api.client()
        manager = Manager(client)
        metrics = MetricsPage(CollectorRegistry(), TokenAccess(client).status)
        served = Served(
            client, manager, "kubevirt", Webhooks(client), webhooks_need_certificate, metrics=metrics
        )
        authority = self.front_proxy.cert_pem.bytes().decode()
        self.connections = served.gate.connections
        served.gate.proxy = ProxySettings(authority, frozenset({"front-proxy-client"}))
        self._write(self._serving.issue_cert("127.0.0.1"), "tls")
        tls = server_tls(self._directory, authority)
        async with serve_app(served.application(), tls) as self.port:
            keep_running(manager)
            async with working(manager):
                yield
            await client.close()

    def _write(self, leaf: trustme.LeafCert, name: str) -> None:
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        (self._directory / f"{name}.crt").write_bytes(chain)
        (self._directory / f"{name}.key").write_bytes(leaf.private_key_pem.bytes())

    async def ask(
        self,
        method: str,
        path: str,
        body: JsonObject | AsyncIterator[bytes],
        leaf: trustme.LeafCert | None,
        **headers: str,
    ) -> int:
        """The code of the answer. Raises aiohttp.ClientError where the connection is refused."""
        tls = ssl.create_default_context(cadata=self._serving.cert_pem.bytes().decode())
        if leaf is not None:
            self._write(leaf, "client")
            tls.load_cert_chain(self._directory / "client.crt", self._directory / "client.key")
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self.port}{path}"
            data = io.BytesIO(orjson.dumps(body)) if isinstance(body, dict) else body
            headers = {"Content-Type": "application/json", **headers}
            async with session.request(method, url, data=data, ssl=tls, headers=headers) as answer:
                return answer.status


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path)
    made.api.put(
        kinds.VIRTUAL_MACHINE_INSTANCES,
        {
            "metadata": {"name": "vmi", "namespace": "ns", "uid": "u"},
            "spec": {"evictionStrategy": "LiveMigrate"},
            "status": {
                "phase": "Running",
                "nodeName": "n",
                "activePods": {"p": "n"},
                "conditions": [{"type": "LiveMigratable", "status": "True"}],
            },
        },
    )
    made.api.put(
        resources.PODS,
        {
            "metadata": {
                "name": "virt-launcher-vmi-x",
                "namespace": "ns",
                "labels": {"kubevirt.io": "virt-launcher"},
                "annotations": {"kubevirt.io/domain": "vmi"},
                "ownerReferences": [{"kind": "VirtualMachineInstance", "name": "vmi", "controller": True}],
            },
            "spec": {"nodeName": "n"},
        },
    )
    return made


def _eviction() -> JsonObject:
    request = {
        "uid": "r",
        "operation": "CREATE",
        "namespace": "ns",
        "name": "virt-launcher-vmi-x",
        "object": {"metadata": {"name": "virt-launcher-vmi-x", "namespace": "ns"}},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _evacuation(server: Server) -> Any:
    stored = server.api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vmi", "ns") or {}
    return stored["status"].get("evacuationNodeName")


async def test_an_invented_eviction_moves_no_guest(server: Server) -> None:
    async with server.running():
        assert await server.ask("POST", _EVICTION, _eviction(), None) == 401
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await server.ask("POST", _EVICTION, _eviction(), trustme.CA().issue_cert("front-proxy-client"))
        stranger = server.front_proxy.issue_cert("other.test", common_name="somebody")
        assert await server.ask("POST", _EVICTION, _eviction(), stranger) == 401
        assert _evacuation(server) is None
        proxy = server.front_proxy.issue_cert("proxy.test", common_name="front-proxy-client")
        assert await server.ask("POST", _EVICTION, _eviction(), proxy) == 200
        assert _evacuation(server) == "n"


async def test_webhooks_answer_anybody_where_the_api_server_shows_no_certificate(server: Server) -> None:
    async with server.running(webhooks_need_certificate=False):
        assert await server.ask("POST", _EVICTION, _eviction(), None) == 200


async def test_a_user_is_believed_from_the_front_proxy_alone(server: Server) -> None:
    asked: list[Request] = []

    def review(request: Request) -> Response | None:
        if not request.path.endswith("/subjectaccessreviews"):
            return None
        asked.append(request)
        denied = orjson.dumps({"status": {"allowed": False, "reason": "no"}})
        return Response(201, {"content-type": "application/json"}, denied)

    server.api.reactions.append(review)
    async with server.running():
        user = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
        assert await server.ask("PUT", _SUBRESOURCE, {}, None, **user) == 401
        stranger = server.front_proxy.issue_cert("other.test", common_name="somebody")
        assert await server.ask("PUT", _SUBRESOURCE, {}, stranger, **user) == 401
        assert not asked
        proxy = server.front_proxy.issue_cert("proxy.test", common_name="front-proxy-client")
        assert await server.ask("PUT", _SUBRESOURCE, {}, proxy, **user) == 401
        assert len(asked) == 1


@pytest.mark.parametrize("path", ["/apis", _SUBRESOURCE])
async def test_connections_are_counted_of_all_but_the_front_proxy(server: Server, path: str) -> None:
    """All users' requests come from its address, those of strangers from theirs."""
    proxy = server.front_proxy.issue_cert(common_name="front-proxy-client")
    other = server.front_proxy.issue_cert(common_name="somebody else")
    async with server.running():
        for stranger in (None, other):
            await server.ask("GET", path, {}, stranger)
        await server.ask("GET", path, {}, proxy)
        admitted = [server.connections.admit("127.0.0.1") for _ in range(2000)]
        strangers = [server.connections.admit("127.0.0.2") for _ in range(2000)]
    assert all(admitted)
    assert strangers.count(True) == server.connections.most_each


async def test_a_stranger_is_not_known_by_his_requests(server: Server) -> None:
    async with server.running():
        await server.ask("GET", "/apis", {}, None)
        admitted = [server.connections.admit("127.0.0.1") for _ in range(2000)]
    assert admitted.count(True) == server.connections.most_each


async def test_bodies_that_are_sent_for_ever_leave_room_for_others(server: Server) -> None:
    def permit(request: Request) -> Response | None:
        if not request.path.endswith("/subjectaccessreviews"):
            return None
        return Response(201, {"content-type": "application/json"}, b'{"status": {"allowed": true}}')

    server.api.reactions.append(permit)
    begun, ended = asyncio.Semaphore(0), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b" " * 1000
        begun.release()
        await ended.wait()
        yield b"{}"

    async with server.running():
        proxy = server.front_proxy.issue_cert("proxy.test", common_name="front-proxy-client")
        tenant = {"X-Remote-User": "system:serviceaccount:tenant:one"}
        sending = [
            asyncio.create_task(server.ask("PUT", _SUBRESOURCE, endless(), proxy, **tenant)) for _ in range(8)
        ]
        for _ in sending:
            await begun.acquire()
        refused, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in refused} == {429}
        large: JsonObject = {"a": "x" * 100_000}
        tenant["X-Remote-User"] = "system:serviceaccount:tenant:another"
        assert await server.ask("PUT", _SUBRESOURCE, {"a": "x" * 2_000_000}, proxy, **tenant) == 429
        neighbour = {"X-Remote-User": "neighbour"}
        assert await server.ask("PUT", _SUBRESOURCE, large, proxy, **neighbour) == 400
        assert await server.ask("PUT", _SUBRESOURCE, {"a": "x" * MOST_BYTES}, proxy, **neighbour) == 413
        ended.set()
        await asyncio.gather(*sending)


async def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(server: Server) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * (1 << 20)

    server.api.reactions.append(
        lambda request: (
            Response(201, {"content-type": "application/json"}, b'{"status": {"allowed": true}}')
            if request.path.endswith("/subjectaccessreviews")
            else None
        )
    )
    async with server.running():
        proxy = server.front_proxy.issue_cert("proxy.test", common_name="front-proxy-client")
        user = {"X-Remote-User": "somebody"}
        assert await server.ask("PUT", _SUBRESOURCE, pieces(), proxy, **user) == 413


@pytest.mark.parametrize(("token", "status"), [("", 401), ("tenant", 403), ("prometheus", 200)])
async def test_metrics_are_for_readers_with_a_token_who_may(server: Server, token: str, status: int) -> None:
    def review(request: Request) -> Response | None:
        spec = orjson.loads(request.body or b"{}").get("spec", {})
        if request.path.endswith("/tokenreviews"):
            found: JsonObject = {"authenticated": True, "user": {"username": spec["token"]}}
        elif request.path.endswith("/subjectaccessreviews"):
            is_metrics = spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
            found = {"allowed": is_metrics and spec["user"] == "prometheus"}
        else:
            return None
        return Response(201, {"content-type": "application/json"}, orjson.dumps({"status": found}))

    server.api.reactions.append(review)
    async with server.running():
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        assert await server.ask("GET", "/metrics", {}, None, **headers) == status
