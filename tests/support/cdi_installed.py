"""An API server on which cdi-operator has installed CDI, in this process; each component has its own rights.

The services of CDI lead to loopback, by the customization that users have too.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from tests.support.apiserver import RunningServer, running_server
from tests.support.certificate_files import front_proxy_files
from tests.support.waiting import until

from kindling.controllers import main as kubernetes_controllers
from kubecore import resources as core
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.runtime.component import Context
from virtplane import run
from virtplane.api import resources
from virtplane.operators.cdi import manifests
from virtplane.operators.cdi.operator import CdiOperator
from virtplane.operators.cdi.product import Settings
from virtplane.operators.kit.apply import BUILT_IN

NAMESPACE = "cdi"
SETTINGS = Settings(NAMESPACE, "registry.test/virtplane:1", "compact", "v1")


@dataclass(frozen=True)
class InstalledCdi:
    """The API server, and an administrator's client."""

    server: RunningServer
    client: Client
    context: Context


@asynccontextmanager
async def installed_cdi(directory: Path) -> AsyncIterator[InstalledCdi]:
    """CDI in phase Deployed, with files in `directory`."""
    front_proxy = front_proxy_files(directory)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with (
        running_server(directory, **front_proxy) as server,
        server.client() as client,
    ):
        context = _context(server, directory, port)
        tasks = [asyncio.create_task(kubernetes_controllers.run(server.config()))]
        try:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await client.create(core.NAMESPACES, namespace)
            for document in manifests.install_objects(SETTINGS):
                kind = next(each for each in BUILT_IN if each.kind == document["kind"])
                await client.create(kind, document)
            tasks.append(asyncio.create_task(CdiOperator().run(context)))
            await client.create(resources.CDIS, cdi_object(port))
            await phase(client, "Deployed", tasks[-1])
            yield InstalledCdi(server, client, context)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await context.close()


def _context(server: RunningServer, directory: Path, port: int) -> Context:
    arguments = ["cdi-operator", "--namespace", NAMESPACE, "--layout", "compact", "--impersonate"]
    return Context(
        client_factory=run.client_factory(run.parse(arguments), server.config(), {}),
        namespace=NAMESPACE,
        identity="test",
        settings={
            "layout": "compact",
            "image": SETTINGS.image,
            "cdi_api_port": port,
            "cdi_api_certificates": directory / "cdi-api",
            "cdi_upload_proxy_certificates": directory / "cdi-proxy",
            "cdi_upload_client_certificates": directory / "cdi-client",
            "require_webhook_certificate": True,
        },
        registry=CollectorRegistry(),
    )


def cdi_object(port: int) -> JsonObject:
    """The CDI object, whose webhooks and upload API are on a `port` of loopback."""
    webhook = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}
    service = {
        "op": "replace",
        "path": "/spec",
        "value": {"type": "ExternalName", "externalName": "localhost"},
    }
    aggregated = {"op": "replace", "path": "/spec/service/port", "value": port}
    changes = {
        ("Service", "cdi-api"): service,
        ("APIService", "*"): aggregated,
        ("ValidatingWebhookConfiguration", "*"): webhook,
        ("MutatingWebhookConfiguration", "*"): webhook,
    }
    patches = [
        {"resourceType": kind, "resourceName": name, "type": "json", "patch": json.dumps([change])}
        for (kind, name), change in changes.items()
    ]
    return {
        "apiVersion": resources.CDIS.api_version,
        "kind": "CDI",
        "metadata": {"name": "cdi"},
        "spec": {
            "config": {"featureGates": ["HonorWaitForFirstConsumer"]},
            "customizeComponents": {"patches": patches},
            "imagePullPolicy": "IfNotPresent",
        },
    }


async def phase(client: Client, wanted: str, operator: asyncio.Task[None]) -> None:
    """Wait for a phase of the CDI object, for as long as the operator runs."""

    async def is_wanted() -> bool:
        if operator.done():
            operator.result()
        return get_str(await client.get(resources.CDIS, "cdi"), "status", "phase") == wanted

    await until(is_wanted, 60)
