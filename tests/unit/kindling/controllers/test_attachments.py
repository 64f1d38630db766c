"""Attaching and detaching, beside an attacher and a node that do what theirs do in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.objects import pod

from kindling.controllers.volumes import attachment_rules as rules
from kindling.controllers.volumes.attachments import AttachDetachController
from kindling.scheduler.csi import CsiVolume, of_unique_name
from kubecore.client import ConnectionFailed, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CSI_DRIVERS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)

from .conftest import Cluster

pytestmark = pytest.mark.looptime

VOLUME = CsiVolume("d.example.com", "h1")
ATTACHER = "external-attacher/d-example-com"


def node(name: str, ready: str = "True", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "annotations": {rules.MANAGED: "true"}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def prepare(cluster: Cluster, mode: str = "ReadWriteOnce") -> None:
    for name in ("n1", "n2"):
        cluster.api.put(NODES, node(name))
    claim = cluster.api.put(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {
                "name": "c",
                "namespace": "lab",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "pv", "accessModes": [mode]},
            "status": {"phase": "Bound"},
        },
    )
    cluster.api.put(
        PERSISTENT_VOLUMES,
        {
            "metadata": {"name": "pv"},
            "spec": {
                "accessModes": [mode],
                "claimRef": {"namespace": "lab", "name": "c", "uid": claim["metadata"]["uid"]},
                "csi": {"driver": VOLUME.driver, "volumeHandle": VOLUME.handle},
            },
        },
    )


def using(name: str, on: str) -> JsonObject:
    return pod(name, on, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])


def attachment(cluster: Cluster, on: str) -> JsonObject | None:
    return cluster.api.get(VOLUME_ATTACHMENTS, VOLUME.attachment_name(on))


def listed(cluster: Cluster, on: str) -> list[str]:
    """What the node's status lists as attached."""
    found = cluster.get(NODES, on)["status"].get("volumesAttached") or []
    return [entry["name"] for entry in found]


def mounts(cluster: Cluster, on: str, *names: str) -> None:
    """The node reports what it uses."""
    found = cluster.get(NODES, on)
    cluster.api.put(NODES, {**found, "status": {**found["status"], "volumesInUse": list(names)}})


def messages(cluster: Cluster) -> list[tuple[str, str]]:
    return [(event["reason"], event["message"]) for event in cluster.api.list(EVENTS)]


async def attach_all(cluster: Cluster) -> None:
    """An attacher: holds attachments by a finalizer while their volume is attached."""
    while True:
        await asyncio.sleep(0.5)
        for found in cluster.api.list(VOLUME_ATTACHMENTS):
            metadata = found["metadata"]
            if metadata.get("deletionTimestamp"):
                # Without its last finalizer it is gone.
                cluster.api.put(VOLUME_ATTACHMENTS, {**found, "metadata": {**metadata, "finalizers": []}})
            elif not found.get("status", {}).get("attached"):
                held = {**metadata, "finalizers": [ATTACHER]}
                status = {"attached": True, "attachmentMetadata": {"device": "/dev/x"}}
                cluster.api.put(VOLUME_ATTACHMENTS, {**found, "metadata": held, "status": status})


@asynccontextmanager
async def at_work(cluster: Cluster, *, attacher: bool = True) -> AsyncIterator[None]:
    task = asyncio.create_task(attach_all(cluster) if attacher else asyncio.sleep(0))
    try:
        async with cluster.running(AttachDetachController):
            yield
        assert not attacher or not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_names_are_those_that_attachers_and_tools_compute() -> None:
    assert VOLUME.unique_name == "kubernetes.io/csi/d.example.com^h1"
    assert of_unique_name(VOLUME.unique_name) == VOLUME
    assert of_unique_name("kubernetes.io/iscsi/a^b") is None
    # sha256 of "h1d.example.comn1"
    assert VOLUME.attachment_name("n1") == (
        "csi-b078b22d1096952a15ef3207f7f853696502bd1e6a5ae841d5eb413fc87f8ee8"
    )


