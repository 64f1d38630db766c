"""Image volumes on a real XFS: sizes that hold, growth, copies, and loop devices."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.xfspool import (
    DEVICE,
    FILES,
    GIB,
    MIB,
    Driver,
    are_detached,
    attached,
    detach_all,
    needs_pools,
    xfs_pool,
)

from kubecore import mountinfo
from virtplane.storage.hostpath import mounts
from virtplane.storage.hostpath.failures import Code, CsiFailure

pytestmark = needs_pools

SHARED_FILES = {"mount": {}, "access_mode": {"mode": 5}}
SHARED_DEVICE = {"block": {}, "access_mode": {"mode": 5}}


@pytest.fixture
def driver(folder: Path, tmp_path: Path) -> Iterator[Driver]:
    yield Driver(folder, "node1")
    _undo(tmp_path, folder)


@pytest.fixture
def two(folder: Path, tmp_path: Path) -> Iterator[tuple[Driver, Driver]]:
    """Drivers of two nodes of one machine, with one shared pool."""
    yield Driver(folder, "node1", shared=True), Driver(folder, "node2", shared=True)
    _undo(tmp_path, folder)


def _undo(mounted: Path, pool: Path) -> None:
    for point in mountinfo.mount_points_below(mounted):
        mounts.unmount(point)
    detach_all(pool)


def _size(device: Path) -> int:
    descriptor = os.open(device, os.O_RDONLY)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_volume_holds_what_was_asked_for_and_no_more(driver: Driver, tmp_path: Path, kind: str) -> None:
    capability = {"mount": {"fs_type": kind}, "access_mode": {"mode": 1}}
    volume = driver.create("v", 256 * MIB, capability)
    assert volume.capacity_bytes == 256 * MIB
    staging = driver.stage("v", tmp_path / "s", capability)
    target = driver.publish("v", staging, tmp_path / "t", capability)
    space = os.statvfs(target)
    assert 256 * MIB <= space.f_bavail * space.f_frsize <= 384 * MIB
    assert target.stat().st_mode & 0o777 == 0o777
    with (target / "all").open("wb") as file, pytest.raises(OSError, match="No space left") as full:
        while True:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, 16 * MIB)
    assert full.value.errno == errno.ENOSPC
    stats = driver.call("NodeGetVolumeStats", {"volume_id": "v", "volume_path": str(target)})
    assert stats.usage[0].total == space.f_blocks * space.f_frsize
    assert not stats.usage[0].available or stats.usage[0].available < 16 * MIB
    pool = driver.pool.space()
    assert pool.f_bavail * pool.f_frsize > 4 * GIB


def test_a_new_volume_takes_next_to_no_space(driver: Driver) -> None:
    driver.create("big", 6 * GIB)
    assert driver.pool.image("big").stat().st_blocks * 512 < 100 * MIB


def test_a_snapshot_has_what_was_written_before_it_and_a_clone_too(driver: Driver, tmp_path: Path) -> None:
    driver.create("v")
    staging = driver.stage("v", tmp_path / "s")
    (staging / "file").write_text("before")  # not synced: it is in memory only
    made = driver.call("CreateSnapshot", {"name": "snap", "source_volume_id": "v"}).snapshot
    assert made.ready_to_use
    assert made.size_bytes == GIB
    (staging / "file").write_text("after")
    source: dict[str, Any] = {"volume_content_source": {"snapshot": {"snapshot_id": "snap"}}}
    driver.create("restored", 2 * GIB, **source)
    driver.create("cloned", volume_content_source={"volume": {"volume_id": "v"}})
    restored = driver.stage("restored", tmp_path / "r")
    cloned = driver.stage("cloned", tmp_path / "c")
    assert (restored / "file").read_text() == "before"
    assert (cloned / "file").read_text() == "after"
    space = os.statvfs(restored)
    assert space.f_blocks * space.f_frsize >= 2 * GIB
    driver.call("DeleteSnapshot", {"snapshot_id": "snap"})
    assert not list(driver.call("ListSnapshots").entries)
    assert (restored / "file").read_text() == "before"


def test_volumes_grow_while_they_are_used(driver: Driver, tmp_path: Path) -> None:
    driver.create("fs", 512 * MIB)
    driver.create("dev", 64 * MIB, DEVICE)
    staging = driver.stage("fs", tmp_path / "s")
    device = driver.publish("dev", driver.stage("dev", tmp_path / "d", DEVICE), tmp_path / "t", DEVICE)
    for name, path in (("fs", staging), ("dev", device)):
        wanted = {"volume_id": name, "capacity_range": {"required_bytes": 2 * GIB}}
        answer = driver.call("ControllerExpandVolume", wanted)
        assert (answer.capacity_bytes, answer.node_expansion_required) == (2 * GIB, True)
        grown = driver.call(
            "NodeExpandVolume", {**wanted, "volume_path": str(path), "staging_target_path": str(staging)}
        )
        assert grown.capacity_bytes == 2 * GIB
    space = os.statvfs(staging)
    assert space.f_blocks * space.f_frsize >= 2 * GIB
    assert _size(device) == 2 * GIB


def test_a_node_grows_a_volume_that_the_controller_of_another_node_was_asked_for(
    driver: Driver, tmp_path: Path
) -> None:
    other = Driver(tmp_path / "elsewhere", "node2")
    driver.create("v", 64 * MIB, DEVICE)
    device = driver.publish("v", driver.stage("v", tmp_path / "s", DEVICE), tmp_path / "t", DEVICE)
    wanted = {"volume_id": "v", "capacity_range": {"required_bytes": 128 * MIB}}
    assert other.call("ControllerExpandVolume", wanted).node_expansion_required
    driver.call("NodeExpandVolume", {**wanted, "volume_path": str(device)})
    assert _size(device) == 128 * MIB


def test_two_nodes_share_one_loop_device_and_the_last_detaches_it(
    two: tuple[Driver, Driver], folder: Path, tmp_path: Path
) -> None:
    first, second = two
    first.create("v", 64 * MIB, SHARED_DEVICE)
    one = first.publish("v", first.stage("v", tmp_path / "s1", SHARED_DEVICE), tmp_path / "t1", SHARED_DEVICE)
    other = second.publish(
        "v", second.stage("v", tmp_path / "s2", SHARED_DEVICE), tmp_path / "t2", SHARED_DEVICE
    )
    assert one.stat().st_rdev == other.stat().st_rdev
    assert len(attached(folder)) == 1
    with one.open("r+b", buffering=0) as writer, other.open("rb", buffering=0) as reader:
        writer.write(b"shared" + bytes(506))
        assert reader.read(6) == b"shared"
    first.unpublish("v", one)
    first.unstage("v", tmp_path / "s1")
    assert len(attached(folder)) == 1
    with other.open("rb") as reader:
        assert reader.read(6) == b"shared"
    second.unpublish("v", other)
    second.unstage("v", tmp_path / "s2")
    assert are_detached(folder)


def test_two_nodes_share_one_file_system(two: tuple[Driver, Driver], folder: Path, tmp_path: Path) -> None:
    first, second = two
    first.create("v", capability=SHARED_FILES)
    one = first.stage("v", tmp_path / "s1", SHARED_FILES)
    other = second.stage("v", tmp_path / "s2", SHARED_FILES)
    (one / "file").write_text("shared")
    assert (other / "file").read_text() == "shared"
    first.unstage("v", one)
    assert (other / "file").read_text() == "shared"
    second.unstage("v", other)
    assert are_detached(folder)


def test_another_machine_does_not_mount_a_file_system_a_second_time(
    two: tuple[Driver, Driver], tmp_path: Path
) -> None:
    first, second = two
    first.create("v", capability=SHARED_FILES)
    first.stage("v", tmp_path / "s1", SHARED_FILES)
    (first.pool.record_folder("v") / "users" / "node1").write_text("another boot")
    with pytest.raises(CsiFailure, match="mounted on node1, which is another machine") as failure:
        second.stage("v", tmp_path / "s2", SHARED_FILES)
    assert failure.value.code is Code.FAILED_PRECONDITION


def test_what_a_tenant_writes_to_a_device_is_never_mounted(driver: Driver, tmp_path: Path) -> None:
    driver.create("dev", 512 * MIB, DEVICE)
    with pytest.raises(CsiFailure, match="cannot publish a block volume as non-block volume"):
        driver.stage("dev", tmp_path / "s", FILES)
    driver.call("CreateSnapshot", {"name": "snap", "source_volume_id": "dev"})
    for source in ({"snapshot": {"snapshot_id": "snap"}}, {"volume": {"volume_id": "dev"}}):
        with pytest.raises(CsiFailure, match="the volume mode of the source is Block"):
            driver.create("fs", volume_content_source=source)
    driver.create("fs")
    with pytest.raises(CsiFailure, match="cannot publish a non-block volume as block volume"):
        driver.stage("fs", tmp_path / "s", DEVICE)


def test_a_volume_in_use_is_not_deleted(driver: Driver, folder: Path, tmp_path: Path) -> None:
    driver.create("fs")
    driver.create("dev", 64 * MIB, DEVICE)
    staging = driver.stage("fs", tmp_path / "s")
    target = driver.publish("dev", driver.stage("dev", tmp_path / "d", DEVICE), tmp_path / "t", DEVICE)
    with target.open("rb"):
        for name in ("fs", "dev"):
            with pytest.raises(CsiFailure, match=f"volume {name} is still in use on node1"):
                driver.call("DeleteVolume", {"volume_id": name})
    assert len(attached(folder)) == 2
    driver.unstage("fs", staging)
    driver.unpublish("dev", target)
    driver.unstage("dev", tmp_path / "d")
    for name in ("fs", "dev"):
        driver.call("DeleteVolume", {"volume_id": name})
    assert are_detached(folder)


def fill(pool: Path) -> Path:
    """Use up a pool's space; gives the file that has it."""
    filler = pool / ".filler"
    with filler.open("wb") as file:
        step = 64 * MIB
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
            except OSError:
                step //= 2
    return filler


