"""What virt-controller's metrics tell of the objects of an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from tests.support.managers import keep_running, working

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.runtime import EventRecorder, Manager
from kubecore.runtime.metrics import collected
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.metrics import MachineMetrics
from virtplane.compute.controller.phasetimes import PhaseTimes
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_DESCRIBED = {"vm.kubevirt.io/os": "fedora", "vm.kubevirt.io/workload": "server"}
VM, VMI = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES


@asynccontextmanager
async def served(api: MemoryApi) -> AsyncIterator[CollectorRegistry]:
    """The registry of a controller that leads; empty afterwards."""
    registry, client = CollectorRegistry(), api.client()
    async with EventRecorder(client, "test") as recorder:
        manager = Manager(client)
        cluster = Cluster(client, manager, recorder, Images("launcher:2", "sidecar:2"))
        cluster.prepare()
        times = PhaseTimes(cluster)
        keep_running(manager)
        async with working(manager):
            with collected(registry, MachineMetrics(cluster), *times.collectors):
                yield registry
    await client.close()
    assert list(registry.collect()) == []


async def samples(api: MemoryApi, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of a metric."""
    async with served(api) as registry:
        found = [sample for metric in registry.collect() for sample in metric.samples]
    return [(dict(sample.labels), sample.value) for sample in found if sample.name == name]


def api_without_objects() -> MemoryApi:
    """An API server without objects."""
    return MemoryApi(_KINDS, whole=[VM, VMI])


def machine(name: str, status: str, **spec: object) -> JsonObject:
    """A VM in that state."""
    domain: JsonObject = {"devices": {}, "machine": {"type": "q35"}}
    template = {"metadata": {"annotations": _DESCRIBED}, "spec": {"domain": domain}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"template": template, **spec},
        "status": {"printableStatus": status},
    }


def instance(name: str, **more: object) -> JsonObject:
    """A running instance; `more` is added to its status."""
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": _DESCRIBED},
        "spec": {"domain": {"devices": {}}, "evictionStrategy": "LiveMigrate"},
        "status": {
            "phase": "Running",
            "nodeName": "node",
            "launcherContainerImageVersion": "launcher:1",
            "machine": {"type": "pc-q35-7.2"},
            "guestOSInfo": {"kernelRelease": "6.1", "machine": "x86_64", "name": "Fedora", "versionId": "42"},
            **more,
        },
    }


def pin(api: MemoryApi, name: str, vendor: str, spec: JsonObject | None = None) -> JsonObject:
    """Keep an instance type in a revision; returns what the status of a VM tells of it."""
    metadata = {"name": name, "labels": {"instancetype.kubevirt.io/vendor": vendor}}
    data = {"metadata": metadata, "spec": spec or {}}
    api.put(
        resources.CONTROLLER_REVISIONS, {"metadata": {"name": f"r-{name}", "namespace": "ns"}, "data": data}
    )
    return {"controllerRevisionRef": {"name": f"r-{name}"}}
