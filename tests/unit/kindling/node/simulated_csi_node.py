"""A node with pods that use CSI volumes, and an agent that may be killed between any two steps.

Its driver must have its volumes attached: a controller beside it attaches what pods use, and detaches by
the rules of the real one what the node does not report in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kindling.node.simulated_csi_driver import DRIVER, Connection, Driver

from kindling.controllers.volumes import attachment_rules as rules
from kindling.node.pods import identity
from kindling.node.volumes import csi_attachments, csi_records, manager, mounts
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiServices, CsiVolumes
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.node.volumes.csi_upkeep import Tending, Upkeep
from kindling.node.volumes.manager import VolumeManager
from kindling.scheduler.csi import CsiVolume
from kindling.scheduler.volume_rules import size_of
from kubecore import mountinfo
from kubecore.errors import StatusError
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.resources import NODES

_NO_CLIENT: Any = None


class Api:
    """An API server with a Node, claims and volumes (both by the name of the volume)."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.node: dict[str, Any] = {"metadata": {"name": "node01"}, "status": {}}
        self.claims: dict[str, dict[str, Any]] = {}
        self.size = 1

    def claim(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "ns", "uid": f"claim-{name}", "resourceVersion": "1"}
        status = {"phase": "Bound", "capacity": {"storage": "1"}}
        new = {"metadata": metadata, "spec": {"volumeName": name}, "status": status}
        return self.claims.setdefault(name, new)

    def volume(self, name: str) -> dict[str, Any]:
        return volume_of(name, self.size)

    def grow(self) -> None:
        """What a resizer does: the volumes are larger, their file systems are to follow."""
        self.size += 1
        for name in self.claims:
            self._write_claim(
                name, {"status": {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}}
            )

    async def get(self, resource: Any, name: str, *_: object) -> Any:
        await asyncio.sleep(0)
        if resource.plural == "nodes":
            return self.node
        if resource.plural == "persistentvolumeclaims":
            return self.claim(name)
        if resource.plural == "persistentvolumes":
            return self.volume(name)
        for volume in self._driver.attached:
            if CsiVolume(DRIVER, volume).attachment_name("node01") == name:
                return {
                    "metadata": {},
                    "status": {"attached": True, "attachmentMetadata": {"device": volume}},
                }
        raise StatusError(404, "NotFound", "there is no such object")

    async def patch(self, resource: Any, name: str, body: Any, *_: object, **__: object) -> Any:
        await asyncio.sleep(0)
        if resource.plural == "nodes":
            self.node = apply_merge_patch(self.node, body)
            return self.node
        self._write_claim(name, body)
        return self.claims[name]

    def _write_claim(self, name: str, body: dict[str, Any]) -> None:
        metadata = self.claim(name)["metadata"]
        if (
            body.get("metadata", {}).get("resourceVersion", metadata["resourceVersion"])
            != (metadata["resourceVersion"])
        ):
            raise StatusError(409, "Conflict", "the claim has changed")
        changed = apply_merge_patch(self.claims[name], body)
        version = str(int(metadata["resourceVersion"]) + 1)
        self.claims[name] = {**changed, "metadata": {**metadata, "resourceVersion": version}}


