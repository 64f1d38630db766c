"""The legacy provisioner: hostPath volumes in a folder of the node, without CSI.

Component ``hostpath-provisioner`` on every node, for HostPathProvisioners with ``pathConfig``.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.storage_class import class_of
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, Result
from kubecore.runtime.component import CannotRun, Context
from kubecore.runtime.informer import Informer
from virtplane.storage.hostpath import health, trees

logger = logging.getLogger(__name__)

PROVISIONER = "kubevirt.io/hostpath-provisioner"
ON_NODE = "kubevirt.io/provisionOnNode"
_IDENTITY = "hostPathProvisionerIdentity"
_SELECTED = "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where this node's volumes are, and how they are named."""

    node: str
    path: Path
    use_naming_prefix: bool = False

    def volume(self, claim: JsonObject) -> tuple[str, Path]:
        """The name and the folder of a claim's volume."""
        name = f"pvc-{meta.uid(claim)}"
        return name, self.path / (f"{meta.name(claim)}-{name}" if self.use_naming_prefix else name)


def folder_of(environment: Mapping[str, str]) -> Folder:
    """The folder that the operator's DaemonSet names. Raises CannotRun."""
    node, path = environment.get("NODE_NAME", ""), environment.get("PV_DIR", "")
    if not node or not path.startswith("/"):
        raise CannotRun(
            "NODE_NAME must name this node and PV_DIR a folder: the operator's DaemonSet sets both"
        )
    return Folder(node, Path(path), environment.get("USE_NAMING_PREFIX", "").lower() == "true")


def is_for(claim: JsonObject, storage_class: JsonObject | None, node: str) -> bool:
    """Whether this node's provisioner makes the claim's volume."""
    if storage_class is None or get_str(storage_class, "provisioner") != PROVISIONER:
        return False
    if get_str(claim, "spec", "volumeName") or meta.is_being_deleted(claim):
        return False
    annotations = meta.annotations(claim)
    if annotations.get(ON_NODE):
        return annotations[ON_NODE] == node
    waits = get_str(storage_class, "volumeBindingMode") == "WaitForFirstConsumer"
    return waits and annotations.get(_SELECTED) == node


def persistent_volume(claim: JsonObject, storage_class: JsonObject, folder: Folder, size: int) -> JsonObject:
    """The volume of a claim; `size` is the file system's."""
    name, path = folder.volume(claim)
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [folder.node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {_IDENTITY: PROVISIONER, ON_NODE: folder.node, _PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            "persistentVolumeReclaimPolicy": get_str(storage_class, "reclaimPolicy") or "Delete",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": str(health.rounded_down(size))},
            "storageClassName": meta.name(storage_class),
            "hostPath": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace(claim),
                "name": meta.name(claim),
                "uid": meta.uid(claim),
            },
        },
    }


class LegacyProvisioner:
    """Makes and removes volumes of this node."""

    name = "hostpath-provisioner"

    async def run(self, context: Context) -> None:
        """Run until cancelled. Raises CannotRun."""
        folder = folder_of(os.environ)
        folder.path.mkdir(parents=True, exist_ok=True)
        client = context.client(self.name)
        manager = Manager(client)
        claims = manager.informer(resources.PERSISTENT_VOLUME_CLAIMS)
        volumes = manager.informer(resources.PERSISTENT_VOLUMES)
        classes = manager.informer(resources.STORAGE_CLASSES)
        async with EventRecorder(client, PROVISIONER) as events:
            provisioning = Provisioning(client, folder, claims, volumes, classes, events)
            for controller, informer in (
                (Controller("hostpath-claims", provisioning.provision), claims),
                (Controller("hostpath-volumes", provisioning.reclaim), volumes),
            ):
                controller.watch(informer)
                controller.depend(classes)
                manager.add(controller)
            await manager.run()


class Provisioning:
    """What the two controllers do."""

    def __init__(
        self,
        client: Client,
        folder: Folder,
        claims: Informer,
        volumes: Informer,
        classes: Informer,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._folder = folder
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._events = events

    async def provision(self, key: Key) -> Result:
        """Make the volume of a claim. Raises OSError, StatusError."""
        claim = self._claims.get(*key)
        if claim is None:
            return DONE
        storage_class = self._classes.get("", class_of(claim))
        if storage_class is None or not is_for(claim, storage_class, self._folder.node):
            return DONE
        space = os.statvfs(self._folder.path)
        size = space.f_blocks * space.f_frsize
        requests = get_object(claim, "spec", "resources", "requests")
        wanted = Quantity.parse(requests.get("storage", 0)).value
        if wanted > size:
            message = f"claim asks for {wanted} bytes, but {self._folder.path} has {size}"
            self._events.event(claim, "Warning", "ProvisioningFailed", message)
            return DONE
        _, path = self._folder.volume(claim)
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        try:
            await self._client.create(
                resources.PERSISTENT_VOLUMES, persistent_volume(claim, storage_class, self._folder, size)
            )
        except errors.StatusError as error:
            if not errors.is_already_exists(error):
                raise
        return DONE

    async def reclaim(self, key: Key) -> Result:
        """Remove a released volume of this node. Raises OSError, StatusError."""
        volume = self._volumes.get(*key)
        if volume is None or get_str(volume, "status", "phase") != "Released":
            return DONE
        annotations = meta.annotations(volume)
        if annotations.get(_IDENTITY) != PROVISIONER or annotations.get(ON_NODE) != self._folder.node:
            return DONE
        if get_str(volume, "spec", "persistentVolumeReclaimPolicy") != "Delete":
            return DONE
        path = Path(get_str(volume, "spec", "hostPath", "path"))
        if path.parent != self._folder.path or not path.name.endswith(meta.name(volume)):
            logger.error("volume %s is not removed: %s is no folder of this provisioner's", key[1], path)
            return DONE
        # In a thread: there may be millions of files, and other claims wait for nothing.
        await asyncio.to_thread(trees.remove, path)
        try:
            await self._client.delete(resources.PERSISTENT_VOLUMES, meta.name(volume))
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
        return DONE
