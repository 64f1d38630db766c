"""A running cdi-operator on an API server in memory; Deployments' pods are reported by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import cdi_crds
from virtplane.api import resources as api
from virtplane.operators.cdi import extras, monitoring
from virtplane.operators.cdi.product import Settings
from virtplane.operators.cdi.running import run_controller

NAMESPACE = "cdi"
SETTINGS = Settings(NAMESPACE, "registry.test/virtplane:1", "distributed", "v1.2.0")
COMPONENTS = ("cdi-apiserver", "cdi-deployment", "cdi-uploadproxy")
OPTIONAL = (
    extras.CONSTRAINTS,
    extras.POPULATORS,
    extras.ROUTES,
    monitoring.SERVICE_MONITORS,
    monitoring.PROMETHEUS_RULES,
)
KINDS = (api.CDIS, *(each.resource for each in cdi_crds.DEFINITIONS))


class Operator:
    """A running operator, and its cluster."""

    def __init__(self, server: MemoryApi, ready: Gauge) -> None:
        self.server = server
        self.ready = ready
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.components_are_ready = False

    def put(self, spec: JsonObject | None = None, name: str = "cdi", **metadata: Any) -> JsonObject:
        """Create or change a CDI object."""
        old = self.server.get(api.CDIS, name) or {"metadata": {"name": name}}
        document = {
            "apiVersion": api.CDIS.api_version,
            "kind": "CDI",
            **old,
            "metadata": {**old["metadata"], **metadata},
            "spec": spec or {},
        }
        return self.server.put(api.CDIS, document)

    def cdi(self, name: str = "cdi") -> JsonObject:
        """A CDI object that must exist."""
        return self.get(api.CDIS, name)

    def get(self, resource: ResourceType, name: str) -> JsonObject:
        """An object that must exist."""
        found = self.server.get(resource, name, NAMESPACE if resource.namespaced else "")
        assert found is not None, f"no {resource.kind} {name}"
        return found

    async def appears(self, resource: ResourceType, name: str) -> JsonObject:
        """An object, once it exists."""
        where = NAMESPACE if resource.namespaced else ""
        found: JsonObject = await until(lambda: self.server.get(resource, name, where))
        return found

    async def disappears(self, resource: ResourceType, name: str) -> None:
        """Wait until an object is gone."""
        where = NAMESPACE if resource.namespaced else ""
        await until(lambda: self.server.get(resource, name, where) is None)

    async def deploy(self, names: Iterable[str] = COMPONENTS) -> None:
        """Report the pods of Deployments as ready, and wait until CDI is deployed."""
        for name in names:
            await self.appears(resources.DEPLOYMENTS, name)
            self.report(name)
        await self.phase("Deployed")

    def report(self, name: str, *, is_ready: bool = True) -> None:
        """Report the pods of a Deployment."""
        live = self.get(resources.DEPLOYMENTS, name)
        wanted = live["spec"]["replicas"]
        status = {
            "observedGeneration": meta.generation(live),
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": wanted if is_ready else 0,
        }
        self.server.put(resources.DEPLOYMENTS, {**live, "status": status})

    async def phase(self, wanted: str, name: str = "cdi") -> JsonObject:
        """The object, once it is in a phase."""
        await until(lambda: get_str(self.server.get(api.CDIS, name), "status", "phase") == wanted)
        return self.cdi(name)

    def conditions(self, name: str = "cdi") -> dict[str, tuple[str, str, str]]:
        """The conditions: status, reason, message."""
        return {
            get_str(each, "type"): (
                get_str(each, "status"),
                get_str(each, "reason"),
                get_str(each, "message"),
            )
            for each in get_list(self.server.get(api.CDIS, name), "status", "conditions")
        }

    def events(self) -> set[tuple[str, str]]:
        """Reasons and messages of all events."""
        found = self.server.list(resources.EVENTS)
        return {(get_str(each, "reason"), get_str(each, "message")) for each in found}

    def secrets(self) -> dict[str, str]:
        """The certificates by the names of their secrets, in base64."""
        found = self.server.list(resources.SECRETS, NAMESPACE)
        return {meta.name(each): get_str(each, "data", "tls.crt") for each in found}

    async def pass_time(self, time: timedelta) -> None:
        """Let time go by, and have the operator look."""
        self.now += time
        self.put(get_object(self.cdi(), "spec"), annotations={"looked-at": str(self.now)})


@asynccontextmanager
async def running(
    settings: Settings = SETTINGS,
    kinds: Iterable[ResourceType] = (),
    server: MemoryApi | None = None,
    before: Callable[[MemoryApi], object] = lambda _: None,
) -> AsyncIterator[Operator]:
    """An operator on a cluster that knows the optional `kinds`; `before` prepares the cluster."""
    server = server or MemoryApi([*KINDS, *kinds], whole=[api.CDIS])
    before(server)
    ready = Gauge("kubevirt_cdi_cr_ready", "", registry=CollectorRegistry())
    ready.set(-1)
    operator = Operator(server, ready)
    async with server.client() as client:
        task = asyncio.create_task(
            run_controller(
                client,
                settings,
                ready,
                now=lambda: operator.now,
                components_are_ready=lambda: operator.components_are_ready,
            )
        )
        try:
            yield operator
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