@pytest.mark.parametrize("capability", [DEVICE, FILES], ids=["device", "files"])
def test_a_full_pool_fails_its_writers_and_nothing_else(tmp_path: Path, capability: dict[str, Any]) -> None:
    with xfs_pool(tmp_path, 320 * MIB) as disk:
        driver = Driver(disk, "node1")
        file = {}
        for name in ("one", "other"):
            driver.create(name, 256 * MIB, capability)
            staging = driver.stage(name, tmp_path / f"s-{name}", capability)
            target = driver.publish(name, staging, tmp_path / name, capability)
            file[name] = target if capability is DEVICE else target / "file"
        mine = os.open(file["other"], os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(mine, b"1" * MIB, 0)
            os.fsync(mine)
            filler = fill(disk)
            with file["one"].open("wb") as full, pytest.raises(OSError, match=r"space|Input/output"):
                for _ in range(200):
                    full.write(b"x" * MIB)
                    os.fsync(full.fileno())
            os.pwrite(mine, b"2" * MIB, 0)  # its own blocks it has
            os.fsync(mine)
        finally:
            os.close(mine)
        driver.unpublish("one", tmp_path / "one")
        driver.unstage("one", tmp_path / "s-one")
        driver.call("DeleteVolume", {"volume_id": "one"})
        filler.unlink()
        driver.unpublish("other", tmp_path / "other")
        driver.unstage("other", tmp_path / "s-other")
        driver.stage("other", tmp_path / "s-other", capability)
        driver.publish("other", tmp_path / "s-other", tmp_path / "other", capability)
        with file["other"].open("r+b") as kept:
            assert kept.read(MIB) == b"2" * MIB
            kept.write(b"3" * MIB)
            os.fsync(kept.fileno())


def test_pods_start_on_a_full_pool(tmp_path: Path) -> None:
    with xfs_pool(tmp_path, 320 * MIB) as disk:
        driver = Driver(disk, "node1")
        for number in range(40):
            driver.create(f"v{number}", 16 * MIB, DEVICE)
        fill(disk)
        with pytest.raises(CsiFailure) as failure:
            driver.create("more", 256 * MIB)
        assert failure.value.code is Code.RESOURCE_EXHAUSTED
        for number in range(40):
            driver.stage(f"v{number}", tmp_path / f"s{number}", DEVICE)
        for number in range(40):
            driver.unstage(f"v{number}", tmp_path / f"s{number}")
            driver.call("DeleteVolume", {"volume_id": f"v{number}"})
        assert list(driver.pool.list_volumes()) == []
