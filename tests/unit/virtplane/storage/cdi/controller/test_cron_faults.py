"""DataImportCrons among lost and late requests, old caches and kills."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.simulation.clock import determined
from tests.simulation.faults import Chances, Link, Weather
from tests.support.cdi_rights import controllers_api
from tests.unit.virtplane.storage.cdi.controller.crons import NAMESPACE, Cluster, controller, new_api

from kubecore.client import Client, ClientConfig
from kubecore.json import JsonObject
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from kubecore.runtime import EventRecorder
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds

pytestmark = [pytest.mark.looptime, pytest.mark.feature("VMC-02")]
STORMY = Chances(refused=0.05, lost_before=0.08, lost_after=0.08, late=0.05, slow=0.1, stale=0.1, broken=0.02)
DIGESTS = ["sha256:" + letter * 64 for letter in "abcd"]


class GuardedApi(MemoryApi):
    """A server that notes when something goes that a DataSource leads to."""

    def __init__(self, *kinds: Any, **options: Any) -> None:
        super().__init__(*kinds, **options)
        self.lost: list[str] = []

    def remove(self, resource: ResourceType, name: str, namespace: str = "") -> None:
        member = "snapshot" if resource == kinds.VOLUME_SNAPSHOTS else "pvc"
        if resource in (kinds.DATA_VOLUMES, PERSISTENT_VOLUME_CLAIMS, kinds.VOLUME_SNAPSHOTS):
            for source in self.list(kinds.DATA_SOURCES):
                led_to = source["spec"]["source"].get(member, {})
                if (led_to.get("namespace"), led_to.get("name")) == (namespace, name):
                    self.lost.append(f"{resource.kind} {name}")
        super().remove(resource, name, namespace)


class World(Cluster):
    """A cluster in which imports are filled at random, and the controller is killed now and then."""

    def __init__(self, seed: int, chances: Chances) -> None:
        api = new_api(GuardedApi)
        assert isinstance(api, GuardedApi)
        self.lost = api.lost
        super().__init__(api)
        self.chance = random.Random(seed)
        self.weather = Weather(random.Random(seed + 1), lambda _: None, chances)
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        link = Link(controllers_api(self.api), self.weather, "cdi-deployment")
        client = Client(ClientConfig(server="memory://"), link)
        try:
            async with EventRecorder(client, "cdi-deployment") as recorder:
                await controller(client, recorder).run()
        finally:
            link.is_cut = True

    async def kill(self) -> None:
        """End the controller's life, and begin another."""
        await self.end()
        self._life = asyncio.create_task(self._live())

    async def end(self) -> None:
        """End the controller's life."""
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)

    def kubernetes(self) -> None:
        """One step of the controllers of DataVolumes, snapshots and garbage."""
        made = {each["metadata"]["uid"] for each in self.api.list(kinds.DATA_VOLUMES)}
        for claim in self.api.list(PERSISTENT_VOLUME_CLAIMS):
            if claim["metadata"]["ownerReferences"][0]["uid"] not in made:
                self.api.remove(PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], NAMESPACE)
        for each in self.api.list(kinds.DATA_VOLUMES):
            name = each["metadata"]["name"]
            if not each.get("status") and self.chance.random() < 0.3:
                self.phase(name, "ImportInProgress")
            elif each.get("status") == {"phase": "ImportInProgress"} and self.chance.random() < 0.3:
                self.fill(name)
        for each in self.api.list(kinds.VOLUME_SNAPSHOTS):
            if not each.get("status") and self.chance.random() < 0.3:
                self.api.put(kinds.VOLUME_SNAPSHOTS, {**each, "status": {"readyToUse": True}})

    async def work(self, steps: int, *, kills: bool) -> None:
        """Let everybody work."""
        for _ in range(steps):
            await asyncio.sleep(self.chance.uniform(0.05, 2.0))
            self._still_works()
            self.kubernetes()
            if kills and self.chance.random() < 0.05:
                await self.kill()

    def _still_works(self) -> None:
        if self._life.done():
            self._life.result()

    def ready_sources(self) -> list[JsonObject]:
        """What the DataSource leads to, if it is there."""
        content = self.content()
        kind = PERSISTENT_VOLUME_CLAIMS if "pvc" in content else kinds.VOLUME_SNAPSHOTS
        named: JsonObject = next(iter(content.values()), {})
        found = self.get(kind, named.get("name", ""))
        return [found] if found else []


def _name(digest: str) -> str:
    return "ds-" + digest.removeprefix("sha256:")[:12]


@pytest.mark.parametrize("source_format", ["pvc", "snapshot"])
@pytest.mark.parametrize("seeds", [range(start, start + 5) for start in range(0, 15, 5)], ids=str)
async def test_the_newest_digest_is_the_source_and_nothing_in_use_goes(
    seeds: range, source_format: str
) -> None:
    for seed in seeds:
        with determined(seed):
            await _see_newest_digest(seed, source_format)


async def _see_newest_digest(seed: int, source_format: str) -> None:
    world = World(seed, STORMY)
    profile = world.get(kinds.STORAGE_PROFILES, "fast", "")
    status = {"dataImportCronSourceFormat": source_format}
    world.api.put(kinds.STORAGE_PROFILES, {**profile, "status": status})
    world.cron(importsToKeep=world.chance.choice([0, 1, 2]))
    try:
        for _ in range(6):
            world.digest(world.chance.choice(DIGESTS))
            await world.work(world.chance.randrange(5, 60), kills=True)
        wanted = world.chance.choice(DIGESTS)
        world.digest(wanted)
        world.weather.chances = Chances()
        await world.work(200, kills=False)
        content = {source_format: {"name": _name(wanted), "namespace": NAMESPACE}}
        assert world.content() == content, f"seed {seed}"
        assert world.reasons() == {"Progressing": "NoImport", "UpToDate": "UpToDate"}, f"seed {seed}"
        assert world.ready_sources(), f"seed {seed}"
        kept = PERSISTENT_VOLUME_CLAIMS if source_format == "pvc" else kinds.VOLUME_SNAPSHOTS
        assert len(world.api.list(kept)) <= 2, f"seed {seed}"
        assert world.lost == [], f"seed {seed}"
    finally:
        await world.end()


@pytest.mark.parametrize("seed", range(8))
async def test_a_cron_that_keeps_nothing_leaves_nothing(seed: int) -> None:
    with determined(seed):
        await _see_nothing_left(seed)


async def _see_nothing_left(seed: int) -> None:
    world = World(seed, STORMY)
    try:
        world.cron(retentionPolicy="None")
        world.digest(DIGESTS[0])
        await world.work(world.chance.randrange(3, 60), kills=True)
        world.api.remove(kinds.DATA_IMPORT_CRONS, "cron", NAMESPACE)
        await world.work(20, kills=True)
        world.weather.chances = Chances()
        await world.work(100, kills=False)
        for kind in (kinds.DATA_SOURCES, kinds.DATA_VOLUMES, PERSISTENT_VOLUME_CLAIMS):
            assert world.api.list(kind) == [], f"seed {seed}"
    finally:
        await world.end()
