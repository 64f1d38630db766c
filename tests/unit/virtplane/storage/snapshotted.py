"""A running guest on storage that takes snapshots, for tests of snapshots and restores; the test plays the
storage and virt-api.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from tests.support.controllers import running_controllers
from tests.support.waiting import until

from kubecore import resources
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.launcherpod.inputs import Images
from virtplane.storage.restore.reconciler import RestoreController
from virtplane.storage.snapshot.contents import ContentController
from virtplane.storage.snapshot.reconciler import SnapshotController

_SNAPSHOTS, _RESTORES = kinds.VIRTUAL_MACHINE_SNAPSHOTS, kinds.VIRTUAL_MACHINE_RESTORES
_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
CLAIM = {
    "metadata": {"name": "c", "namespace": "ns"},
    "spec": {"storageClassName": "fast"},
    "status": {"phase": "Bound"},
}
TAKEN = {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": True}


class Guest:
    """A machine with one disk that runs, its agent behind virt-api, and its snapshot."""

    def __init__(self) -> None:
        self.api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
        self.asked: list[tuple[str, Any]] = []
        self.refusal: StatusError | None = None
        self.api.reactions.append(self._agent)
        self.api.put(resources.STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "csi.test"})
        self.api.put(kinds.VOLUME_SNAPSHOT_CLASSES, {"metadata": {"name": "snaps"}, "driver": "csi.test"})
        self.api.put(resources.PERSISTENT_VOLUME_CLAIMS, CLAIM)
        self.api.put(kinds.VIRTUAL_MACHINES, machine())
        conditions = [{"type": "AgentConnected", "status": "True"}]
        running = {"phase": "Running", "conditions": conditions}
        self.api.put(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"domain": {}}, "status": running},
        )

    def _agent(self, request: Request) -> Response | StatusError | None:
        action = request.path.rpartition("/")[2]
        if action not in ("freeze", "unfreeze", "stop"):
            return None
        self.asked.append((action, orjson.loads(request.body or b"{}")))
        if self.refusal is not None and action == "freeze":
            return self.refusal
        return Response(202, {}, b"")

    def take(self, **spec: Any) -> None:
        """Ask for a snapshot of the machine."""
        source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
        self.api.put(
            _SNAPSHOTS,
            {
                "apiVersion": _SNAPSHOTS.api_version,
                "kind": "VirtualMachineSnapshot",
                "metadata": {"name": "snap", "namespace": "ns"},
                "spec": {"source": source, **spec},
            },
        )

    def snapshot(self) -> JsonObject:
        """The snapshot as it is now."""
        return self.api.get(_SNAPSHOTS, "snap", "ns") or {}

    def told(self) -> dict[str, tuple[str, str]]:
        """Status and reason of the snapshot's conditions, in their order."""
        return _conditions(get_object(self.snapshot(), "status"))

    def told_of_restore(self) -> dict[str, tuple[str, str]]:
        """Status and reason of the restore's conditions."""
        return _conditions(self.restored())

    async def take_all(self) -> None:
        """Take a snapshot of all volumes."""
        self.take()
        for volume in await until(lambda: self.api.list(kinds.VOLUME_SNAPSHOTS, "ns")):
            self.api.put(kinds.VOLUME_SNAPSHOTS, {**deep_copy(volume), "status": TAKEN})
        await until(lambda: self.told().get("Ready") == ("True", "Ready"))

    def restore(self, target: str = "vm", **spec: Any) -> None:
        """Ask for a restore, whose uid is ``r``."""
        wanted = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target}
        self.api.put(
            _RESTORES,
            {
                "apiVersion": _RESTORES.api_version,
                "kind": "VirtualMachineRestore",
                "metadata": {"name": "back", "namespace": "ns", "uid": "r"},
                "spec": {"target": wanted, "virtualMachineSnapshotName": "snap", **spec},
            },
        )

    def restored(self) -> JsonObject:
        """The restore's status as it is now."""
        return get_object(self.api.get(_RESTORES, "back", "ns") or {}, "status")

    def is_restored(self) -> bool:
        """Whether the restore is complete."""
        return self.restored().get("complete") is True

    async def bind(self, name: str) -> JsonObject:
        """Have the storage bind a restored claim; returns it as it was made."""
        kind = resources.PERSISTENT_VOLUME_CLAIMS
        made: JsonObject = await until(lambda: self.api.get(kind, name, "ns"))
        self.api.put(kind, {**deep_copy(made), "status": {"phase": "Bound"}})
        return made

    async def store(self, status: JsonObject) -> str:
        """Write a status of the VolumeSnapshot once that is there; returns its name."""
        (volume,) = await until(lambda: self.api.list(kinds.VOLUME_SNAPSHOTS, "ns"))
        self.api.put(kinds.VOLUME_SNAPSHOTS, {**deep_copy(volume), "status": status})
        return meta.name(volume)

    async def taken(self) -> str:
        """Take the snapshot; returns the name of its VolumeSnapshot."""
        self.take()
        name = await self.store(TAKEN)
        await until(lambda: self.told().get("Ready") == ("True", "Ready"))
        return name


def _conditions(status: JsonObject) -> dict[str, tuple[str, str]]:
    found: list[JsonObject] = status.get("conditions", [])
    return {item["type"]: (item["status"], item["reason"]) for item in found}


def machine() -> JsonObject:
    """A machine with one disk on the claim."""
    disks = {"devices": {"disks": [{"name": "root", "disk": {}}]}}
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"runStrategy": "Manual", "template": {"spec": {"domain": disks, "volumes": volumes}}},
        "status": {"volumeSnapshotStatuses": [{"name": "root", "enabled": True}]},
    }


def controllers(guest: Guest) -> AbstractAsyncContextManager[None]:
    """The controllers of snapshots, contents and restores, at work."""
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES, kinds.DATA_VOLUMES})
    return running_controllers(guest.api, Images("launcher:1", "sidecar:1"), served, _add_controllers)


def _add_controllers(cluster: Cluster) -> None:
    cluster.manager.add(SnapshotController(cluster).controller)
    cluster.manager.add(ContentController(cluster).controller)
    cluster.manager.add(RestoreController(cluster).controller)
