"""Calls that were interrupted, refused or repeated at an unlucky moment."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.xfspool import MIB, Driver, are_detached, needs_pools

from kubecore import mountinfo
from virtplane.storage.hostpath import images, locks, mounts, trees, volumes
from virtplane.storage.hostpath.configuration import PoolInfo
from virtplane.storage.hostpath.failures import Code, CsiFailure

pytestmark = needs_pools
SIZE = 256 * MIB


@pytest.fixture
def driver(folder: Path, tmp_path: Path) -> Iterator[Driver]:
    yield Driver(folder, "node1")
    for point in mountinfo.mount_points_below(tmp_path):
        mounts.unmount(point)


def test_a_driver_that_is_killed_while_it_writes_out_a_file_system_leaves_no_mount(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    driver.create("v", SIZE)
    staging = driver.stage("v", tmp_path / "s")
    table = Path("/proc/mounts").read_text().splitlines()
    [device] = [line.split()[0] for line in table if str(staging) in line]
    left = driver.pool.pending / ".left"
    left.mkdir()
    mounts.mount_device(Path(device), left, "xfs", ("nouuid",))
    driver.recover()
    assert not list(driver.pool.pending.iterdir())
    driver.unstage("v", staging)
    assert are_detached(folder)
    driver.call("DeleteVolume", {"volume_id": "v"})


def test_staging_goes_on_where_an_earlier_call_failed_after_mounting(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.create("v", SIZE)

    def fail(*_: object) -> None:
        raise images.ProgramFailed("killed")

    with monkeypatch.context() as patched:
        patched.setattr(images, "grow_file_system", fail)
        with pytest.raises(CsiFailure, match="killed"):
            driver.stage("v", tmp_path / "s")
    assert mounts.is_mounted(tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) != 0o777
    driver.stage("v", tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o777


@pytest.mark.parametrize("what", ["snapshot", "clone"])
def test_copies_of_directories_are_whole_only_once_they_are_on_the_disk(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    driver.create("v", form="directory")
    (folder / "v" / "file").write_text("x")

    def make() -> None:
        if what == "snapshot":
            driver.call("CreateSnapshot", {"name": "s", "source_volume_id": "v"})
        else:
            driver.create("c", form="directory", volume_content_source={"volume": {"volume_id": "v"}})

    def fail(path: Path) -> None:
        assert (path / "file").read_text() == "x"
        raise OSError("the disk is broken")

    with monkeypatch.context() as patched:
        patched.setattr(mounts, "sync_file_system", fail)
        with pytest.raises(CsiFailure, match="the disk is broken"):
            make()
    assert not driver.call("ListSnapshots").entries
    assert [entry.volume.volume_id for entry in driver.call("ListVolumes").entries] == ["v"]
    make()


def test_a_snapshot_that_takes_long_is_made_once_however_often_it_is_asked_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.create("v", form="directory")
    copying, go_on = threading.Event(), threading.Event()
    copies = []

    def slowly(source: Path, target: Path) -> None:
        copies.append(source)
        copying.set()
        assert go_on.wait(60)
        target.mkdir()

    monkeypatch.setattr(trees, "copy", slowly)
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.01)
    wanted = {"name": "s", "source_volume_id": "v"}
    first = threading.Thread(target=driver.call, args=("CreateSnapshot", wanted))
    first.start()
    try:
        assert copying.wait(60)
        with pytest.raises(CsiFailure, match="an operation for snapshot s is already in progress") as failure:
            driver.call("CreateSnapshot", wanted)
        assert failure.value.code is Code.ABORTED
    finally:
        go_on.set()
        first.join()
    assert driver.call("CreateSnapshot", wanted).snapshot.ready_to_use
    assert len(copies) == 1


def test_nobody_begins_to_use_an_image_while_it_is_copied_block_by_block(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.create("v", SIZE)

    def refuse(*_: object) -> None:
        raise images.CannotShare("no reflink")

    def copy(source: Path, target: Path) -> None:
        with pytest.raises(CsiFailure, match="already in progress"):
            driver.stage("v", tmp_path / "s")
        target.write_bytes(source.read_bytes()[:0])

    monkeypatch.setattr(images, "clone", refuse)
    monkeypatch.setattr(images, "copy", copy)
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.01)
    driver.call("CreateSnapshot", {"name": "s", "source_volume_id": "v"})
    driver.stage("v", tmp_path / "s")
    with pytest.raises(CsiFailure, match="cannot share blocks"):
        driver.call("CreateSnapshot", {"name": "t", "source_volume_id": "v"})


def test_what_is_not_found_is_deleted_only_where_all_pools_can_be_looked_at(folder: Path) -> None:
    info = PoolInfo(name="p", path=str(folder / "later"), snapshot_provider="reflink", claimed=True)
    driver = Driver(folder, "node1", info=info)
    for method, values in (
        ("DeleteVolume", {"volume_id": "pvc-1"}),
        ("DeleteSnapshot", {"snapshot_id": "snapshot-1"}),
    ):
        with pytest.raises(CsiFailure, match="is not known: the claim of storage pool p") as failure:
            driver.call(method, values)
        assert failure.value.code is Code.FAILED_PRECONDITION


def test_what_cannot_be_removed_hinders_neither_start_nor_others_and_goes_later(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("v", "w", "x"):
        driver.create(name, form="directory")
    (folder / "v" / "file").write_text("x")

    remove = trees.remove

    def refuse(path: Path) -> None:
        if (path / "gone" / "file").exists():
            raise OSError(f"{path} is stubborn")
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(trees, "remove", refuse)
        with pytest.raises(CsiFailure, match="is stubborn"):
            driver.call("DeleteVolume", {"volume_id": "v"})
        assert not (folder / "v").exists()
        driver.recover()
        driver.call("DeleteVolume", {"volume_id": "w"})
        assert [each.volume.volume_id for each in driver.call("ListVolumes").entries] == ["v", "x"]
    assert list(driver.pool.pending.iterdir())
    driver.call("DeleteVolume", {"volume_id": "x"})
    assert not list(driver.pool.pending.iterdir())
    driver.call("DeleteVolume", {"volume_id": "v"})


def test_a_new_workplace_that_is_taken_for_an_abandoned_one_is_made_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir
    taken: list[Path] = []

    def mkdir(path: Path, mode: int = 0o777, **more: bool) -> None:
        made(path, mode, **more)
        if path.parent == driver.pool.pending and not taken:
            taken.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    driver.create("v", form="directory")
    assert taken
    assert volumes.find({"p": driver.pool}, "v") is not None


def test_a_damaged_record_hides_no_other_snapshot(driver: Driver) -> None:
    driver.create("v", form="directory")
    for name in ("s", "t"):
        driver.call("CreateSnapshot", {"name": name, "source_volume_id": "v"})
    assert driver.pool.snapshots is not None
    (driver.pool.snapshots / "s" / "record.json").write_text("{")
    assert [each.snapshot.snapshot_id for each in driver.call("ListSnapshots").entries] == ["t"]


def test_a_volume_that_was_bound_before_its_options_were_set_gets_them(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    driver.create("v", form="directory")
    (tmp_path / "t").mkdir()
    mounts.bind(folder / "v", tmp_path / "t")  # the driver was killed here
    target = driver.publish("v", tmp_path / "none", tmp_path / "t", readonly=True)
    with pytest.raises(OSError, match="Read-only"):
        (target / "file").write_text("x")
    assert os.statvfs(target).f_flag & os.ST_NODEV
    assert mountinfo.mount_points().count(target) == 1
