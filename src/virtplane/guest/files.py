"""Detects whether a file to load is an archive of images or a complete disk."""

from __future__ import annotations

import re
import struct
import tarfile
from enum import Enum, auto
from pathlib import Path

_QCOW2 = b"QFI\xfb"
_OTHER_FORMATS = {
    b"KDMV": "a VMDK disk",
    b"# Disk Descriptor": "a VMDK disk",
    b"<<< Oracle VM": "a VDI disk",
    b"<<< QEMU VM": "a VDI disk",
    b"vhdxfile": "a VHDX disk",
    b"conectix": "a VHD disk",
    b"\xfd7zXZ\0": "compressed by xz",
    b"BZh": "compressed by bzip2",
    b"PK\x03\x04": "a ZIP archive",
}
"""First bytes of what QEMU is not given here, and what they say."""
_EXTERNAL_DATA = 1 << 2
"""The bit of qcow2's incompatible features that puts the disk's data into another file."""
_MEMBERS_READ = 10_000
"""How many entries of an archive are looked at for its index."""
_ISO_DESCRIPTOR = 32769


class FileKind(Enum):
    """The kinds of loadable files."""

    ARCHIVE = auto()
    """Images in an OCI or Docker archive."""
    DISK = auto()
    """A disk in qcow2 or raw format."""


class NotLoadable(Exception):
    """The file is not loadable, or only a part of a disk. The text says why and what to do."""


def kind_of(path: Path) -> FileKind:
    """Detect the kind of the file at `path`. Raises NotLoadable, OSError."""
    if not path.is_file() and path.exists():
        raise NotLoadable("it is not a file")
    with path.open("rb") as stream:
        head = stream.read(104)
        stream.seek(510)
        sector_end = stream.read(10)
        stream.seek(_ISO_DESCRIPTOR)
        iso = stream.read(5)
    if head.startswith(_QCOW2):
        _check_qcow2(head)
        return FileKind.DISK
    for magic, what in _OTHER_FORMATS.items():
        if head.startswith(magic):
            tool = "unpack it" if "compressed" in what or "ZIP" in what else "qemu-img convert -O qcow2"
            raise NotLoadable(f"it is {what}; make qcow2 or raw of it first: {tool}")
    if _is_image_archive(path):
        return FileKind.ARCHIVE
    if head.startswith(b"\x1f\x8b"):
        raise NotLoadable("it is compressed by gzip and holds no image archive; unpack it first: gunzip")
    if sector_end[:2] == b"\x55\xaa" or sector_end[2:] == b"EFI PART" or iso == b"CD001":
        return FileKind.DISK
    raise NotLoadable("it is neither an image archive nor a disk that a machine could boot")


def disk_reference(path: Path) -> str:
    """The image name that a disk gets by its file's name.

    The tag is not `latest`, for which the default pull policy asks a registry.
    """
    stem = re.sub(r"\.(qcow2|img|raw|iso)$", "", path.name.lower())
    name = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    return f"virtplane.local/{name or 'disk'}:v1"


def _check_qcow2(head: bytes) -> None:
    """Raise NotLoadable for a disk that depends on other files, which an image does not contain."""
    if len(head) < 104:
        raise NotLoadable("it is a truncated qcow2 disk")
    version, backing = struct.unpack(">IQ", head[4:16])
    (incompatible,) = struct.unpack(">Q", head[72:80])
    if backing:
        raise NotLoadable(
            "it is an overlay of another file; make one file of both: qemu-img convert -O qcow2"
        )
    if version >= 3 and incompatible & _EXTERNAL_DATA:
        raise NotLoadable("its data is in another file; make one file of both: qemu-img convert -O qcow2")


def _is_image_archive(path: Path) -> bool:
    try:
        with tarfile.open(path) as archive:
            for count, member in enumerate(archive):
                if member.name.removeprefix("./") in ("index.json", "manifest.json"):
                    return True
                if count > _MEMBERS_READ:
                    return False
    except (tarfile.TarError, EOFError):
        return False
    return False
