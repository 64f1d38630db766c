"""A running operator and its cluster in memory; tests report DaemonSets' pods and claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as api
from virtplane.operators.hostpath import cluster_objects
from virtplane.operators.hostpath.product import Settings
from virtplane.operators.hostpath.running import run_controller

NAMESPACE = "kubevirt"
SETTINGS = Settings(NAMESPACE, "registry.test/virtplane:1", "distributed", "v0.20.0")
OPTIONAL = (
    cluster_objects.CONSTRAINTS,
    cluster_objects.SERVICE_MONITORS,
    cluster_objects.PROMETHEUS_RULES,
)
POOLS = {"storagePools": [{"name": "a", "path": "/var/a", "snapshotProvider": "reflink"}]}
TEMPLATE = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "fast"}
BACKED = {"storagePools": [{"name": "hpp-csi-pvc-block", "path": "/var/b", "pvcTemplate": TEMPLATE}]}


class Operator:
    """A running operator, and its cluster."""

    def __init__(self, server: MemoryApi, ready: Gauge) -> None:
        self.server = server
        self.ready = ready

    def put(self, spec: JsonObject, name: str = "hostpath-provisioner", **status: Any) -> JsonObject:
        """Create or change the object."""
        old = self.server.get(api.HOSTPATH_PROVISIONERS, name) or {"metadata": {"name": name}}
        document = {
            "apiVersion": api.HOSTPATH_PROVISIONERS.api_version,
            "kind": "HostPathProvisioner",
            "metadata": old["metadata"],
            "spec": spec,
            "status": {**get_object(old, "status"), **status},
        }
        return self.server.put(api.HOSTPATH_PROVISIONERS, document)

    def get(self, resource: ResourceType, name: str, namespace: str = NAMESPACE) -> JsonObject:
        """An object that must exist."""
        found = self.server.get(resource, name, namespace if resource.namespaced else "")
        assert found is not None, f"no {resource.kind} {name}"
        return found

    async def appears(self, resource: ResourceType, name: str) -> JsonObject:
        """An object, once it exists."""
        where = NAMESPACE if resource.namespaced else ""
        found: JsonObject = await until(lambda: self.server.get(resource, name, where))
        return found

    async def deploy(self, names: Iterable[str] = ("hostpath-provisioner-csi",), node: str = "node1") -> None:
        """Report the DaemonSets' pods on one node as ready."""
        for name in names:
            await self.appears(resources.DAEMON_SETS, name)
            self.report(name, 1)
            owner = {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": name,
                "uid": "d",
                "controller": True,
            }
            metadata = {
                "name": f"{name}-1",
                "namespace": NAMESPACE,
                "labels": {"k8s-app": "hostpath-provisioner"},
                "ownerReferences": [owner],
            }
            self.server.put(resources.PODS, {"metadata": metadata, "spec": {"nodeName": node}})

    def report(self, name: str, ready: int) -> None:
        """Report how many of a DaemonSet's one pod are ready."""
        live = dict(self.get(resources.DAEMON_SETS, name))
        live["status"] = {
            "observedGeneration": meta.generation(live),
            "desiredNumberScheduled": 1,
            "numberReady": ready,
        }
        self.server.put(resources.DAEMON_SETS, live)

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The conditions: status, reason, message."""
        live = self.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        return {
            get_str(each, "type"): (
                get_str(each, "status"),
                get_str(each, "reason"),
                get_str(each, "message"),
            )
            for each in get_list(live, "status", "conditions")
        }

    async def is_condition(self, type_: str, *wanted: str) -> None:
        """Wait for a condition's status, reason and message."""
        await until(lambda: self.conditions().get(type_, ())[: len(wanted)] == wanted)

    def events(self) -> set[tuple[str, str]]:
        """Reasons and messages of all events."""
        found = self.server.list(resources.EVENTS)
        return {(get_str(each, "reason"), get_str(each, "message")) for each in found}


@asynccontextmanager
async def running(
    settings: Settings = SETTINGS, kinds: Iterable[ResourceType] = ()
) -> AsyncIterator[Operator]:
    """An operator on a cluster with one node that knows the optional `kinds`."""
    server = MemoryApi([api.HOSTPATH_PROVISIONERS, *kinds], whole=[api.HOSTPATH_PROVISIONERS])
    server.put(resources.NODES, {"metadata": {"name": "node1"}})
    ready = Gauge("kubevirt_hpp_cr_ready", "", registry=CollectorRegistry())
    ready.set(-1)
    async with server.client() as client:
        task = asyncio.create_task(run_controller(client, settings, ready))
        try:
            yield Operator(server, ready)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
