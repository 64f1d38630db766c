"""VirtController: one replica works at a time, with the kinds that are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from tests.support.controllers import until

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.runtime import Context
from kubecore.runtime.queuemetrics import QueueMetrics
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.controller import component
from virtplane.compute.controller.component import VirtController

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])


@asynccontextmanager
async def replica(
    api: MemoryApi, identity: str, queues: QueueMetrics | None = None
) -> AsyncIterator[Context]:
    """A running virt-controller."""
    context = Context(
        client_factory=lambda _: api.client(user_agent=identity),
        namespace="kubevirt",
        identity=identity,
        settings={"image": "product:1", "launcher_image": "launcher:1"},
        queues=queues,
        registry=CollectorRegistry(),
    )
    task = asyncio.create_task(VirtController().run(context))
    try:
        yield context
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await context.close()


_INSTALLATION: JsonObject = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "spec": {}}


def _all_tell(wanted: dict[str, str], *replicas: Context) -> bool:
    return all(each.health.details() == wanted for each in replicas)


def _leader(api: MemoryApi) -> str:
    return get_str(api.get(resources.LEASES, "virt-controller", "kubevirt"), "spec", "holderIdentity")


def _vmi(name: str) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}},
        "status": {"phase": "Pending"},
    }


def _phase(api: MemoryApi, name: str) -> str:
    return get_str(api.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, "ns"), "status", "phase")


async def test_the_leader_makes_launchers_of_the_image_that_it_was_given(api: MemoryApi) -> None:
    async with replica(api, "a"):
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("vmi"))
        await until(lambda: _phase(api, "vmi") == "Scheduling")
    (pod,) = api.list(resources.PODS, "ns")
    compute = next(item for item in pod["spec"]["containers"] if item["name"] == "compute")
    assert compute["image"] == "launcher:1"


async def test_a_second_replica_takes_over_without_a_second_launcher(api: MemoryApi) -> None:
    async with replica(api, "a"):
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("first"))
        await until(lambda: _phase(api, "first") == "Scheduling")
        assert _leader(api) == "a"
    async with replica(api, "b"):
        await until(lambda: _leader(api) == "b")
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("second"))
        await until(lambda: _phase(api, "second") == "Scheduling")
    names = [meta.name(pod) for pod in api.list(resources.PODS, "ns")]
    assert len(names) == 2
    assert {name.rpartition("-")[0] for name in names} == {"virt-launcher-first", "virt-launcher-second"}


async def test_every_replica_tells_which_settings_it_knows(api: MemoryApi) -> None:
    async with replica(api, "a") as first:
        await until(lambda: _leader(api) == "a")
        async with replica(api, "b") as second:
            for model in ("host-model", "Nehalem"):
                configured = {"configuration": {"cpuModel": model}}
                written = api.put(kinds.KUBEVIRTS, {**_INSTALLATION, "spec": configured})
                wanted = {"config-resource-version": written["metadata"]["resourceVersion"]}
                await until(partial(_all_tell, wanted, first, second))


async def test_a_replica_that_does_not_lead_changes_nothing(api: MemoryApi) -> None:
    async with replica(api, "a"):
        await until(lambda: _leader(api) == "a")
        async with replica(api, "b"):
            lease = f"/leases/{VirtController.name}"
            asked = len([each for each in api.requests if each.path.endswith(lease)])
            await until(lambda: len([each for each in api.requests if each.path.endswith(lease)]) > asked)
            api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("vmi"))
            await until(lambda: _phase(api, "vmi") == "Scheduling")
            assert _leader(api) == "a"
    writers = {
        value
        for each in api.requests
        if each.method != "GET" and "/leases" not in each.path
        for header, value in each.headers
        if header == "User-Agent"
    }
    assert writers == {"a"}


@pytest.mark.looptime
async def test_a_replica_that_lost_its_lease_works_again_in_the_same_process(api: MemoryApi) -> None:
    def refuse(request: Request) -> StatusError | None:
        return StatusError(503, "ServiceUnavailable", "busy") if "/leases/" in request.path else None

    async with replica(api, "a"):
        await until(lambda: _leader(api) == "a")
        api.reactions.append(refuse)
        await asyncio.sleep(20)  # longer than the lease is valid
        api.reactions.clear()
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("vmi"))
        await until(lambda: _phase(api, "vmi") == "Scheduling")


async def test_a_kind_that_comes_to_be_served_is_used(
    api: MemoryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component, "_RETRY_SECONDS", 0.01)
    path = f"/{kinds.DATA_VOLUMES.plural}"

    def is_watched() -> bool:
        return any(each.path.endswith(path) for each in api.requests)

    async with replica(api, "a"):
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("before"))
        await until(lambda: _phase(api, "before") == "Scheduling")
        assert not is_watched()
        definition = {"metadata": {"name": kinds.DATA_VOLUMES.group_resource}}
        api.put(resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
        await until(is_watched)
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi("after"))
        await until(lambda: _phase(api, "after") == "Scheduling")
        assert _leader(api) == "a"


async def test_queues_have_the_names_that_kubevirt_gives_theirs(api: MemoryApi) -> None:
    registry = CollectorRegistry()

    def names() -> set[str]:
        samples = (sample for family in registry.collect() for sample in family.samples)
        return {each.labels["name"] for each in samples if each.name == "kubevirt_workqueue_adds_total"}

    async with replica(api, "a", QueueMetrics(registry, "kubevirt_workqueue")):
        await until(lambda: "virt-controller-restore-vmrestore" in names())
    own = {"virt-controller-deletions", "virt-controller-outdated"}
    assert names() - own == {
        "virt-controller-evacuation",
        "virt-controller-migration",
        "virt-controller-node",
        "virt-controller-pool",
        "virt-controller-replicaset",
        "virt-controller-restore-vmrestore",
        "virt-controller-snapshot-vmsnapshot",
        "virt-controller-snapshot-vmsnapshotcontent",
        "virt-controller-vm",
        "virt-controller-vmi",
        "virt-controller-workload-update",
    }


@pytest.mark.parametrize(
    ("variable", "image"), [("", "product:1"), ("r.test/sidecar-shim:1", "r.test/sidecar-shim:1")]
)
async def test_the_image_of_sidecars_comes_from_the_environment(
    api: MemoryApi, monkeypatch: pytest.MonkeyPatch, variable: str, image: str
) -> None:
    monkeypatch.setenv("SIDECAR_SHIM_IMAGE", variable)
    context = Context(client_factory=lambda _: api.client(), settings={"image": "product:1"})
    images = component.images_of(context)
    assert (images.launcher, images.sidecar) == ("product:1", image)
    await context.close()
