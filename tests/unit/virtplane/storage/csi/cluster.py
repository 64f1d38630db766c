"""A cluster in memory with kindling's volume controllers, and the parts at work on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.fake_csi_driver import NAME, FakeDriver, serving
from tests.support.waiting import until

from kindling.controllers.environment import Environment
from kindling.controllers.volumes.persistent_volumes import VolumeController
from kindling.controllers.volumes.protection import VolumeProtection
from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.storage.csi.driver import SocketDriver
from virtplane.storage.csi.options import parse
from virtplane.storage.csi.process import Process, Surroundings
from virtplane.storage.volumesnapshot.component import control

KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
CLAIMS, VOLUMES = resources.PERSISTENT_VOLUME_CLAIMS, resources.PERSISTENT_VOLUMES
SNAPSHOTS, CONTENTS = kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CONTENTS
GROUPS, GROUP_CONTENTS = kinds.VOLUME_GROUP_SNAPSHOTS, kinds.VOLUME_GROUP_SNAPSHOT_CONTENTS


def storage_class(**fields: Any) -> JsonObject:
    """The class of the driver's volumes."""
    return {
        "metadata": {"name": "fast", "uid": "class"},
        "provisioner": NAME,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        **fields,
    }


def claim(name: str = "c", size: str = "1Gi", **spec: Any) -> JsonObject:
    """A claim of the class."""
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {"phase": "Pending"},
    }


class TestCluster:
    """The server, and short ways to look at it."""

    __test__ = False

    def __init__(self) -> None:
        self.api = MemoryApi([*KINDS, resources.CSI_STORAGE_CAPACITIES])
        self.api.put(resources.NAMESPACES, {"metadata": {"name": "ns"}, "status": {"phase": "Active"}})
        self.api.put(resources.STORAGE_CLASSES, storage_class())
        snapshot_class = {"metadata": {"name": "snap"}, "driver": NAME, "deletionPolicy": "Delete"}
        self.api.put(kinds.VOLUME_SNAPSHOT_CLASSES, snapshot_class)
        self.api.put(kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, snapshot_class)

    def claim(self, name: str = "c") -> JsonObject:
        """A claim; empty where there is none."""
        return self.api.get(CLAIMS, name, "ns") or {}

    def volume(self) -> JsonObject:
        """The first volume; empty where there is none."""
        return next(iter(self.api.list(VOLUMES)), {})

    async def bound(self, name: str = "c") -> JsonObject:
        """The volume of a claim, once it has it and nothing is being made any more."""

        def check() -> JsonObject | None:
            found = self.claim(name)
            is_begun = names.VOLUME_BEING_CREATED in found["metadata"].get("finalizers", [])
            if get_str(found, "status", "phase") != "Bound" or is_begun:
                return None
            return self.api.get(VOLUMES, found["spec"]["volumeName"])

        return dict(await until(check))

    async def event(self, reason: str, text: str = "") -> JsonObject:
        """The event of that reason and text, once it is there."""

        def check() -> JsonObject | None:
            for found in self.api.list(resources.EVENTS):
                if found["reason"] == reason and text in found["message"]:
                    return found
            return None

        return dict(await until(check))

    def snapshot(self, name: str = "s") -> JsonObject:
        """A snapshot; empty where there is none."""
        return self.api.get(SNAPSHOTS, name, "ns") or {}

    def error(self, name: str = "s") -> JsonObject:
        """The error in a snapshot's status; empty where there is none."""
        return get_object(self.snapshot(name), "status", "error")

    async def ready(self, name: str = "s") -> JsonObject:
        """A snapshot, once volumes can be made of it."""
        await until(lambda: get_object(self.snapshot(name), "status").get("readyToUse"))
        return self.snapshot(name)


@asynccontextmanager
async def running(
    cluster: TestCluster, driver: FakeDriver, folder: Path, *argv: str, snapshots: bool = False
) -> AsyncIterator[None]:
    """The parts with these arguments, a driver behind a socket, and the controllers of the cluster."""
    client = cluster.api.client()
    async with working(client, driver, folder, *argv, snapshots=snapshots, groups=snapshots):
        yield


@asynccontextmanager
async def working(
    client: Client,
    driver: FakeDriver,
    folder: Path,
    *argv: str,
    snapshots: bool = False,
    groups: bool = False,
) -> AsyncIterator[None]:
    """As `running`, on the cluster of `client`."""
    options = parse([argv[0], "--retry-interval-start=10ms", "--timeout=2s", *argv[1:]])
    about = Surroundings(namespace="ns", pod="pod", node="n1", identity="me")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(driver, folder / "csi.sock"))
        socket = SocketDriver(str(folder / "csi.sock"))
        stack.push_async_callback(socket.close)
        await socket.meet(2.0)
        works = await Process(options, about, client).works(stack, socket, client)
        manager = Manager(client)
        environment = Environment(manager, "CA")
        VolumeController(environment)
        VolumeProtection(environment)
        works.append(("kindling", manager.run))
        if snapshots:
            works.append(("snapshots", lambda: control(client, groups=groups)))
        tasks = [asyncio.create_task(work(), name=name) for name, work in works]
        await manager.wait_started()
        driver.calls.clear()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            broken = [end for end in ends if isinstance(end, Exception)]
            if broken:
                raise ExceptionGroup("parts ended", broken)
