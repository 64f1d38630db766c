"""Disk images in local files: their format, and the size of the disk in them, by their headers."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

import click

from virtplane.cli.virtctl.contents import Content
from virtplane.cli.virtctl.documents import printable
from virtplane.storage.cdi.importer import headers
from virtplane.storage.cdi.importer.formats import HEAD_BYTES, Compression, DiskFormat, Kind, recognise

_SECTOR = 512
_LARGEST_BYTES = 1 << 50
"""No disk is larger; what a header says beyond it is damage."""

_VHD_DIFFERENCING, _VDI_DIFFERENCING = 4, 4
_VHD_LARGEST_GEOMETRY = 65535 * 16 * 255
"""In sectors: what is written where a disk is larger, or its geometry has no meaning."""

_VHDX_REGIONS = 192 << 10
_VHDX_TABLE_BYTES = 64 << 10
_VHDX_ENTRIES = 2047
_VHDX_ENTRY = 32
_VHDX_HAS_PARENT = 2
_METADATA_REGION = uuid.UUID("8b7ca206-4790-4b9a-b8fe-575f050f886e").bytes_le
_DISK_SIZE = uuid.UUID("2fa54224-cd1b-4876-b211-5dbed83bf4b8").bytes_le
_FILE_PARAMETERS = uuid.UUID("caa16737-fa36-4d43-b3b6-33f0aa44e76b").bytes_le


@dataclass(frozen=True, slots=True)
class DiskImage:
    """What a file is. `virtual_bytes` is the size of the disk; None where only unpacking would tell."""

    kind: Kind
    virtual_bytes: int | None


class BadImage(click.ClickException):
    """The image cannot be imported."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(printable(f"{name}: {why}"))


def inspect(content: Content, name: str) -> DiskImage:
    """What `content`, called `name` in messages, is. Raises BadImage for what no import can use."""
    head = content.read(0, HEAD_BYTES)
    kind = recognise(head)
    if not isinstance(kind, DiskFormat):
        return DiskImage(kind, None)
    try:
        headers.check(kind, content.read(0, headers.HEADER_BYTES))
        size = _virtual_bytes(kind, head, content)
    except headers.UnsafeImage as error:
        raise BadImage(name, str(error)) from error
    except struct.error as error:
        raise BadImage(name, f"the {kind.value} header is truncated") from error
    if not 0 < size <= _LARGEST_BYTES:
        raise BadImage(
            name, "it is empty" if content.size == 0 else f"its disk of {size} bytes is not possible"
        )
    return DiskImage(kind, size)


def is_compressed(image: DiskImage) -> bool:
    """Whether the file must be unpacked to be a disk."""
    return isinstance(image.kind, Compression)


def _virtual_bytes(kind: DiskFormat, head: bytes, content: Content) -> int:
    """The size in the header. Raises struct.error, headers.UnsafeImage."""
    if kind is DiskFormat.QCOW2:
        return _number(">Q", head, 24)
    if kind is DiskFormat.VMDK:
        return _number("<Q", head, 12) * _SECTOR
    if kind is DiskFormat.VDI:
        if _number("<I", head, 0x4C) == _VDI_DIFFERENCING:
            raise headers.UnsafeImage("the VDI depends on a parent image")
        return _number("<Q", head, 0x170)
    if kind is DiskFormat.VHD:
        return _vhd_bytes(head)
    return _vhdx_bytes(content) if kind is DiskFormat.VHDX else content.size


def _number(form: str, data: bytes, offset: int) -> int:
    return int(struct.unpack_from(form, data, offset)[0])


def _vhd_bytes(head: bytes) -> int:
    if len(head) < HEAD_BYTES:
        raise headers.UnsafeImage("the VHD header is truncated")
    if _number(">I", head, 60) == _VHD_DIFFERENCING:
        raise headers.UnsafeImage("the VHD depends on a parent image")
    cylinders, heads, sectors = struct.unpack_from(">HBB", head, 56)
    by_geometry = int(cylinders) * int(heads) * int(sectors)
    size = _number(">Q", head, 48)
    # QEMU takes one or the other, by the program that made the image.
    return size if by_geometry == _VHD_LARGEST_GEOMETRY else max(size, by_geometry * _SECTOR)


def _vhdx_bytes(content: Content) -> int:
    regions = content.read(_VHDX_REGIONS, _VHDX_TABLE_BYTES)
    if regions[:4] != b"regi":
        raise headers.UnsafeImage("the VHDX has no table of regions")
    at = _find(regions, _number("<I", regions, 8), 16, _METADATA_REGION)
    region = _number("<Q", regions, at + 16)
    table = content.read(region, _VHDX_TABLE_BYTES)
    if table[:8] != b"metadata":
        raise headers.UnsafeImage("the VHDX has no metadata")
    count = _number("<H", table, 10)
    parameters, size = _find(table, count, 32, _FILE_PARAMETERS), _find(table, count, 32, _DISK_SIZE)
    flags = content.read(region + _number("<I", table, parameters + 16), 8)
    if _number("<I", flags, 4) & _VHDX_HAS_PARENT:
        raise headers.UnsafeImage("the VHDX depends on a parent image")
    return _number("<Q", content.read(region + _number("<I", table, size + 16), 8), 0)


def _find(table: bytes, count: int, first: int, identifier: bytes) -> int:
    """The offset of an entry in a table of VHDX. Raises headers.UnsafeImage."""
    for index in range(min(count, _VHDX_ENTRIES)):
        offset = first + index * _VHDX_ENTRY
        if table[offset : offset + 16] == identifier:
            return offset
    raise headers.UnsafeImage("the VHDX is damaged: a part of its metadata is missing")
