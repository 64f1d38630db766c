"""The node's side of CSI against a real driver: loop devices, XFS, gRPC over sockets."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from tests.support import csi_driver
from tests.support.csi_driver import NAME, LoopDriver
from tests.support.waiting import until

from kindling.node.pods import identity
from kindling.node.server import volume_stats
from kindling.node.volumes import csi_attachments, csi_block, csi_limits, csi_records, loop_devices, mounts
from kindling.node.volumes.content import Token
from kindling.node.volumes.csi_agent import CsiAgent, CsiHost
from kindling.node.volumes.manager import Prepared, VolumeManager, VolumeProblem
from kindling.scheduler.csi import CsiVolume, inline_handle
from kubecore import mountinfo
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    VOLUME_ATTACHMENTS,
)
from kubecore.testing import MemoryApi

pytestmark = [pytest.mark.host, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

NODE = "n1"
MEBIBYTE = 1024 * 1024


class Backend:
    """What the volume manager reads from the API."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api

    async def claim(self, namespace: str, name: str) -> tuple[JsonObject, JsonObject]:
        claim = self._api.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        assert claim is not None
        volume = self._api.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
        assert volume is not None
        return claim, volume


class Host:
    """An agent with one driver, and pods that a test starts and ends."""

    def __init__(self, directory: Path) -> None:
        self.api = MemoryApi()
        self.api.put(NODES, {"metadata": {"name": NODE, "labels": {"zone": "a"}}, "status": {}})
        self.driver = LoopDriver(directory)
        self.registry = identity.ROOT / "plugins_registry"
        self.pods: list[JsonObject] = []
        self.events: list[tuple[str, str, str]] = []
        self._running: asyncio.Task[None] | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Serve the driver and start an agent; returns when the driver is registered."""
        await self.driver.serve(stack, self.registry)
        await self.start_agent()

    async def start_agent(self) -> None:
        backend: Any = Backend(self.api)
        host = CsiHost(self.api.client(), NODE, lambda: self.pods, self._record, _issue)
        self.csi = CsiAgent(host)
        self.volumes = VolumeManager(backend, {"csi": self.csi.volumes})
        self._running = asyncio.create_task(self.csi.run())
        await until(lambda: self.csi.registry.get(NAME) is not None)

    async def stop_agent(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.csi.volumes.close()

    def _record(self, obj: JsonObject, kind: str, reason: str, message: str) -> None:
        self.events.append((obj["kind"], reason, message))

    def rules(self, **spec: Any) -> None:
        self.api.put(CSI_DRIVERS, {"metadata": {"name": NAME}, "spec": spec})

    def claim(self, name: str, megabytes: int = 320, **spec: Any) -> None:
        size = {"storage": f"{megabytes}Mi"}
        metadata = {"name": name, "namespace": "ns"}
        status = {"phase": "Bound", "capacity": size}
        claim = {"metadata": metadata, "spec": {"volumeName": f"pv-{name}"}, "status": status}
        self.api.put(PERSISTENT_VOLUME_CLAIMS, claim)
        source = {"driver": NAME, "volumeHandle": name, "fsType": "xfs", **spec.pop("csi", {})}
        volume = {"accessModes": ["ReadWriteOnce"], "capacity": size, "csi": source, **spec}
        self.api.put(PERSISTENT_VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": volume})

    def attach(self, name: str, megabytes: int = 320) -> None:
        """What the attach/detach controller and the attacher do."""
        context = self.driver.attach(name, megabytes * MEBIBYTE)
        volume = CsiVolume(NAME, name)
        metadata = {"name": volume.attachment_name(NODE)}
        status = {"attached": True, "attachmentMetadata": context}
        self.api.put(VOLUME_ATTACHMENTS, {"metadata": metadata, "status": status})
        node = self.node()
        listed = [*node["status"].get("volumesAttached", []), {"name": volume.unique_name, "devicePath": ""}]
        self.api.put(NODES, {**node, "status": {**node["status"], "volumesAttached": listed}})

    def node(self) -> JsonObject:
        found = self.api.get(NODES, NODE)
        assert found is not None
        return found

    def resize(self, name: str, megabytes: int) -> None:
        """What the external resizer does."""
        self.driver.grow(name, megabytes * MEBIBYTE)
        size = {"storage": f"{megabytes}Mi"}
        volume = self.api.get(PERSISTENT_VOLUMES, f"pv-{name}")
        assert volume is not None
        self.api.put(PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "capacity": size}})
        claim = self.get_claim(name)
        status = {
            **claim["status"],
            "allocatedResources": size,
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        }
        self.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status})

    def get_claim(self, name: str) -> JsonObject:
        claim = self.api.get(PERSISTENT_VOLUME_CLAIMS, name, "ns")
        assert claim is not None
        return claim

    def pod(self, uid: str, *volumes: JsonObject, **spec: Any) -> JsonObject:
        metadata = {"name": f"pod-{uid}", "namespace": "ns", "uid": uid}
        spec = {"containers": [], "serviceAccountName": "acc", "volumes": list(volumes), **spec}
        pod = {"metadata": metadata, "spec": spec}
        self.pods.append(pod)
        return pod

    async def end(self, uid: str) -> None:
        self.pods = [pod for pod in self.pods if pod["metadata"]["uid"] != uid]
        await self.volumes.clean_up(uid)

    async def look(self) -> None:
        self.csi.upkeep.look()
        await self.csi.upkeep.settle()


async def _issue(_pod: JsonObject, audience: str, seconds: int) -> Token:
    return Token(f"token for {audience} {seconds}", 1_800_000_000.0, 0.0)


def using(claim: str, name: str = "data") -> JsonObject:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    monkeypatch.setattr(csi_attachments, "_FIRST_LOOK_SECONDS", 0.02)
    (tmp_path / "d").mkdir()
    made = Host(tmp_path / "d")
    async with AsyncExitStack() as stack:
        await made.start(stack)
        try:
            yield made
        finally:
            await made.stop_agent()
            for point in mountinfo.mount_points_below(tmp_path):
                mounts.unmount(point)
            made.driver.detach_all()


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


async def test_a_pod_waits_until_its_volume_is_attached_and_the_node_says_what_it_uses(host: Host) -> None:
    host.claim("c")
    pod = host.pod("u1", using("c"))
    waiting = asyncio.create_task(host.volumes.prepare(pod))
    unique = CsiVolume(NAME, "c").unique_name
    await until(lambda: host.node()["status"].get("volumesInUse") == [unique])
    assert not waiting.done()
    host.attach("c")
    prepared = (await asyncio.wait_for(waiting, 10))["data"]
    assert mounts.is_mounted(prepared.path)
    assert size_of(prepared.path) > 10 * MEBIBYTE
    assert dict(host.driver.last("NodeStageVolume").publish_context) == {
        "device": str(host.driver.devices["c"])
    }
    await host.end("u1")
    await until(lambda: not host.node()["status"].get("volumesInUse"))


async def test_a_volume_that_is_not_attached_in_time_is_told(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_attachments, "WAIT_SECONDS", 0.1)
    host.claim("c")
    with pytest.raises(VolumeProblem) as problem:
        await host.volumes.prepare(host.pod("u1", using("c")))
    assert problem.value.event_message == (
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data], "
        "failed to process volumes=[]: context deadline exceeded"
    )


async def test_a_file_system_grows_while_it_is_used_and_the_claim_says_so(host: Host) -> None:
    host.claim("c", 320)
    host.attach("c", 320)
    path = (await host.volumes.prepare(host.pod("u1", using("c"))))["data"].path
    before = size_of(path)
    host.resize("c", 480)
    await host.look()
    assert size_of(path) > 1.3 * before
    status = host.get_claim("c")["status"]
    assert status["capacity"] == status["allocatedResources"] == {"storage": "480Mi"}
    assert "conditions" not in status
    assert "allocatedResourceStatuses" not in status
    text = 'MountVolume.NodeExpandVolume succeeded for volume "pv-c" n1'
    assert host.events == [
        ("Pod", "FileSystemResizeSuccessful", text),
        ("PersistentVolumeClaim", "FileSystemResizeSuccessful", text),
    ]
    request = host.driver.last("NodeExpandVolume")
    assert request.capacity_range.required_bytes == 480 * MEBIBYTE
    assert request.volume_path == str(path)
    assert request.staging_target_path
    await host.look()
    assert len(host.events) == 2
    await host.end("u1")


async def test_a_file_system_grows_before_the_pod_starts(host: Host) -> None:
    host.claim("c", 320)
    host.attach("c", 320)
    await host.volumes.prepare(host.pod("u1", using("c")))
    await host.end("u1")
    host.resize("c", 480)
    path = (await host.volumes.prepare(host.pod("u2", using("c"))))["data"].path
    assert size_of(path) > 400 * MEBIBYTE
    assert host.get_claim("c")["status"]["capacity"] == {"storage": "480Mi"}
    await host.end("u2")


@pytest.mark.parametrize(
    ("code", "state", "has_condition"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, "NodeResizeInfeasible", True),
        (grpc.StatusCode.INTERNAL, "NodeResizeInProgress", True),
        (grpc.StatusCode.UNAVAILABLE, "NodeResizeInProgress", False),
    ],
)
async def test_an_expansion_that_fails_is_tried_again_unless_it_is_infeasible(
    host: Host, code: grpc.StatusCode, state: str, has_condition: bool
) -> None:
    host.claim("c", 320)
    host.attach("c", 320)
    await host.volumes.prepare(host.pod("u1", using("c")))
    host.resize("c", 480)
    host.driver.refusals["NodeExpandVolume"] = (code, "no")
    await host.look()
    status = host.get_claim("c")["status"]
    assert status["allocatedResourceStatuses"] == {"storage": state}
    conditions = {found["type"]: found.get("message") for found in status["conditions"]}
    assert ("NodeResizeError" in conditions) == has_condition
    kind, reason, message = host.events[-1]
    assert (kind, reason) == ("Pod", "VolumeResizeFailed")
    assert message.startswith('NodeExpandVolume.NodeExpandVolume failed for volume "pv-c" : rpc error')
    del host.driver.refusals["NodeExpandVolume"]
    await host.look()
    grown = "480Mi" if state != "NodeResizeInfeasible" else "320Mi"
    assert host.get_claim("c")["status"]["capacity"] == {"storage": grown}
    await host.end("u1")


async def test_a_volume_that_grew_elsewhere_grows_here_without_a_word_to_the_claim(host: Host) -> None:
    """A shared volume: the other node has told the claim already."""
    host.claim("c", 320)
    host.attach("c", 320)
    await host.volumes.prepare(host.pod("u1", using("c")))
    host.resize("c", 480)
    claim = host.get_claim("c")
    status = {"phase": "Bound", "capacity": {"storage": "480Mi"}}
    host.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status})
    await host.look()
    assert host.driver.last("NodeExpandVolume").capacity_range.required_bytes == 480 * MEBIBYTE
    (record,) = map(csi_records.read, csi_records.files_of_pod("u1"))
    assert record.size == 480 * MEBIBYTE
    assert host.get_claim("c")["status"] == status
    await host.end("u1")


async def test_a_read_only_volume_is_not_grown_and_that_is_told_once(host: Host) -> None:
    host.claim("c", 320)
    host.attach("c", 320)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    await host.volumes.prepare(host.pod("u1", volume))
    assert host.driver.last("NodePublishVolume").readonly
    host.resize("c", 480)
    await host.look()
    await host.look()
    assert [reason for _, reason, _ in host.events] == ["FileSystemResizeFailed"] * 2
    assert not any(name == "NodeExpandVolume" for name, _ in host.driver.calls)
    await host.end("u1")


async def test_a_block_device_is_linked_bound_and_held_for_as_long_as_pods_use_it(host: Host) -> None:
    host.claim("c", 320, volumeMode="Block")
    host.attach("c", 320)
    first = (await host.volumes.prepare(host.pod("u1", using("c"))))["data"]
    await host.volumes.prepare(host.pod("u2", using("c")))
    assert isinstance(first, Prepared)
    assert first.is_block
    assert host.driver.last("NodePublishVolume").volume_capability.HasField("block")
    (record,) = map(csi_records.read, csi_records.files_of_pod("u1"))
    base = identity.ROOT / "plugins/kubernetes.io/csi/volumeDevices"
    assert first.path == base / "publish/pv-c/u1"
    assert csi_block.pod_link(record).readlink() == first.path
    assert csi_block.global_map(record) == base / "pv-c/dev/u1"
    device = host.driver.devices["c"]
    assert csi_block.global_map(record).stat().st_rdev == device.stat().st_rdev
    (holder,) = await loop_devices.devices_of(csi_block.global_map(record))
    host.resize("c", 480)
    await host.look()
    assert host.get_claim("c")["status"]["capacity"] == {"storage": "480Mi"}
    await host.end("u1")
    assert await loop_devices.devices_of(host.driver.devices["c"]) == [holder]
    await host.end("u2")
    assert await loop_devices.devices_of(host.driver.devices["c"]) == []
    assert not (base / "pv-c").exists()


async def test_a_device_that_a_restarted_driver_publishes_as_another_file_is_held_by_nobody_afterwards(
    host: Host, tmp_path: Path
) -> None:
    host.claim("c", 320, volumeMode="Block")
    host.attach("c", 320)
    await host.volumes.prepare(host.pod("u1", using("c")))
    device, other = host.driver.devices["c"], tmp_path / "device"
    os.mknod(other, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    host.driver.nodes["c"] = other
    await host.volumes.prepare(host.pod("u2", using("c")))
    assert [len(await loop_devices.devices_of(each)) for each in (device, other)] == [1, 1]
    await host.end("u1")
    assert [len(await loop_devices.devices_of(each)) for each in (device, other)] == [0, 1]
    await host.end("u2")
    assert await loop_devices.devices_of(other) == []


async def test_an_agent_that_was_killed_goes_on_with_growing_and_undoing(host: Host) -> None:
    host.claim("c", 320)
    host.claim("b", 320, volumeMode="Block")
    for name in ("c", "b"):
        host.attach(name, 320)
    await host.volumes.prepare(host.pod("u1", using("c"), using("b", "block")))
    await host.stop_agent()
    host.resize("c", 480)
    await host.start_agent()
    await host.look()
    assert host.get_claim("c")["status"]["capacity"] == {"storage": "480Mi"}
    await host.stop_agent()
    await host.start_agent()
    await host.end("u1")
    assert csi_records.all_files() == []
    assert mountinfo.mount_points_below(identity.ROOT) == []


async def test_an_inline_volume_gets_its_handle_its_secret_and_what_the_driver_asks_for(host: Host) -> None:
    volume = {
        "name": "scratch",
        "csi": {
            "driver": NAME,
            "fsType": "xfs",
            "volumeAttributes": {"size": "1"},
            "nodePublishSecretRef": {"name": "s"},
        },
    }
    with pytest.raises(VolumeProblem, match=r'"Ephemeral" not supported .* \(no CSIDriver object\)'):
        await host.volumes.prepare(host.pod("u0", volume))
    host.rules(volumeLifecycleModes=["Persistent"])
    with pytest.raises(VolumeProblem, match=r'only supports \["Persistent"\]'):
        await host.volumes.prepare(host.pod("u0", volume))
    host.rules(
        volumeLifecycleModes=["Persistent", "Ephemeral"],
        podInfoOnMount=True,
        tokenRequests=[{"audience": ""}, {"audience": "vault", "expirationSeconds": 600}],
    )
    with pytest.raises(VolumeProblem, match="fetching NodePublishSecretRef ns/s failed"):
        await host.volumes.prepare(host.pod("u1", volume))
    host.api.put(SECRETS, {"metadata": {"name": "s", "namespace": "ns"}, "data": {"key": "dmFsdWU="}})
    prepared = (await host.volumes.prepare(host.pod("u1", volume)))["scratch"]
    assert prepared.path == identity.ROOT / "pods/u1/volumes/kubernetes.io~csi/scratch/mount"
    request = host.driver.last("NodePublishVolume")
    assert request.volume_id == inline_handle("u1", "scratch")
    assert dict(request.secrets) == {"key": "value"}
    context = dict(request.volume_context)
    tokens = orjson.loads(context.pop("csi.storage.k8s.io/serviceAccount.tokens"))
    assert tokens["vault"] == {
        "token": "token for vault 600",
        "expirationTimestamp": "2027-01-15T08:00:00Z",
    }
    assert tokens[""]["token"] == "token for  3600"
    assert context == {
        "size": "1",
        "csi.storage.k8s.io/pod.name": "pod-u1",
        "csi.storage.k8s.io/pod.namespace": "ns",
        "csi.storage.k8s.io/pod.uid": "u1",
        "csi.storage.k8s.io/serviceAccount.name": "acc",
        "csi.storage.k8s.io/ephemeral": "true",
    }
    assert not any(name == "NodeStageVolume" for name, _ in host.driver.calls)
    await host.end("u1")


async def test_tokens_go_into_the_secrets_of_a_driver_that_wants_them_there_again_and_again(
    host: Host,
) -> None:
    host.rules(
        volumeLifecycleModes=["Ephemeral"],
        tokenRequests=[{"audience": "a"}],
        serviceAccountTokenInSecrets=True,
        requiresRepublish=True,
    )
    volume = {"name": "v", "csi": {"driver": NAME}}
    await host.volumes.prepare(host.pod("u1", volume))
    await host.look()
    calls = [request for name, request in host.driver.calls if name == "NodePublishVolume"]
    assert len(calls) == 2
    for request in calls:
        assert list(request.secrets) == ["csi.storage.k8s.io/serviceAccount.tokens"]
        assert dict(request.volume_context) == {}
    host.driver.refusals["NodePublishVolume"] = (grpc.StatusCode.INTERNAL, "no")
    await host.look()
    failed = 'MountVolume.SetUp failed for volume "v" : rpc error: code = Internal desc = no'
    assert host.events == [("Pod", "FailedMount", failed)]
    assert mounts.is_mounted(identity.ROOT / "pods/u1/volumes/kubernetes.io~csi/v/mount")
    await host.end("u1")


async def test_the_second_pod_of_a_volume_of_one_pod_is_refused(host: Host) -> None:
    host.claim("c", accessModes=["ReadWriteOncePod"])
    host.attach("c")
    await host.volumes.prepare(host.pod("u1", using("c")))
    with pytest.raises(VolumeProblem, match="ReadWriteOncePod access mode and is already in use") as problem:
        await host.volumes.prepare(host.pod("u2", using("c")))
    assert problem.value.event_message.startswith('MountVolume.SetUp failed for volume "pv-c" : volume uses')
    await host.end("u1")
    await host.volumes.prepare(host.pod("u3", using("c")))
    await host.end("u3")


@pytest.mark.parametrize(
    ("policy", "fs_type", "group"),
    [
        ("ReadWriteOnceWithFSType", "xfs", 2000),
        ("ReadWriteOnceWithFSType", "", 0),
        ("File", "", 2000),
        ("None", "xfs", 0),
    ],
)
async def test_the_drivers_policy_says_whether_a_volume_gets_the_pods_group(
    host: Host, policy: str, fs_type: str, group: int
) -> None:
    host.rules(fsGroupPolicy=policy)
    host.claim("c", csi={"fsType": fs_type})
    host.attach("c")
    pod = host.pod("u1", using("c"), securityContext={"fsGroup": 2000})
    path = (await host.volumes.prepare(pod))["data"].path
    assert path.stat().st_gid == group
    await host.end("u1")


async def test_a_claim_that_only_has_the_name_of_an_ephemeral_volume_is_not_used(host: Host) -> None:
    host.claim("pod-u1-data")
    with pytest.raises(VolumeProblem, match=r"PVC ns/pod-u1-data was not created for pod ns/pod-u1"):
        await host.volumes.prepare(host.pod("u1", {"name": "data", "ephemeral": {}}))


async def test_steps_that_fail_are_named_as_a_kubelet_names_them(host: Host) -> None:
    host.claim("c")
    host.claim("b", volumeMode="Block")
    for name in ("c", "b"):
        host.attach(name)
    for method, claim, step, reason in (
        ("NodeStageVolume", "c", "MountVolume.MountDevice", "FailedMount"),
        ("NodePublishVolume", "c", "MountVolume.SetUp", "FailedMount"),
        ("NodeStageVolume", "b", "MapVolume.SetUpDevice", "FailedMapVolume"),
        ("NodePublishVolume", "b", "MapVolume.MapPodDevice", "FailedMapVolume"),
    ):
        host.driver.refusals = {method: (grpc.StatusCode.INTERNAL, "no")}
        with pytest.raises(VolumeProblem) as problem:
            await host.volumes.prepare(host.pod("u1", using(claim)))
        text = f'{step} failed for volume "pv-{claim}" : rpc error: code = Internal desc = no'
        assert (problem.value.event_reason, problem.value.event_message) == (reason, text)
    host.driver.refusals = {}
    await host.end("u1")


async def test_statistics_are_those_of_the_driver_and_one_that_hangs_costs_only_its_own(host: Host) -> None:
    host.driver.capabilities = (csi_driver.STAGE, csi_driver.STATS, csi_driver.CONDITION)
    driver = host.csi.registry.get(NAME)
    assert driver is not None
    await driver.ask()
    host.claim("c")
    host.attach("c")
    path = (await host.volumes.prepare(host.pod("u1", using("c"))))["data"].path
    host.csi.stats.ask()
    await host.csi.stats.settle()
    (stats,) = host.csi.stats.of_pods()["u1"]
    assert stats["capacityBytes"] == size_of(path)
    assert stats["inodes"] == os.statvfs(path).f_files
    assert (stats["name"], stats["pvcRef"]) == ("data", {"name": "c", "namespace": "ns"})
    assert stats["volumeHealthStats"] == {"abnormal": True}
    assert ("Pod", "VolumeConditionAbnormal", "Volume data: worn out") in host.events
    summary: JsonObject = {"pods": [{"podRef": {"uid": "u1"}}, {"podRef": {"uid": "other"}}]}
    volume_stats.add_volumes(summary, host.csi.stats.of_pods())
    assert summary["pods"][0]["volume"] == [stats]
    assert "volume" not in summary["pods"][1]
    lines = volume_stats.metrics(host.csi.stats.of_pods()).splitlines()
    labels = '{namespace="ns",persistentvolumeclaim="c"}'
    assert f"kubelet_volume_stats_capacity_bytes{labels} {stats['capacityBytes']}" in lines
    assert f"kubelet_volume_stats_health_status_abnormal{labels} 1" in lines
    await host.end("u1")
    host.csi.stats.ask()
    assert host.csi.stats.of_pods() == {}


async def test_the_node_shows_ids_and_topology_of_its_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    host = Host(tmp_path)
    host.driver.topology = {"loop.example.com/rack": "r1", "zone": "b"}
    async with AsyncExitStack() as stack:
        await host.start(stack)
        await until(lambda: host.api.get(CSI_NODES, NODE) is not None)
        metadata = host.node()["metadata"]
        # A label that is there already is not changed: volumes may be bound to it.
        assert metadata["labels"] == {"zone": "a", "loop.example.com/rack": "r1"}
        ids = '{"loop.example.com":"loop-node"}'
        assert metadata["annotations"] == {"csi.volume.kubernetes.io/nodeid": ids}
        (host.registry / "loop.sock").unlink()
        await until(lambda: not host.node()["metadata"].get("annotations"))
        await host.stop_agent()


async def test_limits_follow_a_driver_that_asks_for_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csi_limits, "_LOOK_SECONDS", 0.05)
    await host.stop_agent()
    host.rules(nodeAllocatableUpdatePeriodSeconds=0)
    await host.start_agent()
    host.driver.most = 7

    def limit() -> Any:
        found = host.api.get(CSI_NODES, NODE) or {}
        return [driver.get("allocatable") for driver in found.get("spec", {}).get("drivers", ())]

    await until(lambda: limit() == [{"count": 7}])


async def test_a_label_that_a_node_must_not_set_keeps_no_driver_from_registering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    host = Host(tmp_path)
    host.driver.topology = {"node-restriction.kubernetes.io/x": "y"}

    def refuse(request: Any) -> StatusError | None:
        if request.method == "PATCH" and b"node-restriction" in (request.body or b""):
            return StatusError(403, "Forbidden", "is not allowed to modify labels")
        return None

    host.api.reactions.append(refuse)
    async with AsyncExitStack() as stack:
        await host.start(stack)
        await until(lambda: host.api.get(CSI_NODES, NODE) is not None)
        assert "csi.volume.kubernetes.io/nodeid" in host.node()["metadata"]["annotations"]
        await host.stop_agent()
