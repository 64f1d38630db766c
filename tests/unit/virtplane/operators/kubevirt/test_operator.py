"""The operator against an API server in this process; no node, so DaemonSets are reported by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.apiserver import RunningServer, running_server
from tests.support.waiting import until

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.runtime.component import Context
from virtplane.api import crds, volumegroupsnapshot_crds, volumesnapshot_crds
from virtplane.api import resources as api
from virtplane.compute.apiserver.server import guestfs_image
from virtplane.operators.kubevirt import manifests
from virtplane.operators.kubevirt.operator import VirtOperator

NAMESPACE = "kubevirt"
_OPTIONS = manifests.InstallOptions(NAMESPACE, "registry.test/virtplane:1", use_emulation=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path) as running:
        yield running


async def apply(client: Client, document: JsonObject) -> None:
    resource = next(resource for resource in INSTALLED if resource.kind == document["kind"])
    await client.create(resource, document)


INSTALLED = (
    resources.NAMESPACES,
    resources.CUSTOM_RESOURCE_DEFINITIONS,
    resources.PRIORITY_CLASSES,
    resources.SERVICE_ACCOUNTS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.SERVICES,
    resources.DEPLOYMENTS,
    api.KUBEVIRTS,
)


async def eventually(check: Callable[[], Awaitable[object]]) -> None:
    """Return once `check` gives something true; absent objects count as false."""
    await until(check, not_yet=errors.is_not_found)


CONSTRAINTS_CRD: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {
        "group": api.SECURITY_CONTEXT_CONSTRAINTS.group,
        "names": {
            "plural": "securitycontextconstraints",
            "singular": "securitycontextconstraints",
            "kind": "SecurityContextConstraints",
            "shortNames": ["scc"],
        },
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@pytest.mark.feature("INS-94", "INS-95")
async def test_the_installation_comes_about_from_one_object(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GS_IMAGE", "mirror.test/guestfs:3")
    monkeypatch.setenv("SIDECAR_SHIM_IMAGE", "mirror.test/sidecar-shim:3")
    async with server.client() as client:
        await apply(client, CONSTRAINTS_CRD)
        for document in manifests.install_objects(_OPTIONS):
            if document["kind"] != "RoleBinding" or document["metadata"]["namespace"] == NAMESPACE:
                await apply(client, document)
        context = Context(
            client_factory=lambda _: server.client(),
            namespace=NAMESPACE,
            settings={
                "layout": "distributed",
                "image": "registry.test/virtplane:1",
                "operator_webhook_port": 0,
            },
        )
        operator = asyncio.create_task(VirtOperator().run(context))
        try:

            async def served() -> bool:
                await client.list(api.KUBEVIRTS)
                return True

            await eventually(served)
            document = manifests.kubevirt_object(_OPTIONS)
            architecture = {"defaultArchitecture": "s390x"}
            document["spec"] |= {"imageRegistry": "mirror.test:5000/v", "imageTag": "2"}
            document["spec"]["configuration"]["architectureConfiguration"] = architecture
            await apply(client, document)

            async def handler() -> JsonObject:
                return await client.get(resources.DAEMON_SETS, "virt-handler", NAMESPACE)

            await eventually(handler)
            found = await client.list(resources.CUSTOM_RESOURCE_DEFINITIONS)
            entries = (*crds.DEFINITIONS, crds.HOSTPATH_PROVISIONER, *volumesnapshot_crds.DEFINITIONS)
            entries += volumegroupsnapshot_crds.DEFINITIONS
            wanted = {*(entry.name for entry in entries), "cdis.cdi.kubevirt.io"}
            assert {meta.name(crd) for crd in found["items"]} - {meta.name(CONSTRAINTS_CRD)} == wanted
            role = await client.get(resources.CLUSTER_ROLES, "kubevirt-controller")
            assert any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in role["rules"])
            constraint = await client.get(api.SECURITY_CONTEXT_CONSTRAINTS, "kubevirt-controller")
            assert constraint["users"] == ["system:serviceaccount:kubevirt:kubevirt-controller"]
            assert constraint["allowHostDirVolumePlugin"] is True
            assert constraint["allowPrivilegedContainer"] is False
            assert constraint["allowedCapabilities"] == ["SYS_NICE", "NET_BIND_SERVICE"]
            kubevirt = await client.get(api.KUBEVIRTS, "kubevirt", NAMESPACE)
            assert meta.finalizers(kubevirt) == ["kubevirt.io/foregroundDeleteKubeVirt"]
            assert kubevirt["status"]["phase"] == "Deploying"
            secret = await client.get(resources.SECRETS, "kubevirt-virt-api-certs", NAMESPACE)
            assert secret["type"] == "kubernetes.io/tls"
            roles = await client.list(resources.CLUSTER_ROLES, label_selector="kubevirt.io=")
            assert "kubevirt.io:admin" in {meta.name(role) for role in roles["items"]}
            assert kubevirt["status"]["defaultArchitecture"] == "s390x"
            target = [kubevirt["status"][f"targetKubeVirt{each}"] for each in ("Registry", "Version")]
            assert target == ["mirror.test:5000/v", "2"]
            config = json.loads(kubevirt["status"]["targetDeploymentConfig"])
            assert guestfs_image({"observedDeploymentConfig": json.dumps(config)}) == "mirror.test/guestfs:3"
            controller = await client.get(resources.DEPLOYMENTS, "virt-controller", NAMESPACE)
            environment = controller["spec"]["template"]["spec"]["containers"][0]["env"]
            assert {"name": "SIDECAR_SHIM_IMAGE", "value": "mirror.test/sidecar-shim:3"} in environment
            template = (await handler())["spec"]["template"]["spec"]
            assert template["containers"][0]["image"] == "mirror.test:5000/v/virtplane:2"
        finally:
            operator.cancel()
            await asyncio.gather(operator, return_exceptions=True)
            await context.close()
