"""Making the pool's file, and letting it grow."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kindling.cluster import storage_pool
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance
from kubecore import loop_devices

pytestmark = pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="needs xfsprogs")
_MIB = 2**20


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setattr(storage_pool, "_cannot_mount", lambda: "")
    return Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))


def _ensure(instance: Instance, size: int | None, said: list[str] | None = None) -> bool:
    return storage_pool.ensure(instance, size, (said if said is not None else []).append)


def test_a_pool_has_the_size_that_was_asked_for_and_takes_little_of_it(instance: Instance) -> None:
    assert _ensure(instance, 600 * _MIB)
    status = storage_pool.pool_file(instance).stat()
    assert status.st_size == 600 * _MIB
    assert status.st_blocks * 512 < 100 * _MIB
    assert storage_pool.pool_file(instance).read_bytes()[:4] == b"XFSB"


def test_a_pool_without_a_size_may_take_most_of_the_free_space(instance: Instance) -> None:
    assert _ensure(instance, None)
    free = shutil.disk_usage(instance.state).free
    assert 0.5 * free < storage_pool.pool_file(instance).stat().st_size < free


def test_size_zero_makes_no_pool_and_a_cluster_without_one_stays_so(instance: Instance) -> None:
    assert not _ensure(instance, 0)
    assert not _ensure(replace(instance, wants_storage=False), None)
    assert list(instance.state.iterdir()) == []


def test_a_pool_grows_and_never_shrinks(instance: Instance) -> None:
    _ensure(instance, 512 * _MIB)
    assert _ensure(instance, 700 * _MIB)
    assert storage_pool.pool_file(instance).stat().st_size == 700 * _MIB
    with pytest.raises(SetupError, match="XFS cannot shrink"):
        _ensure(instance, 600 * _MIB)
    assert _ensure(instance, None)
    assert storage_pool.pool_file(instance).stat().st_size == 700 * _MIB


def test_a_pool_too_small_for_a_file_system_is_refused(instance: Instance) -> None:
    with pytest.raises(SetupError, match="512Mi or more"):
        _ensure(instance, 100 * _MIB)
    assert list(instance.state.iterdir()) == []


def test_what_an_interrupted_start_left_is_replaced(instance: Instance) -> None:
    (instance.state / ".pool.img.new").write_text("half")
    assert _ensure(instance, 512 * _MIB)
    assert [path.name for path in instance.state.iterdir()] == ["pool.img"]


def test_a_machine_without_xfs_starts_without_a_pool_and_says_why(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_pool, "_cannot_mount", lambda: "the kernel cannot mount XFS")
    said: list[str] = []
    assert not _ensure(instance, None, said)
    assert said == ["no storage pool: the kernel cannot mount XFS"]
    with pytest.raises(SetupError, match="cannot mount XFS"):
        _ensure(instance, 512 * _MIB)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts and loop devices need root")
def test_a_mounted_pool_grows_and_is_released_with_the_loop_devices_of_its_volumes(
    instance: Instance,
) -> None:
    file, mounted = storage_pool.pool_file(instance), instance.state / "mounted"
    mounted.mkdir()
    _ensure(instance, 512 * _MIB)
    subprocess.run(["mount", "-o", "loop", str(file), str(mounted)], check=True)
    try:
        [pool] = loop_devices.of_file(file.stat())
        _ensure(instance, 600 * _MIB)
        assert Path(f"/sys/block/loop{pool}/size").read_text() == f"{600 * _MIB // 512}\n"
        volume = mounted / "disk"
        volume.write_bytes(bytes(_MIB))
        subprocess.run(["losetup", "--find", str(volume)], check=True)
        assert len(loop_devices.of_file_system(pool)) == 1
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        storage_pool.release(instance)
    assert not loop_devices.of_file(file.stat())
