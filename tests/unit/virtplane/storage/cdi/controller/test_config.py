"""CDIConfig follows the CDI object, the storage classes and what publishes the upload proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.cdi_rights import for_controllers
from tests.support.managers import working

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import STORAGE_CLASSES
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.cdi_config import FilesystemOverhead
from virtplane.api.core_v1 import ResourceRequirements
from virtplane.storage.cdi.controller.config.decisions import overhead, pod_resources
from virtplane.storage.cdi.controller.config.reconciler import INGRESSES, ConfigController

AUTHORITY = {"annotations": {"cdi.kubevirt.io/configAuthority": ""}}
NO_PROXY = {"HTTPProxy": "", "HTTPSProxy": "", "noProxy": "", "trustedCAProxy": ""}


@pytest.mark.parametrize(
    ("wanted", "everywhere", "single"),
    [
        (FilesystemOverhead(), "0.06", "0.06"),
        (FilesystemOverhead(global_="0.1"), "0.1", "0.1"),
        (FilesystemOverhead(global_="0.1", storage_class={"c": "0.25"}), "0.1", "0.25"),
        (FilesystemOverhead(global_="1.5", storage_class={"c": "x", "none": "0.5"}), "0.06", "0.06"),
    ],
)
def test_overhead_is_said_for_every_class(wanted: FilesystemOverhead, everywhere: str, single: str) -> None:
    assert overhead(wanted, ["c"]) == FilesystemOverhead(global_=everywhere, storage_class={"c": single})


def test_resources_of_pods_can_be_set_one_by_one() -> None:
    wanted = ResourceRequirements(limits={"cpu": "2", "example.com/x": "1"}, requests={"memory": "128Mi"})
    assert pod_resources(wanted) == ResourceRequirements(
        limits={"cpu": "2", "memory": "600M"}, requests={"cpu": "100m", "memory": "128Mi"}
    )


async def status_with(client: Client, **wanted: Any) -> dict[str, Any]:
    """The config's status once it has all of `wanted`; None stands for absent."""
    async with asyncio.timeout(30):
        while True:
            try:
                status = (await client.get(kinds.CDI_CONFIGS, "config")).get("status", {})
            except StatusError as error:
                if not is_not_found(error):
                    raise
                status = {}
            if status and all(status.get(name) == value for name, value in wanted.items()):
                return dict(status)
            await asyncio.sleep(0)


@asynccontextmanager
async def cluster(**metadata: Any) -> AsyncIterator[Client]:
    api = MemoryApi([kinds.CDIS, kinds.CDI_CONFIGS, INGRESSES], whole=[kinds.CDI_CONFIGS])
    cdi = {"apiVersion": kinds.CDIS.api_version, "kind": "CDI", "metadata": {"name": "cdi", **metadata}}
    with for_controllers(api) as restricted:
        async with restricted.client() as client, api.client() as administrator:
            manager = Manager(client)
            ConfigController(client, manager, "cdi")
            async with working(manager):
                spec = {"config": {"featureGates": ["Gate"]}}
                await administrator.create(kinds.CDIS, {**cdi, "spec": spec})
                yield administrator


async def test_config_has_the_defaults_and_belongs_to_the_installation() -> None:
    async with cluster(**AUTHORITY) as client:
        status = await status_with(client, importProxy=NO_PROXY)
        assert status["filesystemOverhead"]["global"] == "0.06"
        assert status["defaultPodResourceRequirements"]["limits"] == {"cpu": "750m", "memory": "600M"}
        config = await client.get(kinds.CDI_CONFIGS, "config")
        assert config["spec"] == {"featureGates": ["Gate"]}
        assert config["metadata"]["ownerReferences"][0]["kind"] == "CDI"


@pytest.mark.parametrize("authority", [True, False])
async def test_installation_has_the_say_only_with_the_annotation(authority: bool) -> None:
    async with cluster(**(AUTHORITY if authority else {})) as client:
        await status_with(client, importProxy=NO_PROXY)
        change = {"spec": {"preallocation": True}}
        await client.patch(kinds.CDI_CONFIGS, "config", change, type="merge")
        if not authority:
            await status_with(client, preallocation=True)
            return
        await client.patch(
            kinds.CDIS, "cdi", {"spec": {"config": {"uploadProxyURLOverride": "https://x"}}}, type="merge"
        )
        await status_with(client, uploadProxyURL="https://x", preallocation=None)


@pytest.mark.feature("STO-55")
async def test_scratch_class_counts_once_it_exists() -> None:
    async with cluster(**AUTHORITY) as client:
        change = {"spec": {"config": {"scratchSpaceStorageClass": "fast"}}}
        await client.patch(kinds.CDIS, "cdi", change, type="merge")
        await status_with(client, scratchSpaceStorageClass=None)
        storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x"}
        await client.create(STORAGE_CLASSES, {**storage_class, "metadata": {"name": "fast"}})
        status = await status_with(client, scratchSpaceStorageClass="fast")
        assert status["filesystemOverhead"]["storageClass"] == {"fast": "0.06"}


async def test_host_of_an_ingress_to_the_upload_proxy_is_published() -> None:
    async with cluster(**AUTHORITY) as client:
        backend = {"service": {"name": "cdi-uploadproxy", "port": {"number": 443}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        ingress = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "i", "namespace": "cdi"},
            "spec": {"rules": [{"host": "upload.example", "http": {"paths": paths}}]},
        }
        await client.create(INGRESSES, ingress, "cdi")
        await status_with(client, uploadProxyURL="upload.example")
        await client.delete(INGRESSES, "i", "cdi")
        await status_with(client, uploadProxyURL=None)
