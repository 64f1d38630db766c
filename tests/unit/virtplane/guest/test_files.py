"""What a file is that somebody wants to load."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
from pathlib import Path

import pytest

from virtplane.guest import oci
from virtplane.guest.files import FileKind, NotLoadable, disk_reference, kind_of


def qcow2(*, version: int = 3, backing: int = 0, incompatible: int = 0) -> bytes:
    """A header, with zeros where it says nothing of interest."""
    head = b"QFI\xfb" + struct.pack(">IQ", version, backing)
    return (head.ljust(72, b"\0") + struct.pack(">Q", incompatible)).ljust(512, b"\0")


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return stream.getvalue()


_RAW = b"\0" * 510 + b"\x55\xaa" + b"\0" * 512
_GPT = b"\0" * 512 + b"EFI PART" + b"\0" * 512
_ISO = b"\0" * 32769 + b"CD001" + b"\0" * 512


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (qcow2(), FileKind.DISK),
        (qcow2(version=2, incompatible=4), FileKind.DISK),
        (_RAW, FileKind.DISK),
        (_GPT, FileKind.DISK),
        (_ISO, FileKind.DISK),
        (archive("blobs/x", "index.json"), FileKind.ARCHIVE),
        (archive("./manifest.json"), FileKind.ARCHIVE),
        (gzip.compress(archive("manifest.json")), FileKind.ARCHIVE),
    ],
    ids=["qcow2", "old qcow2", "raw", "gpt", "iso", "oci", "docker", "gzipped"],
)
def test_archives_and_disks_are_told_apart(tmp_path: Path, content: bytes, kind: FileKind) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert kind_of(path) is kind


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (qcow2(backing=512), "overlay of another file"),
        (qcow2(incompatible=4), "its data is in another file"),
        (qcow2()[:40], "truncated"),
        (b"KDMV" + b"\0" * 1000, "a VMDK disk; make qcow2 or raw of it first: qemu-img convert"),
        (b"vhdxfile", "a VHDX disk"),
        (b"\xfd7zXZ\0" + b"\0" * 1000, "compressed by xz"),
        (gzip.compress(_RAW, mtime=0), "compressed by gzip and holds no image archive"),
        (archive("etc/passwd"), "neither an image archive nor a disk"),
        (b"", "neither an image archive nor a disk"),
        (b"hello\n" * 100, "neither an image archive nor a disk"),
    ],
)
def test_what_no_machine_could_boot_is_refused_with_the_way_out(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(NotLoadable, match=said):
        kind_of(path)


def test_a_container_disk_that_was_written_here_is_an_archive(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(_RAW)
    oci.write_archive(disk, tmp_path / "disk.tar", "virtplane.local/disk:v1")
    assert kind_of(tmp_path / "disk.tar") is FileKind.ARCHIVE


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotLoadable, match="not a file"):
        kind_of(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("debian-12.qcow2", "virtplane.local/debian-12:v1"),
        ("Fedora Cloud_40.x86.IMG", "virtplane.local/fedora-cloud-40-x86:v1"),
        ("-.iso", "virtplane.local/disk:v1"),
    ],
)
def test_a_disk_is_named_after_its_file(name: str, reference: str) -> None:
    assert disk_reference(Path(name)) == reference
