"""CSIStorageCapacity objects: how much room a driver has, for the scheduler.

There is one object for each class of the driver and each place where its volumes can be (one for each class,
where volumes are the same from everywhere). Objects of this instance carry its name; others are left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.generated_names import fnv32a
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.patch.guarded import guarded_patch
from kubecore.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kubecore.runtime import DONE, Controller, Key, Result
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import CSINode, LabelledNode, PersistentVolume, StorageClass
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import Environment
from virtplane.storage.csi.topology import Term

logger = logging.getLogger(__name__)

CENTRAL = "external-provisioner"
_MOST_NAME = 63
_ALL: Key = ("", "all")

Segments = Callable[[], Awaitable[list[Term | None]]]


def manager_name(node_name: str) -> str:
    """The label of the objects of one instance; that of a node's own is bounded as labels are."""
    name = f"{CENTRAL}-{node_name}" if node_name else CENTRAL
    if len(name) <= _MOST_NAME:
        return name
    digest = fnv32a(node_name)
    return f"{name[: _MOST_NAME - 9].rstrip('-.')}-{digest:08x}"


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """The flags of this part. `owner` is the owner reference of the objects, if they have one."""

    namespace: str
    owner: JsonObject | None = None
    node_name: str = ""
    node_topology: Mapping[str, str] | None = None
    """The one place that is looked at, where each node has its own instance."""
    poll_seconds: float = 60.0
    immediate: bool = False


def segments(driver: str, nodes: Mapping[str, LabelledNode], csi_nodes: Iterable[CSINode]) -> list[Term]:
    """The places of the nodes that have the driver."""
    found: set[Term] = set()
    for each in csi_nodes:
        there, node = each.driver(driver), nodes.get(each.metadata.name)
        if there is None or node is None or not there.topology_keys:
            continue
        labels = node.metadata.labels
        if all(key in labels for key in there.topology_keys):
            found.add(tuple(sorted((key, labels[key]) for key in there.topology_keys)))
    return sorted(found)


