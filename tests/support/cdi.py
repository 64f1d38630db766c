"""An API server with CDI's kinds and cdi-apiserver, in this process.

No controller of CDI works, and the objects are there that its operator would make.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from tests.support.apiserver import RunningServer, running_server
from tests.support.certificate_files import front_proxy_files, write_certificate
from tests.support.waiting import until, until_condition

from kindling.controllers import main as kubernetes_controllers
from kubecore import resources as core
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.runtime.component import Context
from virtplane.api import cdi_crds, cdi_names, resources
from virtplane.operators.cdi import webhooks
from virtplane.operators.kit.product import Product
from virtplane.operators.kit.webhooks import Endpoint
from virtplane.storage.cdi.apiserver.server import CdiApiServer

_PRODUCT = Product(
    "cdi-operator", "storage", "cdi.kubevirt.io", "test/digest", "test/customizer", "test/secret"
)
_FEATURE_GATES = ["HonorWaitForFirstConsumer"]
_CONFIGURATIONS = {
    "MutatingWebhookConfiguration": core.MUTATING_WEBHOOK_CONFIGURATIONS,
    "ValidatingWebhookConfiguration": core.VALIDATING_WEBHOOK_CONFIGURATIONS,
}


@dataclass(frozen=True)
class CdiCluster:
    """The API server, and an administrator's client."""

    server: RunningServer
    client: Client
    port: int
    """cdi-apiserver's own."""
    authority: str
    """Of cdi-apiserver's certificate, PEM."""


@asynccontextmanager
async def cdi_cluster(directory: Path, *, controllers: bool = False) -> AsyncIterator[CdiCluster]:
    """Everything that admission of data volumes needs, with certificates in `directory`.

    With `controllers`, those of Kubernetes work: volumes are bound, namespaces go, roles are aggregated.
    """
    front_proxy, authority = front_proxy_files(directory), trustme.CA()
    certificates = directory / "cdi"
    certificates.mkdir()
    host = f"{cdi_names.API_SERVICE}.{cdi_names.NAMESPACE}.svc"
    write_certificate(authority.issue_cert(host), certificates, "tls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with (
        running_server(directory, **front_proxy) as server,
        server.client() as client,
    ):
        await _install(client)
        context = Context(
            client_factory=lambda _: server.client(),
            namespace=cdi_names.NAMESPACE,
            settings={
                "cdi_api_port": port,
                "cdi_api_certificates": certificates,
                "require_webhook_certificate": True,
            },
        )
        tasks = [asyncio.create_task(CdiApiServer().run(context))]
        if controllers:
            tasks.append(asyncio.create_task(kubernetes_controllers.run(server.config())))
        try:
            bundle = authority.cert_pem.bytes().decode()
            await _register(client, bundle, port)
            await until(lambda: context.health.ready()[0])
            yield CdiCluster(server, client, port, bundle)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await context.close()


async def _install(client: Client) -> None:
    """The namespace, the kinds, and the objects that an operator would make."""
    await client.create(core.NAMESPACES, _object("v1", "Namespace", cdi_names.NAMESPACE))
    definitions = [*cdi_crds.custom_resource_definitions(), cdi_crds.installation_definition()]
    for definition in definitions:
        await client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
    for definition in definitions:
        await until_condition(client, core.CUSTOM_RESOURCE_DEFINITIONS, meta.name(definition), "Established")
    settings: JsonObject = {"featureGates": _FEATURE_GATES}
    spec: JsonObject = {"config": settings, "customizeComponents": {}, "imagePullPolicy": "IfNotPresent"}
    spec |= {"infra": {}, "workload": {}}
    cdi = _object(resources.CDIS.api_version, "CDI", "cdi", spec=spec)
    cdi["metadata"]["finalizers"] = ["operator.cdi.kubevirt.io"]
    await client.create(resources.CDIS, {**cdi, "status": {"phase": "Deployed"}})
    config = _object(resources.CDI_CONFIGS.api_version, "CDIConfig", cdi_names.CONFIG, spec=settings)
    await client.create(
        resources.CDI_CONFIGS, {**config, "status": {"filesystemOverhead": {"global": "0.06"}}}
    )


async def _register(client: Client, authority: str, port: int) -> None:
    """The service, which leads to loopback, and what the API server must know of it."""
    service = _object(
        "v1", "Service", cdi_names.API_SERVICE, spec={"type": "ExternalName", "externalName": "localhost"}
    )
    await client.create(core.SERVICES, service, cdi_names.NAMESPACE)
    endpoint = Endpoint(
        _PRODUCT, cdi_names.NAMESPACE, cdi_names.API_SERVICE, cdi_names.API_SERVER_CERTIFICATE, authority
    )
    for document in webhooks.configurations(endpoint, must_guard_deletion=True):
        for webhook in document["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
        await client.create(_CONFIGURATIONS[document["kind"]], document)
    api_service = webhooks.api_service(endpoint)
    api_service["spec"]["service"]["port"] = port
    await client.create(core.API_SERVICES, api_service)
    await until_condition(client, core.API_SERVICES, meta.name(api_service), "Available")


def _object(api_version: str, kind: str, name: str, **members: object) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **members}
