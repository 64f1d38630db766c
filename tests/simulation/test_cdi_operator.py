"""cdi-operator and cdi-deployment on virtual time, while calls are lost and processes are killed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.simulation.clock import determined, run_virtually, wall_time
from tests.simulation.faults import CALM, Chances, Weather
from tests.simulation.processes import Process
from tests.support.cdi_operator import COMPONENTS, KINDS, NAMESPACE, SETTINGS

from kubecore import resources
from kubecore.client import Client
from kubecore.json import get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as api
from virtplane.operators.cdi.running import WATCHED, run_controller
from virtplane.storage.cdi.controller.component import control
from virtplane.storage.cdi.controller.config.reconciler import INGRESSES
from virtplane.storage.cdi.controller.programs import own_programs

SEEDS = range(6)
FOUL = Chances(
    refused=0.03,
    lost_before=0.03,
    lost_after=0.03,
    late=0.02,
    slow=0.03,
    stale=0.03,
    broken=0.01,
    expired=0.1,
)
REST_SECONDS = 400.0


async def _operate(client: Client) -> None:
    ready = Gauge("kubevirt_cdi_cr_ready", "", registry=CollectorRegistry())
    await run_controller(client, SETTINGS, ready, now=wall_time)


async def _control(client: Client) -> None:
    await control(client, NAMESPACE, own_programs("image"), CollectorRegistry())


class _Alarms(logging.Handler):
    """Collects what is logged as an error: an exception that nobody expected."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self._found.append(f"{record.name}: {record.getMessage()}: {problem!r}")


class Story:
    """One seed: CDI is installed and removed in foul weather."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"story {seed}")
        self.lines: list[str] = []
        self.alarms: list[str] = []
        self.server = MemoryApi(
            [*KINDS, INGRESSES, api.VOLUME_SNAPSHOT_CLASSES], whole=[api.CDIS, api.CDI_CONFIGS]
        )
        self.weather = Weather(random.Random(f"weather {seed}"), self.lines.append)
        programs = {"cdi-operator": _operate, "cdi-deployment": _control}
        self.processes = [
            Process(name, program, self.server, self.weather) for name, program in programs.items()
        ]

    async def tell(self) -> None:
        """The whole story. Raises AssertionError."""
        self.server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "x"})
        self.put("cdi")
        kubelet = asyncio.create_task(self._report_deployments())
        for process in self.processes:
            process.start()
        try:
            await self._foul(self._disturb)
            await self._calm("installed")
            self._is_installed()
            await self._restart()
            async with self.server.client() as client:
                await client.delete(api.CDIS, "cdi")
            await self._foul(lambda: None)
            await self._calm("removed")
            self._is_removed()
        finally:
            kubelet.cancel()
            for process in self.processes:
                await process.kill()
        assert self.alarms == []
        assert [process.failures for process in self.processes] == [[], []]

    def put(self, name: str, **spec: object) -> None:
        """Create or change a CDI object."""
        old = self.server.get(api.CDIS, name) or {"metadata": {"name": name}}
        self.server.put(api.CDIS, {**old, "apiVersion": api.CDIS.api_version, "kind": "CDI", "spec": spec})

    async def _foul(self, disturb: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.weather.chances = FOUL
        end = loop.time() + 120.0
        while loop.time() < end:
            await asyncio.sleep(self.chance.expovariate(1 / 5.0))
            process = self.chance.choice(self.processes)
            if self.chance.random() < 0.4 and process.is_running:
                await process.kill()
                loop.call_later(self.chance.uniform(0.1, 20.0), process.start)
            disturb()

    def _disturb(self) -> None:
        """What users and others do meanwhile."""
        match self.chance.randrange(4):
            case 0:
                self._remove_one(self.chance.choice(WATCHED))
            case 1:
                self.put("cdi", infra={"deploymentReplicas": self.chance.randint(1, 3)})
            case 2:
                self.put("second")
            case _:
                pass

    def _remove_one(self, resource: ResourceType) -> None:
        found = self.server.list(resource)
        if found:
            chosen = self.chance.choice(found)
            self.server.remove(resource, meta.name(chosen), meta.namespace(chosen))

    async def _calm(self, what: str) -> None:
        self.lines.append(f"calm: to be {what}")
        self.weather.chances = CALM
        for process in self.processes:
            process.start()
        await asyncio.sleep(REST_SECONDS)

    async def _restart(self) -> None:
        """Who begins anew finds nothing to do."""
        for process in self.processes:
            await process.kill()
        self.weather.work.clear()
        for process in self.processes:
            process.start()
        await asyncio.sleep(100.0)
        assert [each for each in self.weather.work if "/events" not in each] == []

    def _is_installed(self) -> None:
        found = self.server.get(api.CDIS, "cdi")
        assert get_str(found, "status", "phase") == "Deployed"
        second = self.server.get(api.CDIS, "second")
        if second is not None:
            assert get_str(second, "status", "phase") == "Error"
            assert meta.finalizers(second) == []
        assert {meta.name(each) for each in self.server.list(resources.DEPLOYMENTS)} == set(COMPONENTS)
        assert len(self.server.list(resources.CUSTOM_RESOURCE_DEFINITIONS)) == 11
        assert len(self.server.list(resources.VALIDATING_WEBHOOK_CONFIGURATIONS)) == 6
        assert self.server.get(resources.API_SERVICES, "v1beta1.upload.cdi.kubevirt.io")
        assert self.server.get(api.CDI_CONFIGS, "config")
        assert self.server.get(api.STORAGE_PROFILES, "fast")

    def _is_removed(self) -> None:
        assert self.server.get(api.CDIS, "cdi") is None
        left = {kind.kind: [meta.name(each) for each in self.server.list(kind)] for kind in WATCHED}
        assert {kind: names for kind, names in left.items() if names} == {}

    async def _report_deployments(self) -> None:
        while True:
            for live in self.server.list(resources.DEPLOYMENTS):
                replicas = live["spec"]["replicas"]
                status = {
                    "observedGeneration": meta.generation(live),
                    "replicas": replicas,
                    "updatedReplicas": replicas,
                    "readyReplicas": replicas,
                }
                if live.get("status") != status:
                    self.server.put(resources.DEPLOYMENTS, {**live, "status": status})
            await asyncio.sleep(1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_cdi_is_installed_and_removed_whatever_happens(seed: int) -> None:
    story: list[Story] = []

    async def tell() -> None:
        story.append(Story(seed))
        alarms = _Alarms(story[0].alarms)
        logging.getLogger().addHandler(alarms)
        try:
            await story[0].tell()
        finally:
            logging.getLogger().removeHandler(alarms)

    with determined(seed):
        try:
            run_virtually(tell)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *story[0].lines[-80:]])) from error
