"""A node's agent with a real CSI driver: loop devices, XFS, gRPC over sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.csi_driver import NAME, LoopDriver
from tests.support.waiting import until

from kindling.node.pods import identity
from kindling.node.volumes import csi_attachments, mounts
from kindling.node.volumes.content import Token
from kindling.node.volumes.csi_agent import CsiAgent, CsiHost
from kindling.node.volumes.manager import VolumeManager
from kindling.scheduler.csi import CsiVolume
from kubecore import mountinfo
from kubecore.json import JsonObject
from kubecore.resources import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTACHMENTS,
)
from kubecore.testing import MemoryApi

NODE = "n1"
MEBIBYTE = 1024 * 1024


class Backend:
    """What the volume manager reads from the API."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api

    async def claim(self, namespace: str, name: str) -> tuple[JsonObject, JsonObject]:
        claim = self._api.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        assert claim is not None
        volume = self._api.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
        assert volume is not None
        return claim, volume


class Host:
    """An agent with one driver, and pods that a test starts and ends."""

    def __init__(self, directory: Path) -> None:
        self.api = MemoryApi()
        self.api.put(NODES, {"metadata": {"name": NODE, "labels": {"zone": "a"}}, "status": {}})
        self.driver = LoopDriver(directory)
        self.registry = identity.ROOT / "plugins_registry"
        self.pods: list[JsonObject] = []
        self.events: list[tuple[str, str, str]] = []
        self._running: asyncio.Task[None] | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Serve the driver and start an agent; returns when the driver is registered."""
        await self.driver.serve(stack, self.registry)
        await self.start_agent()

    async def start_agent(self) -> None:
        backend: Any = Backend(self.api)
        host = CsiHost(self.api.client(), NODE, lambda: self.pods, self._record, _issue)
        self.csi = CsiAgent(host)
        self.volumes = VolumeManager(backend, {"csi": self.csi.volumes})
        self._running = asyncio.create_task(self.csi.run())
        await until(lambda: self.csi.registry.get(NAME) is not None)

    async def stop_agent(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.csi.volumes.close()

    def _record(self, obj: JsonObject, kind: str, reason: str, message: str) -> None:
        self.events.append((obj["kind"], reason, message))

    def rules(self, **spec: Any) -> None:
        self.api.put(CSI_DRIVERS, {"metadata": {"name": NAME}, "spec": spec})

    def claim(self, name: str, megabytes: int = 320, **spec: Any) -> None:
        size = {"storage": f"{megabytes}Mi"}
        metadata = {"name": name, "namespace": "ns"}
        status = {"phase": "Bound", "capacity": size}
        claim = {"metadata": metadata, "spec": {"volumeName": f"pv-{name}"}, "status": status}
        self.api.put(PERSISTENT_VOLUME_CLAIMS, claim)
        source = {"driver": NAME, "volumeHandle": name, "fsType": "xfs", **spec.pop("csi", {})}
        volume = {"accessModes": ["ReadWriteOnce"], "capacity": size, "csi": source, **spec}
        self.api.put(PERSISTENT_VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": volume})

    def attach(self, name: str, megabytes: int = 320) -> None:
        """What the attach/detach controller and the attacher do."""
        context = self.driver.attach(name, megabytes * MEBIBYTE)
        volume = CsiVolume(NAME, name)
        metadata = {"name": volume.attachment_name(NODE)}
        status = {"attached": True, "attachmentMetadata": context}
        self.api.put(VOLUME_ATTACHMENTS, {"metadata": metadata, "status": status})
        node = self.node()
        listed = [*node["status"].get("volumesAttached", []), {"name": volume.unique_name, "devicePath": ""}]
        self.api.put(NODES, {**node, "status": {**node["status"], "volumesAttached": listed}})

    def node(self) -> JsonObject:
        found = self.api.get(NODES, NODE)
        assert found is not None
        return found

    def resize(self, name: str, megabytes: int) -> None:
        """What the external resizer does."""
        self.driver.grow(name, megabytes * MEBIBYTE)
        size = {"storage": f"{megabytes}Mi"}
        volume = self.api.get(PERSISTENT_VOLUMES, f"pv-{name}")
        assert volume is not None
        self.api.put(PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "capacity": size}})
        claim = self.get_claim(name)
        status = {
            **claim["status"],
            "allocatedResources": size,
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        }
        self.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status})

    def get_claim(self, name: str) -> JsonObject:
        claim = self.api.get(PERSISTENT_VOLUME_CLAIMS, name, "ns")
        assert claim is not None
        return claim

    def pod(self, uid: str, *volumes: JsonObject, **spec: Any) -> JsonObject:
        metadata = {"name": f"pod-{uid}", "namespace": "ns", "uid": uid}
        spec = {"containers": [], "serviceAccountName": "acc", "volumes": list(volumes), **spec}
        pod = {"metadata": metadata, "spec": spec}
        self.pods.append(pod)
        return pod

    async def end(self, uid: str) -> None:
        self.pods = [pod for pod in self.pods if pod["metadata"]["uid"] != uid]
        await self.volumes.clean_up(uid)

    async def look(self) -> None:
        self.csi.upkeep.look()
        await self.csi.upkeep.settle()


async def _issue(_pod: JsonObject, audience: str, seconds: int) -> Token:
    return Token(f"token for {audience} {seconds}", 1_800_000_000.0, 0.0)


def using(claim: str, name: str = "data") -> JsonObject:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    monkeypatch.setattr(csi_attachments, "_FIRST_LOOK_SECONDS", 0.02)
    (tmp_path / "d").mkdir()
    made = Host(tmp_path / "d")
    async with AsyncExitStack() as stack:
        await made.start(stack)
        try:
            yield made
        finally:
            await made.stop_agent()
            for point in mountinfo.mount_points_below(tmp_path):
                mounts.unmount(point)
            made.driver.detach_all()


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
