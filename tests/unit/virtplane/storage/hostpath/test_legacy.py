"""The legacy provisioner: claims of its class on its node, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.runtime.component import CannotRun, Context
from kubecore.testing import MemoryApi
from virtplane.storage.hostpath import trees
from virtplane.storage.hostpath.legacy import LegacyProvisioner, folder_of, is_for

CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "legacy"},
    "provisioner": "kubevirt.io/hostpath-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claim(size: str = "1Mi", **annotations: str) -> JsonObject:
    """A claim of the legacy class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "ns", "annotations": annotations},
        "spec": {"storageClassName": "legacy", "resources": {"requests": {"storage": size}}},
    }


@asynccontextmanager
async def running(
    path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str = "false"
) -> AsyncIterator[MemoryApi]:
    """A provisioner on node1."""
    for name, value in (("NODE_NAME", "node1"), ("PV_DIR", str(path)), ("USE_NAMING_PREFIX", prefix)):
        monkeypatch.setenv(name, value)
    server = MemoryApi()
    server.put(resources.STORAGE_CLASSES, CLASS)
    context = Context(client_factory=lambda _: server.client())
    task = asyncio.create_task(LegacyProvisioner().run(context))
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await context.close()


@pytest.mark.feature("STO-63", "STO-68")
async def test_a_claim_of_this_node_gets_a_folder_and_loses_it_when_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, prefix="true") as server:
        made = server.put(
            resources.PERSISTENT_VOLUME_CLAIMS, claim(**{"volume.kubernetes.io/selected-node": "node1"})
        )
        (volume,) = await until(lambda: server.list(resources.PERSISTENT_VOLUMES))
        name = f"pvc-{made['metadata']['uid']}"
        path = tmp_path / f"data-{name}"
        assert volume["metadata"]["name"] == name
        assert volume["spec"]["hostPath"] == {"path": str(path)}
        assert volume["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
        assert volume["metadata"]["annotations"]["kubevirt.io/provisionOnNode"] == "node1"
        assert path.stat().st_mode & 0o777 == 0o777
        (path / "file").write_text("x")
        server.put(resources.PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Released"}})
        await until(lambda: not server.list(resources.PERSISTENT_VOLUMES))
        assert not path.exists()


async def test_a_folder_elsewhere_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside" / "pvc-1"
    outside.mkdir(parents=True)
    (tmp_path / "pool").mkdir()
    async with running(tmp_path / "pool", monkeypatch) as server:
        annotations = {
            "hostPathProvisionerIdentity": "kubevirt.io/hostpath-provisioner",
            "kubevirt.io/provisionOnNode": "node1",
        }

        def released(name: str, path: Path) -> None:
            spec = {"hostPath": {"path": str(path)}, "persistentVolumeReclaimPolicy": "Delete"}
            metadata = {"name": name, "annotations": annotations}
            status = {"phase": "Released"}
            server.put(resources.PERSISTENT_VOLUMES, {"metadata": metadata, "spec": spec, "status": status})

        released("pvc-1", outside)
        released("pvc-2", tmp_path / "pool" / "pvc-2")
        await until(lambda: server.get(resources.PERSISTENT_VOLUMES, "pvc-2") is None)
        assert outside.is_dir()


async def test_a_claim_that_is_larger_than_the_disk_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as server:
        server.put(
            resources.PERSISTENT_VOLUME_CLAIMS, claim("1Ei", **{"kubevirt.io/provisionOnNode": "node1"})
        )
        (event,) = await until(lambda: server.list(resources.EVENTS))
        assert event["reason"] == "ProvisioningFailed"
        assert server.list(resources.PERSISTENT_VOLUMES) == []
        assert list(tmp_path.iterdir()) == []


async def test_a_volume_with_millions_of_files_keeps_no_other_claim_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(path: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        path.rmdir()

    monkeypatch.setattr(trees, "remove", slowly)
    chosen = {"kubevirt.io/provisionOnNode": "node1"}
    async with running(tmp_path, monkeypatch) as server:
        server.put(resources.PERSISTENT_VOLUME_CLAIMS, claim(**chosen))
        (volume,) = await until(lambda: server.list(resources.PERSISTENT_VOLUMES))
        server.put(resources.PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Released"}})
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            other = claim(**chosen, **{"volume.beta.kubernetes.io/storage-class": "legacy"})
            other["metadata"]["name"] = "other"
            other["spec"]["storageClassName"] = "cheap"
            server.put(resources.PERSISTENT_VOLUME_CLAIMS, other)
            await until(lambda: len(server.list(resources.PERSISTENT_VOLUMES)) == 2)
        finally:
            go_on.set()
        await until(lambda: len(server.list(resources.PERSISTENT_VOLUMES)) == 1)


@pytest.mark.parametrize(
    ("annotations", "mode", "expected"),
    [
        ({"kubevirt.io/provisionOnNode": "node1"}, "Immediate", True),
        ({"kubevirt.io/provisionOnNode": "node2"}, "WaitForFirstConsumer", False),
        ({"volume.kubernetes.io/selected-node": "node1"}, "WaitForFirstConsumer", True),
        ({"volume.kubernetes.io/selected-node": "node1"}, "Immediate", False),
        ({}, "WaitForFirstConsumer", False),
    ],
)
def test_a_claim_belongs_to_the_node_that_it_names(
    annotations: dict[str, str], mode: str, expected: bool
) -> None:
    chosen: dict[str, Any] = {**CLASS, "volumeBindingMode": mode}
    assert is_for(claim(**annotations), chosen, "node1") is expected
    assert not is_for(claim(**annotations), {**chosen, "provisioner": "other"}, "node1")


def test_a_provisioner_without_a_folder_says_so() -> None:
    with pytest.raises(CannotRun, match="PV_DIR"):
        folder_of({"NODE_NAME": "node1"})
