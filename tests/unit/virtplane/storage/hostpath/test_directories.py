"""Directory volumes, as upstream has them, and what tenants put into them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.xfspool import DEVICE, FILES, GIB, Driver, needs_pools

from kubecore import mountinfo
from virtplane.storage.hostpath import mounts, trees
from virtplane.storage.hostpath.failures import CsiFailure

pytestmark = needs_pools


@pytest.fixture
def driver(folder: Path, tmp_path: Path) -> Iterator[Driver]:
    yield Driver(folder, "node1")
    for point in mountinfo.mount_points_below(tmp_path):
        mounts.unmount(point)


@pytest.mark.feature("STO-67")
def test_a_class_without_a_format_gives_upstreams_directories(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    values = {
        "name": "pvc-1",
        "volume_capabilities": [FILES],
        "capacity_range": {"required_bytes": GIB},
        "parameters": {"storagePool": "p"},
        "accessibility_requirements": {"requisite": [{"segments": {"topology.hostpath.csi/node": "node1"}}]},
    }
    volume = driver.call("CreateVolume", values).volume
    assert volume.capacity_bytes == os.statvfs(folder).f_blocks * 4096 // (1 << 20) * (1 << 20)
    assert dict(volume.accessible_topology[0].segments) == {"topology.hostpath.csi/node": "node1"}
    assert dict(volume.volume_context) == {"storagePool": "p"}
    assert stat.S_IMODE((folder / "pvc-1").stat().st_mode) == 0o777
    target = driver.publish("pvc-1", tmp_path / "none", tmp_path / "t", readonly=True)
    (folder / "pvc-1" / "file").write_text("x")
    assert (target / "file").read_text() == "x"
    with pytest.raises(OSError, match="Read-only"):
        (target / "file").write_text("y")
    driver.unpublish("pvc-1", target)
    assert not target.exists()
    driver.call("DeleteVolume", {"volume_id": "pvc-1"})
    assert not (folder / "pvc-1").exists()


def test_directories_are_no_devices(driver: Driver) -> None:
    with pytest.raises(CsiFailure, match=r"^must have mount access type$"):
        driver.create("v", capability=DEVICE, form="directory")


def test_a_volume_of_the_upstream_driver_is_known(driver: Driver, folder: Path, tmp_path: Path) -> None:
    (folder / "pvc-old").mkdir()
    (folder / "pvc-old" / "file").write_text("old")
    assert [entry.volume.volume_id for entry in driver.call("ListVolumes").entries] == ["pvc-old"]
    target = driver.publish("pvc-old", tmp_path / "none", tmp_path / "t")
    assert (target / "file").read_text() == "old"
    driver.unpublish("pvc-old", target)
    driver.call("DeleteVolume", {"volume_id": "pvc-old"})
    assert not (folder / "pvc-old").exists()


def test_inline_volumes_end_with_their_pod_and_others_do_not(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    context = {"volume_context": {"csi.storage.k8s.io/ephemeral": "true"}}
    target = driver.publish("csi-inline", tmp_path / "none", tmp_path / "t", **context)
    (target / "file").write_text("x")
    driver.unpublish("csi-inline", target)
    assert not (folder / "csi-inline").exists()
    driver.create("csi-lasting", form="directory")
    target = driver.publish("csi-lasting", tmp_path / "none", tmp_path / "t")
    (target / "file").write_text("x")
    driver.unpublish("csi-lasting", target)
    assert (folder / "csi-lasting" / "file").read_text() == "x"
    with pytest.raises(CsiFailure, match="is not an inline one"):
        driver.publish("csi-lasting", tmp_path / "none", tmp_path / "t", **context)


def test_snapshots_and_clones_copy_files_with_all_that_belongs_to_them(driver: Driver, folder: Path) -> None:
    driver.create("v", form="directory")
    source = folder / "v"
    (source / "sub").mkdir(mode=0o750)
    (source / "sub" / "file").write_text("data")
    (source / "sub" / "file").chmod(0o640)
    os.chown(source / "sub" / "file", 107, 108)
    os.setxattr(source / "sub" / "file", "user.test", b"1")
    (source / "same").hardlink_to(source / "sub" / "file")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "fifo")
    os.mknod(source / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    driver.call("CreateSnapshot", {"name": "snap", "source_volume_id": "v"})
    (source / "sub" / "file").write_text("later")
    driver.create("copy", form="directory", volume_content_source={"snapshot": {"snapshot_id": "snap"}})
    copy = folder / "copy"
    status = (copy / "sub" / "file").stat()
    assert (copy / "sub" / "file").read_text() == "data"
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), status.st_nlink) == (
        107,
        108,
        0o640,
        2,
    )
    assert os.getxattr(copy / "sub" / "file", "user.test") == b"1"
    assert (copy / "same").samefile(copy / "sub" / "file")
    assert (copy / "link").readlink() == Path("/etc/passwd")
    assert stat.S_ISFIFO((copy / "fifo").stat().st_mode)
    assert not (copy / "device").exists()


def test_a_copy_never_leaves_the_volume_whatever_is_swapped_meanwhile(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    """A tenant swaps a directory for a link to somebody else's while root copies."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    driver.create("v", form="directory")
    source = folder / "v"
    (source / "real").mkdir()
    (source / "real" / "file").write_text("own")
    (source / "link").symlink_to(secret)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (source / "real").rename(source / "aside")
            (source / "link").rename(source / "real")
            (source / "real").rename(source / "link")
            (source / "aside").rename(source / "real")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(100):
            trees.copy(source, tmp_path / f"copy{number}")
    finally:
        stop.set()
        swapping.join()
    found = {path.read_text() for path in tmp_path.glob("copy*/*/file") if not path.parent.is_symlink()}
    assert found == {"own"}


def test_trees_deeper_than_any_recursion_are_refused_and_removed(driver: Driver, folder: Path) -> None:
    driver.create("v", form="directory")
    descriptor = os.open(folder / "v", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    with pytest.raises(CsiFailure, match="nested more than 512 deep"):
        driver.call("CreateSnapshot", {"name": "snap", "source_volume_id": "v"})
    assert not list(driver.call("ListSnapshots").entries)
    driver.call("DeleteVolume", {"volume_id": "v"})
    assert not (folder / "v").exists()
    assert list(driver.pool.pending.iterdir()) == []