class CapacityPublisher:
    """Reconciles all objects at once: there is one key."""

    def __init__(self, env: Environment, options: CapacityOptions) -> None:
        self._env = env
        self._options = options
        self._has_topology = "VOLUME_ACCESSIBILITY_CONSTRAINTS" in env.identity.plugin
        self._labels = {
            names.CAPACITY_DRIVER: env.identity.name,
            names.CAPACITY_MANAGED_BY: manager_name(options.node_name),
        }
        manager = env.manager
        self._classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        self._capacities = manager.informer(
            CSI_STORAGE_CAPACITIES, namespace=options.namespace, label_selector=selector
        )
        self._controller = Controller("csi-capacity", self.reconcile, max_delay=60.0)
        every = [_ALL]
        self._controller.watch(self._classes, lambda _: every)
        self._controller.watch(self._capacities, lambda _: every, lambda event, _, __: event == "DELETED")
        # A volume that comes or goes changes how much room there is.
        volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._controller.watch(
            volumes, lambda _: every, lambda event, _, new: event != "MODIFIED" and self._is_ours(new)
        )
        if self._has_topology and options.node_topology is None:
            self._nodes = manager.informer(NODES, struct=LabelledNode)
            self._csi_nodes = manager.informer(CSI_NODES, struct=CSINode)
            self._controller.depend(self._nodes)
            self._controller.watch(self._csi_nodes, lambda _: every)
        manager.add(self._controller)
        manager.add_runnable("csi-capacity-poll", self._poll)

    def _is_ours(self, volume: PersistentVolume) -> bool:
        return volume.spec.csi is not None and volume.spec.csi.driver == self._env.identity.name

    async def _poll(self) -> None:
        while True:
            self._controller.enqueue(_ALL)
            await asyncio.sleep(self._options.poll_seconds)

    async def reconcile(self, _: Key) -> Result:
        """Bring all objects up to date. Raises StatusError, ConnectionFailed, CallError."""
        wanted = {
            _object_name(self._labels[names.CAPACITY_MANAGED_BY], found.metadata.name, place): (found, place)
            for found in self._classes.list()
            if self._is_wanted(found)
            for place in self._places()
        }
        for name, (found, place) in wanted.items():
            try:
                await self._publish(name, found, place)
            except CallError as error:
                logger.warning(
                    "the CSI driver does not say how much room class %s has at %s: %s",
                    found.metadata.name,
                    dict(place or ()),
                    error,
                )
        for obsolete in self._capacities.list():
            if meta.name(obsolete) not in wanted:
                await self._remove(obsolete)
        return DONE

    def _is_wanted(self, found: StorageClass) -> bool:
        if found.provisioner != self._env.identity.name:
            return False
        return found.waits_for_consumer or self._options.immediate

    def _places(self) -> list[Term | None]:
        if not self._has_topology:
            return [None]
        if self._options.node_topology is not None:
            return [tuple(sorted(self._options.node_topology.items()))]
        nodes = {each.metadata.name: each for each in self._nodes.list()}
        return [*segments(self._env.identity.name, nodes, self._csi_nodes.list())]

    async def _publish(self, name: str, found: StorageClass, place: Term | None) -> None:
        values: dict[str, Any] = {"parameters": dict(found.parameters)}
        if place is not None:
            values["accessible_topology"] = {"segments": dict(place)}
        answer = await self._env.controller("GetCapacity", values)
        room: JsonObject = {"capacity": Quantity.of(answer.available_capacity, BINARY_SI).canonical()}
        if answer.HasField("maximum_volume_size"):
            largest = Quantity.of(answer.maximum_volume_size.value, BINARY_SI)
            room["maximumVolumeSize"] = largest.canonical()
        present = self._capacities.get(self._options.namespace, name)
        if present is None:
            await self._create(name, found, place, room)
            return
        owners = get_list(present, "metadata", "ownerReferences")
        after = {**present, **room, "metadata": {**present["metadata"]}}
        if "maximumVolumeSize" not in room:
            after.pop("maximumVolumeSize", None)
        owner = self._options.owner
        if owner is not None and all(each.get("uid") != owner["uid"] for each in owners):
            after["metadata"]["ownerReferences"] = [*owners, owner]
        operations = [
            *guarded_patch(present, after, ("metadata",)),
            *(
                {"op": "add" if field in after else "remove", "path": f"/{field}", "value": after.get(field)}
                for field in ("capacity", "maximumVolumeSize")
                if after.get(field) != present.get(field)
            ),
        ]
        if operations:
            await self._env.client.patch(
                CSI_STORAGE_CAPACITIES, name, operations, self._options.namespace, type="json"
            )

    async def _create(self, name: str, found: StorageClass, place: Term | None, room: JsonObject) -> None:
        metadata: JsonObject = {"name": name, "namespace": self._options.namespace, "labels": self._labels}
        if self._options.owner is not None:
            metadata["ownerReferences"] = [self._options.owner]
        document: JsonObject = {
            "apiVersion": CSI_STORAGE_CAPACITIES.api_version,
            "kind": CSI_STORAGE_CAPACITIES.kind,
            "metadata": metadata,
            "storageClassName": found.metadata.name,
            # An empty selector: every node; none at all: no node.
            "nodeTopology": {"matchLabels": dict(place)} if place else {},
            **room,
        }
        await self._env.client.create(CSI_STORAGE_CAPACITIES, document)

    async def _remove(self, obsolete: JsonObject) -> None:
        try:
            await self._env.client.delete(
                CSI_STORAGE_CAPACITIES, meta.name(obsolete), self._options.namespace, uid=meta.uid(obsolete)
            )
        except StatusError as error:
            if not is_not_found(error) and error.code != 409:
                raise


def _object_name(manager: str, storage_class: str, place: Term | None) -> str:
    """The same for the same class and place: an object is never made twice."""
    text = "\n".join([manager, storage_class, *(f"{key}={value}" for key, value in place or ())])
    return f"csisc-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


async def owner_at(env: Environment, namespace: str, pod: str, level: int) -> JsonObject | None:
    """The owner reference for objects of the pod's owner, `level` steps up: 0 for the pod itself, 1 for its
    DaemonSet or ReplicaSet; None for -1. Raises StatusError; ValueError where there is no such owner.
    """
    if level < 0:
        return None
    found: JsonObject = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": ""}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    for step in range(level + 1):
        document = (await env.client.request("GET", path)).json()
        found["uid"] = get_str(get_object(document, "metadata"), "uid")
        if step == level:
            return {**found, "controller": True}
        owner = meta.controller_of(document)
        if owner is None:
            raise ValueError(f"{found['kind']} {namespace}/{found['name']} has no owner: use a lower level")
        found = {key: str(owner[key]) for key in ("apiVersion", "kind", "name", "uid")}
        path = f"/apis/{found['apiVersion']}/namespaces/{namespace}/{found['kind'].lower()}s/{found['name']}"
    return None
