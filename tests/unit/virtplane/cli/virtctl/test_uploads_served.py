"""What `image-upload` makes and asks for, on an API server with CDI's kinds and admission."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import pytest_asyncio
from aiohttp import web
from tests.support.cdi import CdiCluster, cdi_cluster

from kubecore import resources as core
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from virtplane.api import resources
from virtplane.cli.virtctl.contents import whole
from virtplane.cli.virtctl.uploading import imageupload, uploadclaims
from virtplane.cli.virtctl.uploading.imageupload import Transfer
from virtplane.cli.virtctl.uploading.uploadclaims import Target, Wanted

VOLUME, CLAIM = Target("default", "disk"), Target("default", "claim", is_claim=True)
POD_READY = "cdi.kubevirt.io/storage.pod.ready"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CdiCluster]:
    async with cdi_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Proxy:
    """Takes what is uploaded, and notes the tokens."""

    url: str
    tokens: list[str]


async def annotate(client: Client, name: str, notes: dict[str, str]) -> JsonObject:
    patch: JsonObject = {"metadata": {"annotations": notes}}
    return await client.patch(core.PERSISTENT_VOLUME_CLAIMS, name, patch, "default", type="merge")


@pytest.mark.feature("CTL-43")
async def test_admission_takes_the_volumes_that_flags_describe(cluster: CdiCluster) -> None:
    wanted = Wanted("1Gi", "", "ReadWriteOnce", "filesystem", True, {"k": "v"})
    assert await uploadclaims.existing(cluster.client, VOLUME, must_exist=False) is None
    await uploadclaims.create(cluster.client, VOLUME, wanted)
    await uploadclaims.create(cluster.client, CLAIM, wanted)
    volume = await cluster.client.get(resources.DATA_VOLUMES, "disk", "default")
    assert meta.labels(volume) == {"k": "v"}
    assert volume["spec"]["source"] == {"upload": {}}
    claim = await cluster.client.get(core.PERSISTENT_VOLUME_CLAIMS, "claim", "default")
    assert claim["spec"]["volumeMode"] == "Filesystem"
    with pytest.raises(StatusError) as raised:
        await uploadclaims.create(cluster.client, VOLUME, wanted)
    assert raised.value.message == 'datavolumes.cdi.kubevirt.io "disk" already exists'
    with pytest.raises(StatusError) as raised:
        await uploadclaims.create(cluster.client, VOLUME, Wanted("1Gi", "none"))
    assert raised.value.message == 'storageclasses.storage.k8s.io "none" not found'


@pytest.mark.feature("CTL-43")
async def test_cdis_token_opens_the_way_to_a_claim(
    cluster: CdiCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploadclaims, "POLL_SECONDS", 0.01)
    target = Target("default", "sent", is_claim=True)
    await uploadclaims.create(cluster.client, target, Wanted("1Gi"))
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    proxy = Proxy("", [])

    async def take(request: web.Request) -> web.Response:
        assert await request.read() == b"disk"
        proxy.tokens.append(request.headers["Authorization"])
        return web.Response()

    application = web.Application()
    application.router.add_post("/v1beta1/upload", take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        transfer = Transfer(f"http://127.0.0.1:{runner.addresses[0][1]}", False, 60, 1, False)
        sending = asyncio.create_task(imageupload.deliver(cluster.client, target, whole(image), transfer))
        await annotate(cluster.client, "sent", {POD_READY: "true"})
        assert await sending == "0"
    finally:
        await runner.cleanup()
    assert proxy.tokens[0].startswith("Bearer ") and proxy.tokens[0].count(".") == 2


async def test_what_the_events_of_a_claim_say_ends_the_wait(cluster: CdiCluster) -> None:
    target = Target("default", "unlucky", is_claim=True)
    await uploadclaims.create(cluster.client, target, Wanted("1Gi"))
    claim = await cluster.client.get(core.PERSISTENT_VOLUME_CLAIMS, "unlucky", "default")
    about = {
        "kind": "PersistentVolumeClaim",
        "name": "unlucky",
        "namespace": "default",
        "uid": meta.uid(claim),
    }
    for reason, message in (("Other", "x"), ("ProvisioningFailed", "no room")):
        event = {"apiVersion": "v1", "kind": "Event", "reason": reason, "message": message}
        metadata = {"name": reason.lower(), "namespace": "default"}
        await cluster.client.create(core.EVENTS, {**event, "metadata": metadata, "involvedObject": about})
    with pytest.raises(click.ClickException, match="Provisioning failed: no room"):
        await uploadclaims.wait_until_ready(cluster.client, target, 60, force_bind=False)


async def test_a_data_source_is_made_and_then_led_elsewhere(cluster: CdiCluster) -> None:
    await uploadclaims.refer(cluster.client, VOLUME, {"k": "v"})
    found = await cluster.client.get(resources.DATA_SOURCES, "disk", "default")
    snapshot: JsonObject = {"spec": {"source": {"pvc": None, "snapshot": {"name": "s", "namespace": "n"}}}}
    await cluster.client.patch(resources.DATA_SOURCES, "disk", snapshot, "default", type="merge")
    await uploadclaims.refer(cluster.client, VOLUME, {"l": "w"})
    found = await cluster.client.get(resources.DATA_SOURCES, "disk", "default")
    assert found["spec"]["source"] == {"pvc": {"name": "disk", "namespace": "default"}}
    assert meta.labels(found) == {"k": "v", "l": "w"}
    assert get_str(found, "metadata", "name") == "disk"
