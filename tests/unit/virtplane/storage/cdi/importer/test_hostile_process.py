"""Images and archives of strangers in the importer's own process: it reads no other file, and stays small."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.image_server import ServedFile, serving
from tests.support.importer_process import ImporterProcess, imported
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB

_SECRET = b"root:$6$the-secret-of-this-node:1::::::\n"
_MEMORY_BYTES = 160 * MIB
"""Far below what a pod of the importer may have (600 MB): a table must not be taken at its word."""
_PROCESSOR_SECONDS = 20.0
_BILLION = 1_000_000_000

Change = tuple[int, str, int]
"""Where a header says something, how, and what it says instead."""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the node that no image may name."""
    path = tmp_path / "shadow"
    path.write_bytes(_SECRET * 4096)
    return path


def overlay(folder: Path, backing: str) -> bytes:
    """A qcow2 image with a backing file, which qemu-img would look at if it made the image itself."""
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", "raw", "made", "4M"]
    subprocess.run(command, check=True, cwd=folder)
    return (folder / "made").read_bytes()


def by_name(folder: Path, secret: Path) -> bytes:
    return overlay(folder, str(secret))


def by_description(folder: Path, secret: Path) -> bytes:
    return overlay(folder, f'json:{{"driver":"raw","file":{{"driver":"file","filename":"{secret}"}}}}')


def by_server(folder: Path, secret: Path) -> bytes:
    return overlay(folder, "nbd://127.0.0.1:10809/disk")


def by_data_file(folder: Path, secret: Path) -> bytes:
    options = f"data_file={secret}.raw,data_file_raw=on"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, "made", "4M"]
    subprocess.run(command, check=True, cwd=folder)
    (folder / "shadow.raw").write_bytes(_SECRET * 4096)
    return (folder / "made").read_bytes()


def by_extent(folder: Path, secret: Path) -> bytes:
    descriptor = f'# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 320 FLAT "{secret}" 0\n'
    header = b"KDMV" + struct.pack("<IIQQQQ", 1, 3, 0, 128, 1, 20)
    return header.ljust(512, b"\0") + descriptor.encode().ljust(20 * 512, b"\0")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("make", [by_name, by_description, by_server, by_data_file, by_extent])
async def test_image_brings_no_file_of_the_node_along(
    tmp_path: Path, secret: Path, make: Callable[[Path, Path], bytes], packed: bool
) -> None:
    """In place, and from scratch space, where it is a file beside the volume."""
    content = make(tmp_path, secret)
    (tmp_path / "scratch").mkdir()
    async with serving(ServedFile(content, ranges=not packed)) as address:
        run = await imported(tmp_path, "http", address, "-v=9")
    assert run.code == 1
    assert run.text.startswith("Unable to process data: "), run.text
    assert not run.disk.exists()
    assert _SECRET.decode().strip() not in run.log + run.text
    assert not list((tmp_path / "scratch").iterdir())


_TABLES: dict[str, tuple[str, list[Change]]] = {
    "qcow2: entries of the first table": ("qcow2", [(36, ">I", _BILLION)]),
    "qcow2: clusters of the table of references": ("qcow2", [(56, ">I", _BILLION)]),
    "qcow2: snapshots": ("qcow2", [(60, ">I", _BILLION)]),
    "qcow2: a disk that needs a table of a billion": (
        "qcow2",
        [(24, ">Q", _BILLION << 29), (36, ">I", _BILLION)],
    ),
    "qcow2: clusters of 2 MiB, tables where the file ends": ("qcow2", [(20, ">I", 21), (40, ">Q", 1 << 40)]),
    "vdi: blocks": ("vdi", [(384, "<I", _BILLION)]),
    "vdi: blocks of a disk as large": ("vdi", [(368, "<Q", _BILLION << 20), (384, "<I", _BILLION)]),
    "vmdk: entries of a grain table": ("vmdk", [(44, "<I", _BILLION)]),
    "vmdk: sectors of the disk": ("vmdk", [(12, "<Q", 1 << 50)]),
    "vpc: entries of the table": ("vpc", [(512 + 28, ">I", _BILLION)]),
    "vhdx: length of the log": ("vhdx", [(64 * 1024 + 68, "<I", 0x7FF00000)]),
}


@pytest.mark.parametrize("table", _TABLES)
async def test_table_of_a_billion_entries_is_not_taken_at_its_word(
    tmp_path: Path, converted: Callable[..., bytes], table: str
) -> None:
    disk_format, changes = _TABLES[table]
    options = ("-o", "force_size=on") if disk_format == "vpc" else ()
    content = bytearray(converted(disk_format, *options))
    for place, how, number in changes:
        struct.pack_into(how, content, place, number)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with serving(ServedFile(bytes(content))) as address:
        run = await imported(tmp_path, "http", address)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    _told_or_ignored(run)
    assert run.peak_bytes < _MEMORY_BYTES
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < _PROCESSOR_SECONDS


def _told_or_ignored(run: ImporterProcess) -> None:
    if run.code == 0:  # what the header says does not matter for what is read
        assert run.disk.stat().st_size == 64 * MIB
        return
    assert run.code == 1
    assert run.text.startswith("Unable to process data: "), run.text
    assert not run.disk.exists()


async def test_one_cluster_a_million_times_is_at_most_the_volume(
    tmp_path: Path, converted: Callable[..., bytes]
) -> None:
    """Each entry of the tables leads to the same data: a small file becomes a large disk."""
    content = bytearray(converted("qcow2"))
    (first,) = struct.unpack_from(">Q", content, 40)
    (second,) = struct.unpack_from(">Q", content, first)
    second &= (1 << 56) - 1
    (data,) = struct.unpack_from(">Q", content, second)
    content[second : second + 65536] = struct.pack(">Q", data) * 8192
    struct.pack_into(">Q", content, 24, 1 << 40)
    struct.pack_into(">I", content, 36, 2048)
    content[first : first + 2048 * 8] = struct.pack(">Q", second | 1 << 63) * 2048
    async with serving(ServedFile(bytes(content))) as address:
        run = await imported(tmp_path, "http", address)
    assert run.code == 1
    assert "is larger than the reported available storage" in run.text
    assert not run.disk.exists()


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def file(name: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = 4
    return made


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["{outside}", "../outside"])
async def test_archive_leads_out_of_the_volume_by_no_link(tmp_path: Path, kind: bytes, target: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "shadow").write_bytes(_SECRET)
    where = target.format(outside=outside)
    entries = [
        link("way", where, kind),
        file("way/file"),
        link("copy", f"{where}/shadow", tarfile.LNKTYPE),
        file("copy"),
        file("../outside/shadow"),
        file(f"{outside}/shadow"),
    ]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for each in entries:
            archive.addfile(each, io.BytesIO(b"evil") if each.size else None)
    async with serving(ServedFile(made.getvalue())) as address:
        run = await imported(tmp_path, "http", address, IMPORTER_CONTENTTYPE="archive")
    assert [each.name for each in outside.iterdir()] == ["shadow"]
    assert (outside / "shadow").read_bytes() == _SECRET
    assert (outside / "shadow").stat().st_nlink == 1
    assert run.peak_bytes < _MEMORY_BYTES
    assert run.code == 1, run.log
    assert run.text.startswith("Unable to process data: unable to untar files: ")
