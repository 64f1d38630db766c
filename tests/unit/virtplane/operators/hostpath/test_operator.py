"""The operator's process against a real API server: idle, with its webhook, until there is an object."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from tests.support.apiserver import RunningServer, running_server
from tests.support.waiting import until

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime.component import Context
from virtplane.api import resources as api
from virtplane.operators.hostpath import manifests
from virtplane.operators.hostpath.operator import HostPathOperator
from virtplane.operators.hostpath.product import Settings

NAMESPACE = "kubevirt"
SETTINGS = Settings(NAMESPACE, "registry.test/virtplane:1", "distributed", "v1")
_INSTALLED = (
    resources.CUSTOM_RESOURCE_DEFINITIONS,
    resources.SERVICE_ACCOUNTS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.SERVICES,
    resources.DEPLOYMENTS,
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path) as running:
        yield running


async def _get(client: Client, *where: str, resource: resources.ResourceType) -> JsonObject:
    found: JsonObject = await until(lambda: client.get(resource, *where), not_yet=errors.is_not_found)
    return found


@pytest.mark.feature("INS-20")
async def test_the_operator_is_idle_until_there_is_an_object(server: RunningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with server.client() as client, asyncio.timeout(60):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await client.create(resources.NAMESPACES, namespace)
        for document in manifests.install_objects(SETTINGS):
            if document["metadata"].get("namespace") != "kube-system":
                kind = document["kind"]
                await client.create(next(each for each in _INSTALLED if each.kind == kind), document)
        context = Context(
            client_factory=lambda _: server.client(),
            namespace=NAMESPACE,
            settings={"layout": "distributed", "image": SETTINGS.image, "hostpath_webhook_port": port},
            registry=CollectorRegistry(),
        )
        sys.modules.pop("virtplane.operators.hostpath.running", None)
        operator = asyncio.create_task(HostPathOperator().run(context))
        try:
            configuration = await _get(
                client,
                "hostpathprovisioner.kubevirt.io",
                resource=resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
            )
            (webhook,) = configuration["webhooks"]
            assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Fail", 30)
            assert "virtplane.operators.hostpath.running" not in sys.modules, "it is loaded when it is needed"
            assert (await client.list(resources.DAEMON_SETS))["items"] == []
            message = await _refusal(webhook, port, {"spec": {}})
            assert message == "either pathConfig or storage pools must be set"
            assert context.registry.get_sample_value("kubevirt_hpp_cr_ready") == -1
            # No cluster DNS leads to the webhook here.
            await client.delete(
                resources.VALIDATING_WEBHOOK_CONFIGURATIONS, configuration["metadata"]["name"]
            )
            hpp = {
                "apiVersion": api.HOSTPATH_PROVISIONERS.api_version,
                "kind": "HostPathProvisioner",
                "metadata": {"name": "hostpath-provisioner"},
                "spec": {"storagePools": [{"name": "a", "path": "/var/a"}]},
            }
            await client.create(api.HOSTPATH_PROVISIONERS, hpp)
            await _get(client, "hostpath-provisioner-csi", NAMESPACE, resource=resources.DAEMON_SETS)
            await _get(client, "kubevirt.io.hostpath-provisioner", resource=resources.CSI_DRIVERS)
        finally:
            operator.cancel()
            await asyncio.gather(operator, return_exceptions=True)
            await context.close()


async def _refusal(webhook: JsonObject, port: int, document: JsonObject) -> str:
    """What the webhook says about an object, asked as the API server does."""
    authority = base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()
    service = webhook["clientConfig"]["service"]
    host = f"{service['name']}.{service['namespace']}.svc"
    tls = ssl.create_default_context(cadata=authority)
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "r", "operation": "CREATE", "object": document},
    }
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}{service['path']}"
        while True:
            try:
                async with session.post(url, json=review, ssl=tls, server_hostname=host) as answer:
                    response = (await answer.json())["response"]
                    assert response["allowed"] is False
                    return str(response["status"]["message"])
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