class Node:
    """A node whose agent may be killed and started again; pods by uid, with the volume of each."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.api = Api(self.driver)
        self.pods: dict[str, str] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._agent = 0
        self.start_agent()
        self._controller = asyncio.create_task(self._attach_and_detach())

    def start_agent(self) -> None:
        self._agent += 1
        api: Any = self.api
        connection: Any = Connection(self.driver, self._agent)
        requests, attachments = CsiRequests(api), Attachments(api, "node01")
        growth = Growth(api, requests, "node01", lambda *_: None)
        self._csi = CsiVolumes(CsiServices(connection, requests, attachments, growth, "node01"))
        self._upkeep = Upkeep(Tending(api, self._csi, requests, self._pod_objects, lambda *_: None))
        self._volumes = VolumeManager(_NO_CLIENT, {"csi": self._csi})
        self._reports = asyncio.create_task(attachments.run())
        for uid in sorted(self._volumes.uids() | set(self.pods)):
            self._work(uid)

    def _pod_objects(self) -> list[dict[str, Any]]:
        return [pod_of(uid, volume) for uid, volume in self.pods.items()]

    async def kill_agent(self) -> None:
        await self._cancel(*self._workers)
        await self._upkeep.close()
        await self._csi.close()
        await stop(self._reports)
        self.start_agent()

    async def leave(self) -> None:
        """Stop everything."""
        await self._cancel(*self._workers)
        await self._upkeep.close()
        await stop(self._reports, self._controller)

    def grow(self) -> None:
        """The volumes are larger, and the agent looks after them."""
        self.api.grow()
        self._upkeep.look()

    async def publish(self, uid: str, volume: str, name: str = "") -> None:
        api = self.api
        persistent = api.volume(volume)
        persistent["metadata"] = {"name": name or volume}
        await self._csi.publish(pod_of(uid, volume), "data", api.claim(volume), persistent, read_only=False)

    async def _attach_and_detach(self) -> None:
        """The controller: attaches first and lists then; unlists first, looks, and detaches then."""
        api, attached = self.api, self.driver.attached
        while True:
            await asyncio.sleep(0)
            wanted = set(self.pods.values())
            for volume in sorted(wanted | attached):
                csi, name = CsiVolume(DRIVER, volume), CsiVolume(DRIVER, volume).attachment_name("node01")
                if volume in wanted:
                    attached.add(volume)
                    await asyncio.sleep(0)
                    await self._list(rules.attached_with(api.node, name, csi))
                elif not rules.is_in_use(api.node, name):
                    await self._list(rules.attached_with(api.node, name, None))
                    if not rules.is_in_use(api.node, name):
                        await asyncio.sleep(0)
                        self.driver.detach(volume)

    async def _list(self, listed: list[dict[str, Any]]) -> None:
        if listed != self.api.node["status"].get("volumesAttached", []):
            await self.api.patch(NODES, "node01", {"status": {"volumesAttached": listed}})

    def add(self, uid: str, volume: str = "v") -> None:
        if uid not in self.pods and uid not in self._workers:
            self.pods[uid] = volume
            self._work(uid)

    async def end(self, uid: str) -> None:
        if self.pods.pop(uid, None):
            await self._cancel(uid)
            self._work(uid)

    async def settle(self) -> None:
        """Wait until everybody has done what is to be done."""
        for _ in range(2000):
            if all(worker.done() for worker in self._workers.values()) and not self.driver.calls:
                await asyncio.gather(*self._workers.values())
                await self._upkeep.settle()
                if self._is_settled():
                    return
                self._upkeep.look()
            await asyncio.sleep(0)
        state = (self.pods, self.api.node, self.api.claims, vars(self.driver), self._workers)
        pytest.fail(f"nothing moves any more: {state}")

    def _is_settled(self) -> bool:
        """Whether all others have seen what the agent did."""
        used, driver = set(self.pods.values()), self.driver
        sizes = {size_of(self.api.claim(volume)) for volume in used} | {driver.sizes[v] for v in used}
        names = [CsiVolume(DRIVER, volume).unique_name for volume in sorted(used)]
        in_use = self.api.node["status"].get("volumesInUse", [])
        return driver.attached == used and in_use == names and sizes <= {self.api.size}

    def _work(self, uid: str) -> None:
        self._workers[uid] = asyncio.create_task(self._until_done(uid))

    async def _cancel(self, *uids: str) -> None:
        tasks = [self._workers.pop(uid) for uid in uids]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_done(self, uid: str) -> None:
        """What a pod's worker does with volumes, again after each failure."""
        while True:
            try:
                if uid in self.pods:
                    await self.publish(uid, self.pods[uid])
                else:
                    await self._volumes.clean_up(uid)
                return
            except (ContentProblem, StatusError, OSError):
                await asyncio.sleep(0)

    def check(self) -> None:
        """Everything that a pod uses is there, and nothing else."""
        assert self.driver.wrong == []
        used = {str(csi_records.publish_path(uid, v, block=False)): v for uid, v in self.pods.items()}
        assert self.driver.published == used
        assert set(self.driver.staged) == set(used.values())
        for place in self.driver.mounted:
            assert (Path(place) / "data").exists(), f"the data in {place} was removed"
        assert self._volumes.uids() == set(self.pods)
        places = (identity.ROOT / "plugins/kubernetes.io/csi").glob("*/*/*")
        assert {str(path) for path in places} == set(self.driver.staged.values())


def pod_of(uid: str, volume: str) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
    metadata = {"name": uid, "namespace": "ns", "uid": uid}
    return {"metadata": metadata, "spec": {"containers": [], "volumes": volumes}}


def volume_of(name: str, size: int) -> dict[str, Any]:
    source = {"driver": DRIVER, "volumeHandle": name}
    spec = {"accessModes": ["ReadWriteOnce"], "csi": source, "capacity": {"storage": str(size)}}
    return {"metadata": {"name": name}, "spec": spec}


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def a_node(directory: Path) -> AsyncIterator[Callable[[], Node]]:
    """Makes a node whose paths lie in `directory` and whose mounts are the driver's."""
    nodes: list[Node] = []

    def below(directory: Path) -> list[Path]:
        places = [Path(place) for node in nodes for place in node.driver.mounted]
        return [place for place in places if place.is_relative_to(directory)]

    async def inline(_name: str, work: Callable[[Callable[[], None]], None]) -> None:
        await asyncio.sleep(0)
        work(lambda: None)

    def make() -> Node:
        nodes.append(Node())
        return nodes[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "ROOT", directory)
        patch.setattr(mountinfo, "mount_points_below", below)
        patch.setattr(mounts, "unmount", lambda target: None)
        for module in (manager, csi_records):
            patch.setattr(module, "in_thread", inline)
        patch.setattr(os, "fsync", lambda _: None)  # another test shows that records are synced
        patch.setattr(csi_attachments, "_FIRST_LOOK_SECONDS", 0.0)
        yield make
        for node in nodes:
            await node.leave()
            assert node.driver.wrong == []


async def steps(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
