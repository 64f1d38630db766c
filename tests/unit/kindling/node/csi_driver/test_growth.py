"""File systems and block devices of a real CSI driver that grow while pods use them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import grpc
import pytest
from tests.unit.kindling.node.csi_driver.conftest import MEBIBYTE, Host, size_of, using

from kindling.node.pods import identity
from kindling.node.volumes import csi_block, csi_records, loop_devices
from kindling.node.volumes.manager import Prepared
from kubecore import mountinfo
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS

pytestmark = [pytest.mark.host, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


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
