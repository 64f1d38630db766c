"""The parts on a real API server, which validates and defaults, and the snapshot API that it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import RunningServer, running_server
from tests.support.fake_csi_driver import NAME, FakeDriver
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import (
    CLAIMS,
    CONTENTS,
    GROUP_CONTENTS,
    GROUPS,
    SNAPSHOTS,
    VOLUMES,
    claim,
    storage_class,
    working,
)

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import Context
from virtplane.api import resources as kinds
from virtplane.api import volumegroupsnapshot_crds, volumesnapshot_crds
from virtplane.operators.kubevirt.controller import Caches, KubeVirtController, Settings
from virtplane.storage.volumesnapshot import component

DEFINITIONS = resources.CUSTOM_RESOURCE_DEFINITIONS


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path) as running:
        yield running


async def eventually(check: Callable[[], Awaitable[Any]]) -> Any:
    """What `check` gives once it is true; absent objects count as false."""
    return await until(check, not_yet=is_not_found)


async def _served(client: Client, kind: ResourceType) -> None:
    async def check() -> bool:
        await client.list(kind)
        return True

    await eventually(check)


async def _cluster(client: Client) -> None:
    """The snapshot API, that of groups, a namespace and the classes."""
    for api in (volumesnapshot_crds, volumegroupsnapshot_crds):
        for document in api.custom_resource_definitions():
            await client.create(DEFINITIONS, document)
    await client.create(
        resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    )
    classes = kinds.VOLUME_SNAPSHOT_CLASSES, kinds.VOLUME_GROUP_SNAPSHOT_CLASSES
    for kind in (*classes, SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS):
        await _served(client, kind)
    await client.create(resources.STORAGE_CLASSES, _typed(resources.STORAGE_CLASSES, storage_class()))
    snapshot_class = {"metadata": {"name": "snap"}, "driver": NAME, "deletionPolicy": "Delete"}
    for kind in classes:
        await client.create(kind, _typed(kind, snapshot_class))


def _typed(kind: ResourceType, document: JsonObject) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **document}


async def test_a_volume_from_its_claim_to_its_end(
    server: RunningServer, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    driver = FakeDriver()
    async with server.client() as client:
        await _cluster(client)
        names = "provisioner,attacher,resizer,snapshotter"
        async with working(client, driver, tmp_path, names, snapshots=True):

            async def bound(name: str) -> JsonObject | None:
                found = await client.get(CLAIMS, name, "ns")
                return found if get_str(found, "status", "phase") == "Bound" else None

            times = []
            for number in range(5):
                began = time.perf_counter()
                await client.create(CLAIMS, _typed(CLAIMS, claim(f"c{number}")), "ns")
                await eventually(partial(bound, f"c{number}"))
                times.append(round((time.perf_counter() - began) * 1000))
            record_property("claim_to_bound_ms", sorted(times)[2])
            volume = (await client.get(CLAIMS, "c0", "ns"))["spec"]["volumeName"]

            # Attached and detached.
            drivers = [{"name": NAME, "nodeID": "node-one"}]
            node = {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}
            await client.create(resources.CSI_NODES, _typed(resources.CSI_NODES, node))
            spec = {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": volume}}
            attachments = resources.VOLUME_ATTACHMENTS
            attachment = _typed(attachments, {"metadata": {"name": "va"}, "spec": spec})
            await client.create(attachments, attachment)

            async def attached() -> bool:
                return bool(get_object(await client.get(attachments, "va"), "status").get("attached"))

            await eventually(attached)
            await client.delete(attachments, "va")
            await eventually(lambda: _is_gone(client, attachments, "va"))

            # Grown.
            wanted = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
            await client.patch(CLAIMS, "c0", wanted, "ns", type="merge")

            async def grown() -> bool:
                found = await client.get(CLAIMS, "c0", "ns")
                return get_str(found, "status", "capacity", "storage") == "2Gi"

            await eventually(grown)

            # A snapshot, and a volume made of it.
            source = {"persistentVolumeClaimName": "c0"}
            snapshot = {
                "metadata": {"name": "s"},
                "spec": {"source": source, "volumeSnapshotClassName": "snap"},
            }
            await client.create(SNAPSHOTS, _typed(SNAPSHOTS, snapshot), "ns")

            async def ready() -> bool:
                found = await client.get(SNAPSHOTS, "s", "ns")
                return bool(get_object(found, "status").get("readyToUse"))

            await eventually(ready)
            reference = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
            await client.create(CLAIMS, _typed(CLAIMS, claim("copy", "2Gi", dataSource=reference)), "ns")
            await eventually(lambda: bound("copy"))

            # Everything goes.
            await client.delete(SNAPSHOTS, "s", "ns")
            for name in ("c0", "c1", "c2", "c3", "c4", "copy"):
                await client.delete(CLAIMS, name, "ns")

            async def nothing() -> bool:
                lists = [await client.list(kind) for kind in (CLAIMS, VOLUMES, SNAPSHOTS, CONTENTS)]
                return not any(found["items"] for found in lists)

            await eventually(nothing)
    assert not driver.volumes
    assert not driver.snapshots
    assert set(driver.created.values()) == {1}


async def _is_gone(client: Client, kind: ResourceType, name: str) -> bool:
    try:
        await client.get(kind, name)
    except StatusError as error:
        return is_not_found(error)
    return False


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"source": {}},
            "exactly one of volumeSnapshotContentName and persistentVolumeClaimName must be set",
        ),
        (
            {"source": {"persistentVolumeClaimName": "a", "volumeSnapshotContentName": "b"}},
            "exactly one of volumeSnapshotContentName and persistentVolumeClaimName must be set",
        ),
        (
            {"source": {"persistentVolumeClaimName": "a"}, "volumeSnapshotClassName": ""},
            "volumeSnapshotClassName must not be the empty string when set",
        ),
        ({}, "spec.source: Required value"),
    ],
)
async def test_the_snapshot_api_refuses_what_makes_no_sense(
    server: RunningServer, spec: JsonObject, text: str
) -> None:
    async with server.client() as client:
        await _cluster(client)
        with pytest.raises(StatusError) as caught:
            await client.create(SNAPSHOTS, _typed(SNAPSHOTS, {"metadata": {"name": "s"}, "spec": spec}), "ns")
        assert text in caught.value.message
        assert caught.value.code == 422


async def test_sources_are_immutable_and_contents_name_their_snapshot(server: RunningServer) -> None:
    async with server.client() as client:
        await _cluster(client)
        source = {"persistentVolumeClaimName": "a"}
        snapshot = _typed(SNAPSHOTS, {"metadata": {"name": "s"}, "spec": {"source": source}})
        await client.create(SNAPSHOTS, snapshot, "ns")
        change = {"spec": {"source": {"persistentVolumeClaimName": "b"}}}
        with pytest.raises(StatusError, match="persistentVolumeClaimName is immutable"):
            await client.patch(SNAPSHOTS, "s", change, "ns", type="merge")
        spec: JsonObject = {
            "deletionPolicy": "Delete",
            "driver": NAME,
            "source": {"snapshotHandle": "h"},
            "volumeSnapshotRef": {"name": "s"},
        }
        content = _typed(CONTENTS, {"metadata": {"name": "c"}, "spec": spec})
        with pytest.raises(StatusError, match=r"both spec\.volumeSnapshotRef\.name and spec"):
            await client.create(CONTENTS, content)
        spec["volumeSnapshotRef"]["namespace"] = "ns"
        with pytest.raises(StatusError, match="Unsupported value"):
            await client.create(CONTENTS, {**content, "spec": {**spec, "deletionPolicy": "Burn"}})
        await client.create(CONTENTS, {**content, "spec": {**spec, "sourceVolumeMode": "Block"}})
        with pytest.raises(StatusError, match="sourceVolumeMode is required once set"):
            await client.patch(CONTENTS, "c", {"spec": {"sourceVolumeMode": None}}, type="merge")


async def test_the_operator_offers_the_api_only_where_there_is_none(server: RunningServer) -> None:
    async with server.client() as client:
        settings = Settings("kubevirt", "", "compact", "v1")
        caches: Any = Caches(kubevirts=None, nodes=None, managed={})  # type: ignore[arg-type]
        operator = KubeVirtController(
            client, caches, settings, now=lambda: (_ for _ in ()).throw(AssertionError), is_ready=lambda: True
        )
        foreign = volumesnapshot_crds.custom_resource_definitions()[0]
        del foreign["metadata"]["labels"]
        await client.create(DEFINITIONS, foreign)
        await operator._offer_snapshots()
        assert len((await client.list(DEFINITIONS))["items"]) == 1
        await client.delete(DEFINITIONS, meta.name(foreign))
        await eventually(lambda: _is_gone(client, DEFINITIONS, meta.name(foreign)))
        await operator._offer_snapshots()
        found = (await client.list(DEFINITIONS))["items"]
        assert len(found) == 6
        assert all(map(volumesnapshot_crds.is_ours, found))


async def test_a_group_from_its_claims_to_its_end(server: RunningServer, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True, snapshots_take=2)
    gate = "--feature-gates=CSIVolumeGroupSnapshot=true"
    async with server.client() as client:
        await _cluster(client)
        parts = "provisioner,snapshotter", gate
        async with working(client, driver, tmp_path, *parts, snapshots=True, groups=True):
            for name in ("data", "log"):
                document = claim(name)
                document["metadata"]["labels"] = {"app": "db"}
                await client.create(CLAIMS, _typed(CLAIMS, document), "ns")
                await eventually(partial(_is_bound, client, name))
            selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}
            spec = {"source": {"selector": selector}, "volumeGroupSnapshotClassName": "snap"}
            await client.create(GROUPS, _typed(GROUPS, {"metadata": {"name": "g"}, "spec": spec}), "ns")

            async def ready(kind: ResourceType, name: str) -> bool:
                return bool(get_object(await client.get(kind, name, "ns"), "status").get("readyToUse"))

            await eventually(partial(ready, GROUPS, "g"))
            members = (await client.list(SNAPSHOTS, "ns"))["items"]
            assert len(members) == 2
            for member in members:
                await eventually(partial(ready, SNAPSHOTS, meta.name(member)))
            (content,) = (await client.list(GROUP_CONTENTS))["items"]
            assert len(content["status"]["volumeSnapshotInfoList"]) == 2
            with pytest.raises(StatusError, match="volumeHandles is immutable"):
                change = {"spec": {"source": {"volumeHandles": ["another"]}}}
                await client.patch(GROUP_CONTENTS, meta.name(content), change, type="merge")
            await client.delete(GROUPS, "g", "ns")
            for kind in (GROUPS, GROUP_CONTENTS, SNAPSHOTS, CONTENTS):
                await eventually(partial(_is_empty, client, kind))
            assert not driver.groups


async def _is_bound(client: Client, name: str) -> bool:
    return get_str(await client.get(CLAIMS, name, "ns"), "status", "phase") == "Bound"


async def _is_empty(client: Client, kind: ResourceType) -> bool:
    return not (await client.list(kind))["items"]


async def test_the_snapshot_controller_works_as_long_as_the_api_is_ours(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    works: list[str] = []

    async def control(_: Client, *, groups: bool) -> None:
        works.append("groups too" if groups else "single snapshots")
        try:
            await asyncio.Event().wait()
        finally:
            works.clear()

    async def does(what: list[str]) -> bool:
        return works == what

    monkeypatch.setattr(component, "control", control)
    async with server.client() as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}}
        await client.create(resources.NAMESPACES, namespace)
        context = Context(client_factory=lambda _: server.client(), namespace="kubevirt", identity="me")
        running = asyncio.create_task(component.SnapshotControllerComponent().run(context))
        try:
            for document in volumesnapshot_crds.custom_resource_definitions():
                await client.create(DEFINITIONS, document)
            await eventually(partial(does, ["single snapshots"]))
            for document in volumegroupsnapshot_crds.custom_resource_definitions():
                await client.create(DEFINITIONS, document)
            await eventually(partial(does, ["groups too"]))
            taken = {"metadata": {"labels": {volumesnapshot_crds.MARK: None}}}
            await client.patch(DEFINITIONS, GROUPS.group_resource, taken, type="merge")
            await eventually(partial(does, ["single snapshots"]))
            await client.patch(DEFINITIONS, SNAPSHOTS.group_resource, taken, type="merge")
            await eventually(partial(does, []))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await context.close()
