"""Disk headers that would make QEMU read other files.

A qcow2 image can name a backing file and a data file, a VMDK any number of extents; QEMU would open
whatever its author wrote there. Such images are refused before a program of QEMU sees them, by the same
bytes that it will see.
"""

from __future__ import annotations

import re
import struct

from virtplane.storage.cdi.importer.formats import DiskFormat

HEADER_BYTES = 1 << 20
"""How much of an image's beginning is looked at. A VMDK's descriptor must lie in it."""

_SECTOR = 512
_QCOW2_HEADER = 104
_EXTERNAL_DATA = 1 << 2
_VMDK_HEADER = 512
_VMDK_DESCRIPTOR_BYTES = 64 << 10
_VMDK_SINGLE = frozenset({"monolithicSparse", "streamOptimized"})
_CREATE_TYPE = re.compile(r'createType\s{0,16}=\s{0,16}"([^"\n]{0,256})', re.IGNORECASE)
_PARENT = re.compile(r"parentCID\s{0,16}=\s{0,16}(\S{1,256})", re.IGNORECASE)
_PARENT_FILE = re.compile(r"parentFileNameHint", re.IGNORECASE)
"""Wherever they stand, as QEMU looks for them; blanks are counted, for a descriptor may be nothing else."""
_EXTENT = re.compile(r"^[ \t\r]*(?:RW|RDONLY|NOACCESS)\s", re.MULTILINE)
_VMDK_PARENT_BYTES = 20 << 10
"""Where QEMU looks for a parent: behind the header, wherever that says the descriptor is."""
_NO_PARENT = "ffffffff"


class UnsafeImage(Exception):
    """The image depends on other files, or is damaged where it matters. The text says how."""


def check(disk_format: DiskFormat, header: bytes) -> None:
    """Raise UnsafeImage for an image that begins with `header` and is more than itself."""
    if disk_format is DiskFormat.QCOW2:
        _check_qcow2(header)
    elif disk_format is DiskFormat.VMDK:
        _check_vmdk(header)


def backing_file(header: bytes) -> str:
    """The name of the backing file in a qcow2 header; empty for none."""
    if len(header) < _QCOW2_HEADER:
        return ""
    offset, size = struct.unpack_from(">QI", header, 8)
    return header[offset : offset + size].decode(errors="replace") if offset else ""


def check_delta(header: bytes) -> str:
    """The backing file that a qcow2 image names, which is nothing else than itself and that.

    Raises UnsafeImage.
    """
    _check_qcow2_alone(header)
    offset, size = struct.unpack_from(">QI", header, 8)
    if offset + size > len(header):
        raise UnsafeImage("the name of its backing file is not at its beginning")
    return backing_file(header)


def _check_qcow2(header: bytes) -> None:
    _check_qcow2_alone(header)
    if struct.unpack_from(">Q", header, 8)[0]:
        raise UnsafeImage(f"it has invalid backing file {backing_file(header)}")


def _check_qcow2_alone(header: bytes) -> None:
    if len(header) < _QCOW2_HEADER:
        raise UnsafeImage("the qcow2 header is truncated")
    (version,) = struct.unpack_from(">I", header, 4)
    if version not in (2, 3):
        raise UnsafeImage(f"qcow2 version {version} is not supported")
    if version == 3 and struct.unpack_from(">Q", header, 72)[0] & _EXTERNAL_DATA:
        raise UnsafeImage("its data is in another file")


def _check_vmdk(header: bytes) -> None:
    if len(header) < _VMDK_HEADER:
        raise UnsafeImage("the VMDK header is truncated")
    capacity, _grain, offset, sectors = struct.unpack_from("<QQQQ", header, 12)
    if capacity == 0:
        # QEMU takes such a file for a descriptor alone and opens the extents that it names.
        raise UnsafeImage("the VMDK has no capacity of its own")
    _check_vmdk_parent(_text(header[_VMDK_HEADER : _VMDK_HEADER + _VMDK_PARENT_BYTES]))
    if offset == 0:
        return
    begin, end = offset * _SECTOR, (offset + min(sectors, _VMDK_DESCRIPTOR_BYTES // _SECTOR)) * _SECTOR
    if sectors * _SECTOR > _VMDK_DESCRIPTOR_BYTES or begin >= len(header):
        raise UnsafeImage("the VMDK's descriptor is not at its beginning")
    _check_vmdk_descriptor(_text(header[begin:end]))


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("latin-1")


def _check_vmdk_parent(text: str) -> None:
    if _PARENT_FILE.search(text):
        raise UnsafeImage("the VMDK depends on a parent image")


def _check_vmdk_descriptor(text: str) -> None:
    for created in _CREATE_TYPE.finditer(text):
        if created[1] not in _VMDK_SINGLE:
            raise UnsafeImage(f"a VMDK of type {created[1]!r} has its data in other files")
    parents = {parent[1].lower() for parent in _PARENT.finditer(text)}
    _check_vmdk_parent(text)
    if parents - {_NO_PARENT}:
        raise UnsafeImage("the VMDK depends on a parent image")
    if len(_EXTENT.findall(text)) > 1:
        raise UnsafeImage("the VMDK has several extents")
