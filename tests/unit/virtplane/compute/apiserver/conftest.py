"""virt-api over HTTP, on a Kubernetes API in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.managers import keep_running, working
from tests.support.web import serve_app

from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.apiserver.metrics import ApiMetrics
from virtplane.compute.apiserver.server import Served
from virtplane.compute.apiserver.webhooks import Webhooks
from virtplane.serving.gate import Gate, Guarded
from virtplane.serving.rights import Authorizer

BASE = "/apis/subresources.kubevirt.io/v1"
_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


@dataclass(frozen=True)
class Answer:
    """What virt-api said."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class VirtApi:
    """The running server; `cluster` is the Kubernetes API behind it."""

    cluster: MemoryApi
    url: str
    session: aiohttp.ClientSession
    application: web.Application
    metrics: ApiMetrics

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """A request for a path below the group's version, with the headers that KubeVirt's virtctl sends."""
        headers = {"Accept": "application/json, */*", "User-Agent": "virtctl/v1.9.0"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body)
        request = self.session.request(method, self.url + BASE + path, headers=headers, data=data)
        async with request as answer:
            text = await answer.text()
            parsed = json.loads(text) if answer.content_type == "application/json" and text else text
            return Answer(answer.status, dict(answer.headers), parsed)


@pytest.fixture
async def virt_api() -> AsyncIterator[VirtApi]:
    """A server without a check of certificates and rights."""
    cluster = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    client = cluster.client()
    manager = Manager(client)
    webhooks = Webhooks(client)
    served = Served(client, manager, "kubevirt", webhooks)
    everything_is_open = Guarded((), lambda path: True, lambda method, path: None)
    served.gate = Gate(Authorizer(client), everything_is_open)
    application = served.application()
    async with serve_app(application) as port:
        keep_running(manager)
        async with working(manager), aiohttp.ClientSession() as session:
            yield VirtApi(cluster, f"http://127.0.0.1:{port}", session, application, webhooks.metrics)
    await client.close()
