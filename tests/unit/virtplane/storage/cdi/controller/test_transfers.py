"""ObjectTransfers: a volume goes from one claim to another, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.faults import Chances, Link, Weather
from tests.support.cdi_rights import controllers_api

from kubecore.client import Client, ClientConfig, Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, ResourceType
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.storage.cdi.controller.transfers import decisions
from virtplane.storage.cdi.controller.transfers.objects import remembered_source
from virtplane.storage.cdi.controller.transfers.reconciler import TransferController

# Nothing but memory takes part: time goes on at once, not after 42 idle turns of the loop.
pytestmark = pytest.mark.looptime(noop_cycles=0)
KINDS = (kinds.CDIS, kinds.OBJECT_TRANSFERS, kinds.DATA_VOLUMES)
STORMY = Chances(refused=0.05, lost_before=0.08, lost_after=0.08, late=0.05, slow=0.1, stale=0.1, broken=0.02)
TARGETS = "/api/v1/namespaces/b/persistentvolumeclaims"
CLAIM = {"kind": "PersistentVolumeClaim", "namespace": "a", "name": "p"}


class World:
    """A server, its volume and garbage controllers, and lives of the transfer controller."""

    def __init__(self, seed: int = 0, chances: Chances | None = None) -> None:
        self.api = MemoryApi(KINDS)
        self.chance = random.Random(seed)
        self.weather = Weather(random.Random(seed + 1), lambda _: None, chances or Chances())
        self.put(kinds.CDIS, "cdi", spec={})

    def put(self, kind: ResourceType, name: str, namespace: str = "", **members: Any) -> JsonObject:
        metadata = {"name": name, "creationTimestamp": now_rfc3339(), **members.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **members}
        return self.api.put(kind, document)

    def volume(self, policy: str = "Delete") -> None:
        """A claim ``a/p`` with the volume ``pv``."""
        made = self.put(
            PERSISTENT_VOLUME_CLAIMS,
            "p",
            "a",
            metadata={
                "labels": {"a": "b"},
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            spec={"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
            status={"phase": "Bound"},
        )
        reference = {"namespace": "a", "name": "p", "uid": made["metadata"]["uid"]}
        spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": reference}
        self.put(PERSISTENT_VOLUMES, "pv", spec=spec, status={"phase": "Bound"})

    def transfer(self, called: str, source: JsonObject = CLAIM, **target: str) -> None:
        self.put(kinds.OBJECT_TRANSFERS, called, spec={"source": source, "target": target})

    def get(self, kind: ResourceType, name: str, namespace: str = "") -> JsonObject:
        return self.api.get(kind, name, namespace) or {}

    def status(self, name: str) -> tuple[str, str]:
        """Phase and message of a transfer."""
        status = self.get(kinds.OBJECT_TRANSFERS, name).get("status", {})
        return status.get("phase", ""), status.get("conditions", [{}])[0].get("message", "")

    async def life(self) -> None:
        """One life of the controller, until it is cancelled."""
        link = Link(controllers_api(self.api), self.weather, "cdi-deployment")
        client = Client(ClientConfig(server="memory://"), link)
        manager = Manager(client)
        TransferController(client, manager)
        try:
            await manager.run()
        finally:
            link.is_cut = True

    def kubernetes(self) -> None:
        """One step of the controllers of volumes, claims and garbage, which see everything at once."""
        for claim in self.api.list(PERSISTENT_VOLUME_CLAIMS):
            metadata = claim["metadata"]
            if "deletionTimestamp" in metadata:
                self.api.remove(PERSISTENT_VOLUME_CLAIMS, metadata["name"], metadata["namespace"])
                continue
            volume = self.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
            holder = volume.get("spec", {}).get("claimRef", {})
            if holder.get("uid") == metadata["uid"] and claim.get("status", {}).get("phase") != "Bound":
                self.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        claims = {each["metadata"]["uid"] for each in self.api.list(PERSISTENT_VOLUME_CLAIMS)}
        for volume in self.api.list(PERSISTENT_VOLUMES):
            spec = volume["spec"]
            if spec.get("claimRef", {}).get("uid") not in claims:
                # What a volume plug-in does: the data are gone.
                assert spec["persistentVolumeReclaimPolicy"] == "Retain", "a volume was lost"
        for made in self.api.list(kinds.DATA_VOLUMES):
            if "deletionTimestamp" in made["metadata"]:
                self.api.remove(kinds.DATA_VOLUMES, made["metadata"]["name"], made["metadata"]["namespace"])
            elif made.get("status", {}).get("phase") != "Succeeded":
                self.api.put(kinds.DATA_VOLUMES, {**made, "status": {"phase": "Succeeded"}})

    def check(self) -> None:
        """A volume has one claim at most: two that are bound to it would share its data."""
        bound = [
            each["spec"]["volumeName"]
            for each in self.api.list(PERSISTENT_VOLUME_CLAIMS)
            if each.get("status", {}).get("phase") == "Bound"
        ]
        assert len(bound) == len(set(bound)), "a volume has two claims"

    async def until(self, done: Callable[[], bool], *, kills: bool = False) -> None:
        """Let the controller work until `done`, killed now and then; then calmly to the end."""
        loop = asyncio.get_running_loop()
        life = asyncio.create_task(self.life())
        end = loop.time() + 3600
        try:
            while not done():
                assert loop.time() < end, "the transfer does not end"
                await asyncio.sleep(self.chance.uniform(0.01, 0.5))
                self.kubernetes()
                self.check()
                if kills and self.chance.random() < 0.05:
                    life.cancel()
                    await asyncio.gather(life, return_exceptions=True)
                    life = asyncio.create_task(self.life())
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)


async def test_a_claim_moves_with_its_volume() -> None:
    world = World()
    world.volume()
    world.transfer("t", namespace="b", name="q")
    await world.until(lambda: world.status("t")[0] == "Complete")
    assert world.status("t") == ("Complete", "Transfer complete")
    assert not world.get(PERSISTENT_VOLUME_CLAIMS, "p", "a")
    moved = world.get(PERSISTENT_VOLUME_CLAIMS, "q", "b")
    assert moved["metadata"]["labels"] == {"a": "b"}
    assert names.OBJECT_TRANSFER_NAME not in moved["metadata"]["annotations"]
    volume = world.get(PERSISTENT_VOLUMES, "pv")["spec"]
    assert volume["claimRef"]["uid"] == moved["metadata"]["uid"]
    assert volume["persistentVolumeReclaimPolicy"] == "Delete"
    assert "data" not in world.get(kinds.OBJECT_TRANSFERS, "t")["status"]


async def test_a_data_volume_moves_with_its_claim() -> None:
    world = World()
    world.volume()
    made = world.put(
        kinds.DATA_VOLUMES, "p", "a", spec={"source": {"blank": {}}}, status={"phase": "Succeeded"}
    )
    owner = {"apiVersion": made["apiVersion"], "kind": "DataVolume", "name": "p", "controller": True}
    owner["uid"] = made["metadata"]["uid"]
    claim = world.get(PERSISTENT_VOLUME_CLAIMS, "p", "a")
    metadata = {**claim["metadata"], "ownerReferences": [owner]}
    world.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})
    world.transfer("t", {**CLAIM, "kind": "DataVolume"}, name="q")
    await world.until(lambda: world.status("t")[0] == "Complete")
    assert world.get(kinds.DATA_VOLUMES, "q", "a")["spec"] == {"source": {"blank": {}}}
    assert not world.get(kinds.DATA_VOLUMES, "p", "a")
    moved = world.get(PERSISTENT_VOLUME_CLAIMS, "q", "a")
    assert moved["metadata"]["annotations"][names.POPULATED_FOR] == "q"
    assert [each["metadata"]["name"] for each in world.api.list(kinds.OBJECT_TRANSFERS)] == ["t"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda world: world.api.remove(PERSISTENT_VOLUME_CLAIMS, "p", "a"), "No source"),
        (
            lambda world: world.put(
                PERSISTENT_VOLUME_CLAIMS, "p", "a", spec={"volumeName": "pv"}, status={"phase": "Pending"}
            ),
            "PVC not bound",
        ),
        (
            lambda world: world.put(
                PODS,
                "pod",
                "a",
                spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "p"}}]},
                status={"phase": "Running"},
            ),
            "Pods using PVC",
        ),
        (
            lambda world: world.put(PERSISTENT_VOLUME_CLAIMS, "q", "a", spec={"volumeName": "other"}),
            'ObjectTransfer target "a/q" already exists',
        ),
    ],
)
async def test_a_transfer_says_what_it_waits_for(change: Callable[[World], None], message: str) -> None:
    world = World()
    world.volume("Retain")
    change(world)
    world.transfer("t", name="q")
    await world.until(lambda: world.status("t") == ("Pending", message))


async def test_a_refused_target_is_the_reason_until_it_is_let_in() -> None:
    world = World()
    world.volume()
    refused = StatusError(403, "Forbidden", 'claims "p" is forbidden: exceeded quota: q')

    def quota(request: Request) -> StatusError | None:
        return refused if (request.method, request.path) == ("POST", TARGETS) else None

    world.api.reactions.append(quota)
    world.transfer("t", namespace="b")
    await world.until(lambda: world.status("t") == ("Error", "Error"))
    (condition,) = world.get(kinds.OBJECT_TRANSFERS, "t")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Complete", "False")
    assert condition["reason"] == refused.message
    world.api.reactions.remove(quota)
    await world.until(lambda: world.status("t")[0] == "Complete")
    assert world.get(PERSISTENT_VOLUME_CLAIMS, "p", "b")


async def test_two_transfers_do_not_take_the_same_claim() -> None:
    world = World()
    world.volume()
    claim = world.get(PERSISTENT_VOLUME_CLAIMS, "p", "a")
    annotations = {**claim["metadata"]["annotations"], names.OBJECT_TRANSFER_NAME: "other"}
    world.api.put(
        PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": {**claim["metadata"], "annotations": annotations}}
    )
    world.transfer("t", name="q")
    await world.until(lambda: world.status("t") == ("Pending", "Source in use by another transfer"))


async def test_a_transfer_that_has_not_begun_can_be_deleted() -> None:
    world = World()
    world.transfer("t", name="q")
    await world.until(lambda: world.status("t") == ("Pending", "No source"))
    found = world.get(kinds.OBJECT_TRANSFERS, "t")
    assert found["metadata"]["finalizers"] == [names.OBJECT_TRANSFER_FINALIZER]
    world.api.put(
        kinds.OBJECT_TRANSFERS,
        {**found, "metadata": {**found["metadata"], "deletionTimestamp": now_rfc3339()}},
    )
    await world.until(
        lambda: not world.get(kinds.OBJECT_TRANSFERS, "t").get("metadata", {}).get("finalizers")
    )


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 40, 10)], ids=str)
async def test_no_volume_is_lost_or_shared_whatever_goes_wrong(seeds: range) -> None:
    for seed in seeds:
        world = World(seed, STORMY)
        world.volume(world.chance.choice(["Delete", "Retain"]))
        world.transfer("one", namespace="b", name="q")
        world.transfer("two", name="r")

        def done(world: World = world) -> bool:
            return sorted(world.status(each)[0] for each in ("one", "two")) == ["Complete", "Pending"]

        await world.until(done, kills=True)
        claims = world.api.list(PERSISTENT_VOLUME_CLAIMS)
        assert len(claims) == 1, f"seed {seed}"
        holder = world.get(PERSISTENT_VOLUMES, "pv")["spec"]["claimRef"]
        assert holder["uid"] == claims[0]["metadata"]["uid"], f"seed {seed}"


def test_a_remembered_source_that_is_nested_without_end_is_none() -> None:
    found = {
        "metadata": {"name": "t"},
        "spec": {"source": {**CLAIM}, "target": {}},
        "status": {"data": {decisions.SOURCE: "[" * 100_000}},
    }
    assert remembered_source(decode(ObjectTransfer, found)) is None
