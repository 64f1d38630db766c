"""Images that try to make QEMU read what is not theirs."""

from __future__ import annotations

import struct
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.image_server import ServedFile, serving
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Volume

from virtplane.storage.cdi.importer.archives import TarEntries, find
from virtplane.storage.cdi.importer.formats import DiskFormat
from virtplane.storage.cdi.importer.headers import UnsafeImage, check
from virtplane.storage.cdi.importer.streams import PIECE


def with_backing_file(tmp_path: Path) -> bytes:
    secret, overlay = tmp_path / "secret", tmp_path / "overlay.qcow2"
    secret.write_bytes(b"root:secret" * 100_000)
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(secret), "-F", "raw", str(overlay)]
    subprocess.run(command, check=True)
    return overlay.read_bytes()


def with_data_file(tmp_path: Path) -> bytes:
    secret, image = tmp_path / "secret", tmp_path / "image.qcow2"
    options = f"data_file={secret},data_file_raw=on"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, str(image), "4M"], check=True)
    secret.write_bytes(b"root:secret" * 100_000)
    return image.read_bytes()


def descriptor_in_a_sparse_header(tmp_path: Path) -> bytes:
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:secret" * 100_000)
    descriptor = f'createType="monolithicFlat"\nRW 2048 FLAT "{secret}" 0\n'.encode()
    header = b"KDMV" + struct.pack("<IIQQQQ", 1, 3, 0, 128, 1, 20)
    return header.ljust(512, b"\0") + descriptor.ljust(20 * 512, b"\0")


HOSTILE = (with_backing_file, with_data_file, descriptor_in_a_sparse_header)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("make", HOSTILE)
async def test_image_that_names_other_files_is_refused(
    volume: Volume, tmp_path: Path, make: Callable[[Path], bytes], ranges: bool
) -> None:
    content = make(tmp_path)
    volume.give_scratch()
    async with serving(ServedFile(content, ranges=ranges)) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert ended.text.startswith("Unable to process data: Image is invalid because ")
    assert not ended.disk.exists()


@pytest.mark.parametrize("make", HOSTILE)
async def test_server_that_changes_the_header_after_the_check_changes_nothing(
    volume: Volume,
    tmp_path: Path,
    converted: Callable[..., bytes],
    raw_disk: bytes,
    make: Callable[[Path], bytes],
) -> None:
    disk_format = "vmdk" if make is descriptor_in_a_sparse_header else "qcow2"
    good = converted(disk_format)
    evil = make(tmp_path)
    file = ServedFile(good, later=evil + good[len(evil) :])
    async with serving(file) as address:
        ended = await volume.run("http", address)
    assert not file.later
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert b"root:secret" not in ended.disk.read_bytes()


async def test_qcow2_with_huge_tables_ends_in_bounded_memory(volume: Volume) -> None:
    header = bytearray(104)
    header[:4] = b"QFI\xfb"
    struct.pack_into(">I", header, 4, 3)
    struct.pack_into(">I", header, 20, 16)
    struct.pack_into(">Q", header, 24, 1 << 62)
    struct.pack_into(">I", header, 36, 1 << 30)
    struct.pack_into(">Q", header, 40, 65536)
    struct.pack_into(">I", header, 96, 4)
    struct.pack_into(">I", header, 100, 104)
    async with serving(ServedFile(bytes(header).ljust(MIB, b"\0"))) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert ended.text.startswith("Unable to process data: ")


@pytest.mark.parametrize(
    "descriptor",
    [
        'createType="twoGbMaxExtentFlat"\nRW 2048 FLAT "/etc/shadow" 0\n',
        'createType="monolithicSparse"\nparentCID=ffffffff\nparentFileNameHint="/etc/shadow"\n',
        'createType="monolithicSparse"\nparentCID=12345678\n',
        'createType="monolithicSparse"\nRW 1 SPARSE "a"\nRW 1 FLAT "/etc/shadow" 0\n',
        'createType="monolithicSparse"\nRW 1 SPARSE "a"\n' + 40 * " " + 'RW 1 FLAT "/etc/shadow" 0\n',
    ],
)
def test_vmdk_descriptor_with_other_files_is_unsafe(descriptor: str) -> None:
    header = b"KDMV" + struct.pack("<IIQQQQ", 1, 3, 2048, 128, 1, 20)
    image = header.ljust(512, b"\0") + descriptor.encode().ljust(20 * 512, b"\0")
    with pytest.raises(UnsafeImage):
        check(DiskFormat.VMDK, image)


def test_vmdk_descriptor_outside_the_checked_part_is_unsafe() -> None:
    header = b"KDMV" + struct.pack("<IIQQQQ", 1, 3, 2048, 128, 1 << 20, 20)
    with pytest.raises(UnsafeImage):
        check(DiskFormat.VMDK, header.ljust(MIB, b"\0"))


@pytest.mark.parametrize("descriptor_at", [0, 64])
def test_vmdk_parent_where_qemu_looks_for_it_is_unsafe(tmp_path: Path, descriptor_at: int) -> None:
    path = tmp_path / "image.vmdk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "vmdk", str(path), "4M"], check=True)
    image = bytearray(path.read_bytes())
    image[28:44] = struct.pack("<QQ", descriptor_at, 1 if descriptor_at else 0)
    image[512 : 21 * 512] = b'parentCID=0\nparentFileNameHint="/etc/hostname"\n'.ljust(20 * 512, b"\0")
    path.write_bytes(image)
    seen = subprocess.run(["qemu-img", "info", str(path)], check=True, capture_output=True, text=True).stdout
    assert "backing file: /etc/hostname" in seen
    with pytest.raises(UnsafeImage, match="parent"):
        check(DiskFormat.VMDK, bytes(image))


@pytest.mark.parametrize(
    "descriptor",
    ["\n" * 65536, "\n" + " " * 65535, "createType" + " " * 65526, "parentCID=" + "\n \t" * 21842],
)
def test_vmdk_descriptor_of_blanks_alone_is_read_in_no_time(descriptor: str) -> None:
    header = b"KDMV" + struct.pack("<IIQQQQ", 1, 3, 2048, 128, 1, 128)
    image = header.ljust(512, b"\0") + descriptor.encode()
    begun = time.process_time()
    check(DiskFormat.VMDK, image)
    assert time.process_time() - begun < 1


def test_the_last_type_of_a_vmdk_descriptor_counts_like_the_first() -> None:
    test_vmdk_descriptor_with_other_files_is_unsafe(
        'createType="monolithicSparse"\ncreateType="monolithicFlat"\n'
    )


async def test_extended_header_of_many_records_is_read_in_no_time() -> None:
    records = b"5 a=\n" * (MIB // 5)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    file = tarfile.TarInfo("disk.img")
    padding = bytes(-len(records) % 512)
    archive = header.tobuf(tarfile.USTAR_FORMAT) + records + padding + file.tobuf() + bytes(1024)
    begun = time.process_time()
    found = await find(TarEntries(Bytes(archive)), lambda name: name == "disk.img")
    assert time.process_time() - begun < 2
    assert found is not None


class Bytes:
    """A reader of these bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self) -> bytes:
        piece, self._content = self._content[:PIECE], self._content[PIECE:]
        return piece

    async def close(self) -> None:
        return None