async def test_a_volume_is_attached_for_a_pod_and_then_listed(cluster: Cluster) -> None:
    prepare(cluster)
    async with at_work(cluster, attacher=False):
        cluster.api.put(PODS, using("p", "n1"))
        await asyncio.sleep(1)
        made = attachment(cluster, "n1")
        assert made is not None
        assert made["spec"] == {
            "attacher": "d.example.com",
            "nodeName": "n1",
            "source": {"persistentVolumeName": "pv"},
        }
        assert listed(cluster, "n1") == []
        failed = {"attached": False, "attachError": {"message": "rpc error: code = Internal desc = no"}}
        cluster.api.put(VOLUME_ATTACHMENTS, {**made, "status": failed})
        await asyncio.sleep(1)
        cluster.api.put(VOLUME_ATTACHMENTS, {**made, "status": {"attached": True}})
        await asyncio.sleep(1)
        assert listed(cluster, "n1") == [VOLUME.unique_name]
        await asyncio.sleep(1)
    assert messages(cluster) == [
        (
            "FailedAttachVolume",
            'AttachVolume.Attach failed for volume "pv" : rpc error: code = Internal desc = no',
        ),
        ("SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "pv" '),
    ]


async def test_drivers_that_need_no_attaching_get_none(cluster: Cluster) -> None:
    prepare(cluster)
    cluster.api.put(CSI_DRIVERS, {"metadata": {"name": VOLUME.driver}, "spec": {"attachRequired": False}})
    cluster.api.put(PODS, using("p", "n1"))
    async with at_work(cluster):
        await asyncio.sleep(2)
        assert cluster.api.list(VOLUME_ATTACHMENTS) == []
        assert listed(cluster, "n1") == []


async def test_a_volume_is_detached_when_the_node_has_unmounted_it(cluster: Cluster) -> None:
    prepare(cluster)
    cluster.api.put(PODS, using("p", "n1"))
    async with at_work(cluster):
        await asyncio.sleep(2)
        mounts(cluster, "n1", VOLUME.unique_name)
        cluster.api.remove(PODS, "p", "lab")
        await asyncio.sleep(1000)
        assert attachment(cluster, "n1") is not None, "a ready node keeps what it has mounted, however long"
        assert listed(cluster, "n1") == [VOLUME.unique_name]
        mounts(cluster, "n1")
        await asyncio.sleep(2)
        assert attachment(cluster, "n1") is None
        assert listed(cluster, "n1") == []


async def test_a_volume_of_one_node_waits_until_the_other_node_gives_it_up(cluster: Cluster) -> None:
    prepare(cluster)
    cluster.api.put(PODS, using("first", "n1"))
    async with at_work(cluster):
        await asyncio.sleep(2)
        mounts(cluster, "n1", VOLUME.unique_name)
        cluster.api.put(PODS, using("second", "n2"))
        await asyncio.sleep(3)
        assert attachment(cluster, "n2") is None
        text = 'Multi-Attach error for volume "pv" Volume is already used by pod(s) first'
        assert ("FailedAttachVolume", text) in messages(cluster)
        cluster.api.remove(PODS, "first", "lab")
        mounts(cluster, "n1")
        await asyncio.sleep(5)
        assert attachment(cluster, "n1") is None
        assert listed(cluster, "n2") == [VOLUME.unique_name]


async def test_two_pods_at_once_do_not_both_get_a_volume_of_one_node(cluster: Cluster) -> None:
    prepare(cluster)
    async with at_work(cluster):
        cluster.api.put(PODS, using("first", "n1"))
        cluster.api.put(PODS, using("second", "n2"))
        await asyncio.sleep(5)
    assert len(cluster.api.list(VOLUME_ATTACHMENTS)) == 1


async def test_shared_volumes_are_attached_to_every_node(cluster: Cluster) -> None:
    prepare(cluster, "ReadWriteMany")
    async with at_work(cluster):
        cluster.api.put(PODS, using("first", "n1"))
        cluster.api.put(PODS, using("second", "n2"))
        await asyncio.sleep(3)
    assert listed(cluster, "n1") == listed(cluster, "n2") == [VOLUME.unique_name]


@pytest.mark.parametrize("how", ["silent", "gone", "out of service"])
async def test_a_node_that_is_lost_keeps_volumes_for_six_minutes_at_most(cluster: Cluster, how: str) -> None:
    prepare(cluster)
    cluster.api.put(PODS, using("p", "n1"))
    async with at_work(cluster):
        await asyncio.sleep(2)
        mounts(cluster, "n1", VOLUME.unique_name)
        cluster.api.remove(PODS, "p", "lab")
        found = cluster.get(NODES, "n1")
        if how == "gone":
            cluster.api.remove(NODES, "n1")
        elif how == "silent":
            lost = {**found["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}
            cluster.api.put(NODES, {**found, "status": lost})
        else:
            taints = [{"key": rules.OUT_OF_SERVICE, "effect": "NoExecute"}]
            cluster.api.put(NODES, {**found, "spec": {"taints": taints}})
        await asyncio.sleep(300)
        assert (attachment(cluster, "n1") is None) == (how == "out of service")
        await asyncio.sleep(100)
        assert attachment(cluster, "n1") is None


async def test_a_node_that_starts_to_mount_in_the_last_moment_keeps_its_volume(cluster: Cluster) -> None:
    """The node lists the volume as in use while the controller takes it off the list of attached ones."""
    prepare(cluster)
    cluster.api.put(PODS, using("p", "n1"))

    def at_once(request: Request) -> None:
        if request.method == "PATCH" and request.path == "/api/v1/nodes/n1/status":
            cluster.api.reactions.clear()
            mounts(cluster, "n1", VOLUME.unique_name)

    async with at_work(cluster):
        await asyncio.sleep(2)
        cluster.api.reactions.append(at_once)
        cluster.api.remove(PODS, "p", "lab")
        await asyncio.sleep(60)
        found = attachment(cluster, "n1")
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]


def refusing(every: int, *, lost: bool) -> Callable[[Request], Response | StatusError | None]:
    """Fails some writes: refused, or (`lost`) without an answer."""
    seen = 0

    def react(request: Request) -> Response | StatusError | None:
        nonlocal seen
        if request.method == "GET" or "events" in request.path:
            return None
        seen += 1
        if seen % every:
            return None
        if lost:
            raise ConnectionFailed("the server is gone")
        return StatusError(500, "InternalError", "not now")

    return react


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("every", [2, 3])
async def test_failures_and_restarts_leave_no_attachment_behind_and_double_none(
    cluster: Cluster, every: int, lost: bool
) -> None:
    prepare(cluster)
    cluster.api.reactions.append(refusing(every, lost=lost))
    for turn, where in enumerate(("n1", "n2", "n1")):
        name = f"p{turn}"
        for pause in (0.3, 0.7, 120):
            async with at_work(cluster):
                if cluster.api.get(PODS, name, "lab") is None:
                    cluster.api.put(PODS, using(name, where))
                await asyncio.sleep(pause)
                assert len(cluster.api.list(VOLUME_ATTACHMENTS)) <= 1
        assert listed(cluster, where) == [VOLUME.unique_name]
        mounts(cluster, where, VOLUME.unique_name)
        cluster.api.remove(PODS, name, "lab")
        async with at_work(cluster):
            await asyncio.sleep(0.4)
        mounts(cluster, where)
        async with at_work(cluster):
            await asyncio.sleep(120)
        assert cluster.api.list(VOLUME_ATTACHMENTS) == []
        assert listed(cluster, where) == []
