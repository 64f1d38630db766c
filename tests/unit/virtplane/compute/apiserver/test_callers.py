"""Who may ask virt-api over HTTPS: the API server, which proves itself by its front proxy's certificate."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import trustme
from aiohttp import web
from tests.support.managers import keep_running, working

from kubecore import resources
from kubecore.client import Request, Response
from kubecore.json import JsonObject
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.apiserver.server import Served
from virtplane.compute.apiserver.webhooks import Webhooks
from virtplane.serving.frontproxy import ProxySettings
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

    @asynccontextmanager
    async def running(self, *, webhooks_need_certificate: bool = True) -> AsyncIterator[None]:
        client = self.api.client()
        manager = Manager(client)
        served = Served(client, manager, "kubevirt", Webhooks(client), webhooks_need_certificate)
        authority = self.front_proxy.cert_pem.bytes().decode()
        served.gate.proxy = ProxySettings(authority, frozenset({"front-proxy-client"}))
        self._write(self._serving.issue_cert("127.0.0.1"), "tls")
        runner = web.AppRunner(served.application(), shutdown_timeout=0.1)
        await runner.setup()
        tls = server_tls(self._directory, authority)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.port = runner.addresses[0][1]
        keep_running(manager)
        try:
            async with working(manager):
                yield
        finally:
            await runner.cleanup()
            await client.close()

    def _write(self, leaf: trustme.LeafCert, name: str) -> None:
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        (self._directory / f"{name}.crt").write_bytes(chain)
        (self._directory / f"{name}.key").write_bytes(leaf.private_key_pem.bytes())

    async def ask(
        self, method: str, path: str, body: JsonObject, leaf: trustme.LeafCert | None, **headers: str
    ) -> int:
        """The code of the answer. Raises aiohttp.ClientError where the connection is refused."""
        tls = ssl.create_default_context(cadata=self._serving.cert_pem.bytes().decode())
        if leaf is not None:
            self._write(leaf, "client")
            tls.load_cert_chain(self._directory / "client.crt", self._directory / "client.key")
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self.port}{path}"
            async with session.request(method, url, json=body, ssl=tls, headers=headers) as answer:
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
