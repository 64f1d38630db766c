"""All parts on virtual time while requests, calls of the driver and processes fail by chance of a seed.

What the users want comes true in the end, nothing is made twice, and when they want nothing nothing is left.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from functools import partial

import pytest
from tests.simulation.clock import determined, run_virtually
from tests.simulation.faults import CALM, Chances, Weather
from tests.simulation.processes import Process as Killable
from tests.support.fake_csi_driver import NAME, DirectDriver, FakeDriver, Fault
from tests.unit.virtplane.storage.csi.cluster import (
    CLAIMS,
    CONTENTS,
    GROUP_CONTENTS,
    GROUPS,
    SNAPSHOTS,
    VOLUMES,
    TestCluster,
    claim,
)

from kindling.controllers.environment import Environment
from kindling.controllers.volumes.persistent_volumes import VolumeController
from kindling.controllers.volumes.protection import VolumeProtection
from kubecore import resources
from kubecore.client import Client
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import Manager
from virtplane.storage.csi.options import parse
from virtplane.storage.csi.process import Process, Surroundings
from virtplane.storage.volumesnapshot.component import control

SEEDS = int(os.environ.get("VIRTPLANE_SIMULATION_SEEDS", "300")) // 15
ATTACHMENTS = resources.VOLUME_ATTACHMENTS
_STORY_SECONDS = 120.0
_CALM_SECONDS = 1500.0
"""More than any back-off waits: five minutes here, 1000 seconds in the cluster's own controllers."""
_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED")


