"""Volumes of one node (ReadWriteOnce): no second node gets one while the first may write to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.xfspool import DEVICE, Driver, are_detached, detach_all, needs_pools

from kubecore import mountinfo
from virtplane.storage.hostpath import mounts, usage
from virtplane.storage.hostpath.failures import Code, CsiFailure

pytestmark = needs_pools


@pytest.fixture
def two(folder: Path, tmp_path: Path) -> Iterator[tuple[Driver, Driver]]:
    """Drivers of two nodes of one machine, with one shared pool."""
    # Characters that options of mounts must not have.
    folder = folder / "a pool: one, two"
    yield Driver(folder, "node1", shared=True), Driver(folder, "node2", shared=True)
    for point in mountinfo.mount_points_below(tmp_path):
        mounts.unmount(point)
    detach_all(folder)


def test_a_file_system_is_refused_elsewhere_while_anything_has_it_mounted(
    two: tuple[Driver, Driver], tmp_path: Path
) -> None:
    first, second = two
    first.create("v")
    first.stage("v", tmp_path / "s1")
    target = first.publish("v", tmp_path / "s1", tmp_path / "t1")
    with pytest.raises(CsiFailure, match="one node at a time, and is in use on node1") as failure:
        second.stage("v", tmp_path / "s2")
    assert failure.value.code is Code.FAILED_PRECONDITION
    first.stage("v", tmp_path / "s1")  # a call that is repeated
    first.unstage("v", tmp_path / "s1")
    # A pod still has it, and its node knows: the driver was killed before it took the name back.
    (first.pool.record_folder("v") / "users" / "node1").write_text(usage.boot())
    with pytest.raises(CsiFailure, match="in use on node1"):
        second.stage("v", tmp_path / "s2")
    (target / "file").write_text("kept")
    first.unpublish("v", target)
    assert (second.stage("v", tmp_path / "s2") / "file").read_text() == "kept"


def test_a_file_system_is_free_once_its_node_is_switched_off(
    two: tuple[Driver, Driver], tmp_path: Path
) -> None:
    first, second = two
    first.create("v")
    mounts.unmount(first.stage("v", tmp_path / "s1"))  # as the end of the node's mount namespace does
    assert set(usage.users(first.pool, "v")) == {"node1"}
    staging = second.stage("v", tmp_path / "s2")
    assert set(usage.users(first.pool, "v")) == {"node2"}
    # Switched on again, it tidies up what it had, and the other keeps it.
    first.unstage("v", tmp_path / "s1")
    (staging / "file").write_text("kept")
    with pytest.raises(CsiFailure, match="in use on node2"):
        first.stage("v", tmp_path / "s1")


def test_a_device_is_refused_elsewhere_until_it_is_unstaged(
    two: tuple[Driver, Driver], tmp_path: Path
) -> None:
    first, second = two
    first.create("v", capability=DEVICE)
    for _ in range(2):  # a call that is repeated
        first.stage("v", tmp_path / "s1", DEVICE)
    target = first.publish("v", tmp_path / "s1", tmp_path / "t1", DEVICE)
    with pytest.raises(CsiFailure, match="one node at a time, and is in use on node1") as failure:
        second.stage("v", tmp_path / "s2", DEVICE)
    assert failure.value.code is Code.FAILED_PRECONDITION
    first.unpublish("v", target)
    first.unstage("v", tmp_path / "s1")
    second.stage("v", tmp_path / "s2", DEVICE)
    assert not mounts.is_mounted(tmp_path / "s1")
    second.unstage("v", tmp_path / "s2")
    assert are_detached(Path(first.pool.info.path))
    first.call("DeleteVolume", {"volume_id": "v"})


def test_a_device_is_free_once_its_node_is_switched_off(two: tuple[Driver, Driver], tmp_path: Path) -> None:
    first, second = two
    first.create("v", capability=DEVICE)
    mounts.unmount(first.stage("v", tmp_path / "s1", DEVICE))  # as the end of the node's mount namespace does
    second.stage("v", tmp_path / "s2", DEVICE)
    first.unstage("v", tmp_path / "s1")
    with pytest.raises(CsiFailure, match="in use on node2"):
        first.stage("v", tmp_path / "s1", DEVICE)
    target = second.publish("v", tmp_path / "s2", tmp_path / "t2", DEVICE)
    assert target.is_block_device()


def test_a_device_of_many_nodes_is_for_all_of_them(two: tuple[Driver, Driver], tmp_path: Path) -> None:
    many = {"block": {}, "access_mode": {"mode": 5}}
    first, second = two
    first.create("v", capability=many)
    first.stage("v", tmp_path / "s1", many)
    second.stage("v", tmp_path / "s2", many)
