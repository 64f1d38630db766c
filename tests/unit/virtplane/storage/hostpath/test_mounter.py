"""What mounts a pool's claim on its node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.xfspool import MIB, needs_pools

from kubecore import mountinfo
from virtplane.storage.hostpath import mounter, mounts
from virtplane.storage.hostpath.images import ProgramFailed

pytestmark = needs_pools


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A loop device without contents."""
    image = tmp_path / "claim.img"
    with image.open("wb") as file:
        file.truncate(512 * MIB)
    done = subprocess.run(
        ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
    )
    path = Path(done.stdout.strip())
    try:
        yield path
    finally:
        for point in mountinfo.mount_points_below(tmp_path):
            mounts.unmount(point)
        subprocess.run(["losetup", "--detach", str(path)], check=True)


@pytest.mark.feature("STO-65")
def test_an_empty_device_gets_a_file_system_once(device: Path, tmp_path: Path) -> None:
    target = tmp_path / "host" / "var" / "pool" / "csi"
    mounter.mount_pool(device, target)
    (target / "volume").write_text("kept")
    mounter.mount_pool(device, target)
    assert mountinfo.mount_points().count(target) == 1
    arguments = ["--storagePoolPath", str(device), "--mountPath", "/var/pool/csi"]
    assert mounter.main([*arguments, "--hostPath", str(tmp_path / "host"), "--unmount"]) == 0
    assert not mounts.is_mounted(target)
    mounter.mount_pool(device, target)
    assert (target / "volume").read_text() == "kept"


def test_a_device_with_anything_else_on_it_is_left_alone(device: Path, tmp_path: Path) -> None:
    subprocess.run(["mkswap", str(device)], check=True, capture_output=True)
    with pytest.raises(ProgramFailed, match="holds swap, not a file system"):
        mounter.mount_pool(device, tmp_path / "csi")
    assert not mounts.is_mounted(tmp_path / "csi")


def test_a_folder_is_bound(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    mounter.mount_pool(source, tmp_path / "csi")
    try:
        assert (tmp_path / "csi" / "file").read_text() == "x"
    finally:
        mounts.unmount(tmp_path / "csi")


def test_a_file_system_whose_making_was_killed_is_made_again(device: Path, tmp_path: Path) -> None:
    subprocess.run(["mkfs.xfs", "-q", str(device)], check=True, capture_output=True)
    with device.open("r+b") as file:
        file.seek(126)
        file.write(b"\x01")  # as mkfs writes it first
    mounter.mount_pool(device, tmp_path / "csi")
    assert mounts.is_mounted(tmp_path / "csi")