class World:
    """One seed's cluster, users, driver and faults."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"csi {seed}")
        self.lines: list[str] = []
        self.weather = Weather(random.Random(f"weather {seed}"), self._note)
        self.cluster = TestCluster()
        self.api = self.cluster.api
        drivers = [{"name": NAME, "nodeID": "node-one"}]
        self.api.put(resources.CSI_NODES, {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
        takes = self.chance.choice([0, 2])
        self.driver = FakeDriver(choose=self._fault, snapshots_take=takes, takes_groups=True)
        self.trouble = 0.2
        self.users = self.api.client(user_agent="users")
        self.number = 0
        self.processes = [
            Killable("kindling", _run_kindling, self.api, self.weather),
            Killable("snapshot-controller", partial(control, groups=True), self.api, self.weather),
            Killable("csi", self._run_csi, self.api, self.weather),
        ]

    def _note(self, line: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():9.3f}  {line}")

    def _fault(self, method: str) -> Fault | None:
        if not method.startswith(("Create", "Delete", "Controller")) or self.chance.random() >= self.trouble:
            return None
        code = self.chance.choice(_CODES)
        is_lost = code in _CODES[:2]
        return Fault(code, happens=is_lost and self.chance.random() < 0.5, delay_seconds=self.chance.random())

    async def _run_csi(self, client: Client) -> None:
        gate = "--feature-gates=CSIVolumeGroupSnapshot=true"
        options = parse(["provisioner,attacher,resizer,snapshotter", "--reconcile-sync=30s", gate])
        about = Surroundings(namespace="ns", pod="pod", node="n1", identity="me")
        driver = DirectDriver(self.driver)
        try:
            async with AsyncExitStack() as stack:
                works = await Process(options, about, client).works(stack, driver, client)
                async with asyncio.TaskGroup() as group:
                    for name, work in works:
                        group.create_task(work(), name=name)
        finally:
            driver.is_cut = True

    # Users.

    async def act(self) -> None:
        """A user does something."""
        acts = [self._claim, self._claim, self._snapshot, self._copy, self._grow, self._attach, self._delete]
        acts.append(self._group)
        with ignoring(404, 409):
            await self.chance.choice(acts)()

    def _next(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def _any(self, kind: ResourceType) -> JsonObject | None:
        found = self.api.list(kind)
        return self.chance.choice(found) if found else None

    async def _claim(self) -> None:
        document = claim(self._next("c"))
        document["metadata"]["labels"] = {"app": self.chance.choice("ab")}
        await self.users.create(CLAIMS, document, "ns")

    async def _group(self) -> None:
        source = {"selector": {"matchLabels": {"app": self.chance.choice("ab")}}}
        spec = {"source": source, "volumeGroupSnapshotClassName": "snap"}
        await self.users.create(GROUPS, {"metadata": {"name": self._next("g")}, "spec": spec}, "ns")

    async def _snapshot(self) -> None:
        source = self._any(CLAIMS)
        if source is not None:
            spec = {
                "source": {"persistentVolumeClaimName": meta.name(source)},
                "volumeSnapshotClassName": "snap",
            }
            await self.users.create(SNAPSHOTS, {"metadata": {"name": self._next("s")}, "spec": spec}, "ns")

    async def _copy(self) -> None:
        kind = self.chance.choice([CLAIMS, SNAPSHOTS])
        source = self._any(kind)
        if source is not None:
            group = {"apiGroup": kind.group} if kind.group else {}
            reference = {**group, "kind": kind.kind, "name": meta.name(source)}
            await self.users.create(CLAIMS, claim(self._next("c"), "4Gi", dataSource=reference), "ns")

    async def _grow(self) -> None:
        found = self._any(CLAIMS)
        # An API server lets only bound claims grow.
        if found is not None and get_str(found, "status", "phase") == "Bound":
            wanted = {"spec": {"resources": {"requests": {"storage": "8Gi"}}}}
            await self.users.patch(CLAIMS, meta.name(found), wanted, "ns", type="merge")

    async def _attach(self) -> None:
        volume = self._any(VOLUMES)
        if volume is not None:
            name = meta.name(volume)
            spec = {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": name}}
            document = {"metadata": {"name": f"va-{name}"}, "spec": spec}
            await self.users.create(ATTACHMENTS, document)

    async def _delete(self) -> None:
        kind = self.chance.choice([CLAIMS, SNAPSHOTS, ATTACHMENTS, GROUPS])
        found = self._any(kind)
        if found is not None:
            await self.users.delete(kind, meta.name(found), meta.namespace(found) or None)

    # The story.

    async def run(self) -> list[str]:
        """What is wrong in the end."""
        for process in self.processes:
            process.start()
        try:
            await self._foul()
            self.weather.chances, self.trouble = CALM, 0.0
            for process in self.processes:
                process.start()
            await asyncio.sleep(_CALM_SECONDS)
            wrong = self._unfulfilled() + self._unaccounted()
            await self._want_nothing()
            await asyncio.sleep(_CALM_SECONDS)
            wrong += self._left()
            return wrong + [repr(error) for process in self.processes for error in process.failures]
        finally:
            for process in self.processes:
                await process.kill()

    async def _foul(self) -> None:
        common = self.chance.choice([0.0, 0.02, 0.05])
        self.weather.chances = Chances(
            refused=common, lost_before=common, lost_after=common, late=common, stale=common / 2, broken=0.01
        )
        end = asyncio.get_running_loop().time() + _STORY_SECONDS
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(self.chance.expovariate(0.5))
            if self.chance.random() < 0.2:
                process = self.chance.choice(self.processes)
                await process.kill()
                if self.chance.random() < 0.7:
                    process.start()
            else:
                await self.act()
            for process in self.processes:
                if not process.is_running and self.chance.random() < 0.5:
                    process.start()

    def _unfulfilled(self) -> list[str]:
        """Claims, snapshots and attachments that did not come true although they could."""
        wrong = []
        names = {meta.name(each) for kind in (CLAIMS, SNAPSHOTS) for each in self.api.list(kind)}
        for found in self.api.list(CLAIMS):
            source = get_str(found, "spec", "dataSource", "name")
            could = not source  # a source may be too large, or gone
            if could and get_str(found, "status", "phase") != "Bound":
                wrong.append(f"claim {meta.name(found)} is not bound: {found}")
            status, wish = get_object(found, "status"), found["spec"]["resources"]["requests"]["storage"]
            if could and get_str(status, "capacity", "storage") != wish:
                wrong.append(f"claim {meta.name(found)} has not grown: {found}")
        groups = {meta.uid(each) for each in self.api.list(GROUPS)}
        for found in self.api.list(SNAPSHOTS):
            if any(owner["uid"] not in groups for owner in meta.owner_references(found)):
                continue  # a late request's, which the cluster's garbage collector deletes
            source = get_str(found, "spec", "source", "persistentVolumeClaimName")
            bound = self.api.get(CLAIMS, source, "ns")
            has_source = source in names and get_str(bound, "status", "phase") == "Bound"
            has_source = has_source and not meta.is_being_deleted(bound or {})
            is_going = meta.is_being_deleted(found)
            if has_source and not is_going and not get_object(found, "status").get("readyToUse"):
                wrong.append(f"snapshot {meta.name(found)} is not ready: {found}")
        for found in self.api.list(ATTACHMENTS):
            volume = self.api.get(VOLUMES, found["spec"]["source"]["persistentVolumeName"])
            if volume is None or meta.is_being_deleted(volume) or meta.is_being_deleted(found):
                continue
            if not get_object(found, "status").get("attached"):
                wrong.append(f"{meta.name(found)} is not attached: {found}")
        return wrong + [
            f"group {meta.name(found)} is not ready: {found}"
            for found in self.api.list(GROUPS)
            if self._could_be_taken(found) and not get_object(found, "status").get("readyToUse")
        ]

    def _could_be_taken(self, group: JsonObject) -> bool:
        """Whether the group's volumes are there: those of its content, or of all claims that it selects."""
        if meta.is_being_deleted(group):
            return False
        content = self.api.get(GROUP_CONTENTS, f"groupsnapcontent-{meta.uid(group)}")
        if content is not None:
            there = {each.volume_id for each in self.driver.volumes.values()}
            return there.issuperset(content["spec"]["source"]["volumeHandles"])
        wanted = group["spec"]["source"]["selector"]["matchLabels"]
        claims = [each for each in self.api.list(CLAIMS) if meta.labels(each) == wanted]
        return bool(claims) and all(get_str(each, "status", "phase") == "Bound" for each in claims)

    def _unaccounted(self) -> list[str]:
        """Storage that no object stands for."""
        handles = {each["spec"]["csi"]["volumeHandle"] for each in self.api.list(VOLUMES)}
        wrong = [f"{each.volume_id} belongs to no volume" for each in self.driver.volumes.values()]
        wrong = [text for text in wrong if text.split()[0] not in handles]
        contents = {get_str(each, "status", "snapshotHandle") for each in self.api.list(CONTENTS)}
        for each in self.driver.snapshots.values():
            if each.snapshot_id not in contents:
                wrong.append(f"{each.snapshot_id} belongs to no content")
        groups = {
            get_str(each, "status", "volumeGroupSnapshotHandle") for each in self.api.list(GROUP_CONTENTS)
        }
        for each in self.driver.groups.values():
            if each.group_snapshot_id not in groups:
                wrong.append(f"{each.group_snapshot_id} belongs to no content")
        return wrong

    async def _want_nothing(self) -> None:
        for kind in (ATTACHMENTS, GROUPS, SNAPSHOTS, CLAIMS):
            for found in self.api.list(kind):
                await self.users.delete(kind, meta.name(found), meta.namespace(found) or None)

    def _left(self) -> list[str]:
        wrong = [
            f"left: {found}"
            for kind in (ATTACHMENTS, GROUPS, GROUP_CONTENTS, SNAPSHOTS, CLAIMS, VOLUMES, CONTENTS)
            for found in self.api.list(kind)
        ]
        storage = (*self.driver.volumes, *self.driver.snapshots, *self.driver.groups)
        wrong += [f"left in the storage: {name}" for name in storage]
        return wrong + [f"left attached: {pair}" for pair in self.driver.published]


async def _run_kindling(client: Client) -> None:
    manager = Manager(client)
    environment = Environment(manager, "CA")
    VolumeController(environment)
    VolumeProtection(environment)
    await manager.run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_comes_true_and_nothing_is_left(seed: int) -> None:
    async def story() -> tuple[list[str], list[str]]:
        world = World(seed)
        return await world.run(), world.lines

    with determined(seed):
        wrong, lines = run_virtually(story)
    assert not wrong, "\n".join([*wrong, *lines[-80:]])
