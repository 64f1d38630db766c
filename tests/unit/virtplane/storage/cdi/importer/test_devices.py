"""Imports into block devices."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.image_server import ServedFile, serving
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Volume

pytestmark = pytest.mark.host


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A block device of 16 MiB with something on it."""
    file = tmp_path / "device"
    file.write_bytes(b"\xff" * (16 * MIB))
    command = ["losetup", "--find", "--show", str(file)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    yield Path(name)
    subprocess.run(["losetup", "--detach", name], check=True)


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
async def test_disk_replaces_everything_on_the_device(
    volume: Volume, device: Path, raw_disk: bytes, converted: Callable[..., bytes], disk_format: str
) -> None:
    on_device = Volume(replace(volume.paths, device=device))
    content = raw_disk if disk_format == "raw" else converted("qcow2")
    async with serving(ServedFile(content)) as address:
        ended = await on_device.run("http", address, FILESYSTEM_OVERHEAD="0")
    assert ended.code == 0, ended.text
    written = device.read_bytes()
    assert written[: len(raw_disk)] == raw_disk
    assert not written[len(raw_disk) :].strip(b"\0")


async def test_device_that_is_too_small_is_told(
    volume: Volume, device: Path, converted: Callable[..., bytes]
) -> None:
    on_device = Volume(replace(volume.paths, device=device))
    made = converted("qcow2")
    large = bytearray(made)
    large[24:32] = (17 * MIB).to_bytes(8, "big")
    async with serving(ServedFile(bytes(large))) as address:
        ended = await on_device.run("http", address)
    assert ended.code == 1
    assert (
        f"virtual image size {17 * MIB} is larger than the reported available storage {16 * MIB}"
        in ended.text
    )


async def test_blank_device_is_zeros_only_where_allocation_is_asked_for(volume: Volume, device: Path) -> None:
    on_device = Volume(replace(volume.paths, device=device))
    ended = await on_device.run("none", "", PREALLOCATION="true")
    assert ended.code == 0, ended.text
    assert not device.read_bytes().strip(b"\0")


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """A file system as volumes of the hostpath provisioner have it."""
    file, folder = tmp_path / "file-system", tmp_path / "mounted"
    with file.open("wb") as image:
        image.truncate(512 * MIB)
    folder.mkdir()
    subprocess.run(["mkfs.xfs", "-q", str(file)], check=True)
    subprocess.run(["mount", "-o", "loop", str(file), str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_a_disk_takes_no_more_space_than_its_content(
    volume: Volume, xfs: Path, pack: Callable[[bytes], bytes]
) -> None:
    content = b"".join(bytes([number + 1]) * MIB + bytes(3 * MIB) for number in range(24))
    on_xfs = Volume(replace(volume.paths, data=xfs))
    async with serving(ServedFile(pack(content))) as address:
        ended = await on_xfs.run("http", address, IMPORTER_IMAGE_SIZE=str(100 * MIB))
    assert ended.code == 0, ended.text
    assert ended.disk.read_bytes()[: len(content)] == content
    assert ended.disk.stat().st_blocks * 512 < 30 * MIB
