"""The controllers of data volumes on an API server in memory; tests play the provisioner and the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.cdi_claims import STORAGE
from tests.support.cdi_controllers import cdi_controllers
from tests.support.cdi_rights import for_controllers
from tests.support.waiting import until

from kubecore import resources as core
from kubecore.json import JsonObject, get_str
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds

NAMESPACE = "ns"
GIB = {"requests": {"storage": "1Gi"}}
_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]


class MemoryCluster:
    """What tests do, and what they look at. Names are of objects in the namespace ``ns``."""

    def __init__(self) -> None:
        self.api = MemoryApi(_KINDS)
        self.client = self.api.client()

    def settings(self, *gates: str, **status: Any) -> None:
        """CDIConfig with these feature gates."""
        spec = {"featureGates": list(gates)}
        overhead = {"filesystemOverhead": {"global": "0.06"}}
        self.api.put(
            kinds.CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec, "status": overhead | status}
        )

    def storage_class(self, name: str, *, driver: bool, **members: Any) -> None:
        """A storage class, with or without CSI driver."""
        provisioner = f"{name}.example"
        self.api.put(
            core.STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, **members}
        )
        if driver:
            self.api.put(core.CSI_DRIVERS, {"metadata": {"name": provisioner}, "spec": {}})

    async def data_volume(self, name: str = "dv", **members: Any) -> JsonObject:
        """Create a DataVolume; `annotations`, `spec` and members of its spec."""
        metadata: JsonObject = {"name": name, "annotations": members.pop("annotations", {})}
        metadata["labels"] = members.pop("labels", {})
        storage_class = members.pop("storage_class", "csi")
        storage = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": GIB}
        storage["storageClassName"] = storage_class
        spec = {"source": {"http": {"url": "http://files.example/x"}}, "storage": storage, **members}
        document: JsonObject = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume"}
        document |= {"metadata": metadata, "spec": {key: value for key, value in spec.items() if value}}
        return await self.client.create(kinds.DATA_VOLUMES, document, NAMESPACE)

    async def until(
        self, kind: ResourceType, name: str, holds: Callable[[JsonObject], bool] = lambda _: True
    ) -> JsonObject:
        """The object once it is there and `holds`."""

        def look() -> JsonObject | None:
            found = self.api.get(kind, name, NAMESPACE)
            return found if found is not None and holds(found) else None

        found: JsonObject = await until(look)
        return found

    async def gone(self, kind: ResourceType, name: str) -> None:
        """Return once there is no such object."""
        await until(lambda: self.api.get(kind, name, NAMESPACE) is None)

    async def claim(self, name: str = "dv", **annotations: str | None) -> JsonObject:
        """The claim once it has these annotations of CDI's storage (``pod_phase`` for ``pod.phase``)."""
        wanted = {STORAGE + key.replace("_", "."): value for key, value in annotations.items()}

        def holds(found: JsonObject) -> bool:
            given = found["metadata"].get("annotations", {})
            return all(given.get(key) == value for key, value in wanted.items())

        return await self.until(core.PERSISTENT_VOLUME_CLAIMS, name, holds)

    async def phase(self, phase: str, name: str = "dv") -> JsonObject:
        """The DataVolume once it is in a phase."""
        return await self.until(
            kinds.DATA_VOLUMES, name, lambda found: get_str(found, "status", "phase") == phase
        )

    async def bind(self, name: str, volume: str = "") -> None:
        """Play provisioner and volume controller: the claim gets a volume of its own."""
        found = self.api.get(core.PERSISTENT_VOLUME_CLAIMS, name, NAMESPACE)
        assert found is not None
        volume = volume or f"pv-{name}"
        reference = {"name": name, "namespace": NAMESPACE, "uid": found["metadata"]["uid"]}
        if self.api.get(core.PERSISTENT_VOLUMES, volume) is None:
            spec = {"claimRef": reference, "storageClassName": found["spec"]["storageClassName"]}
            self.api.put(core.PERSISTENT_VOLUMES, {"metadata": {"name": volume}, "spec": spec})
        self.api.put(
            core.PERSISTENT_VOLUME_CLAIMS,
            {**found, "spec": {**found["spec"], "volumeName": volume}, "status": {"phase": "Bound"}},
        )

    async def run_pod(self, name: str, **status: Any) -> JsonObject:
        """Play the kubelet: the pod, once it is there, gets a status."""
        found = await self.until(core.PODS, name)
        return self.api.put(core.PODS, {**found, **status})

    async def event(self, reason: str, name: str = "dv", message: str | None = None) -> JsonObject:
        """The event about an object, with this message if one is named, once it is recorded."""

        def look() -> JsonObject | None:
            for each in self.api.list(core.EVENTS, NAMESPACE):
                is_it = each["reason"] == reason and each["involvedObject"]["name"] == name
                if is_it and message in (None, each["message"]):
                    return each
            return None

        found: JsonObject = await until(look)
        return found


@asynccontextmanager
async def memory_cluster(*gates: str) -> AsyncIterator[MemoryCluster]:
    """A cluster with a class ``csi`` that has a driver and a class ``old`` that has none."""
    cluster = MemoryCluster()
    cluster.settings(*(gates or ("HonorWaitForFirstConsumer",)))
    cluster.storage_class("csi", driver=True)
    cluster.storage_class("old", driver=False)
    try:
        with for_controllers(cluster.api) as restricted:
            async with restricted.client() as client, cdi_controllers(client, with_settings=False):
                yield cluster
    finally:
        await cluster.client.close()
