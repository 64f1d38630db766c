"""Which compression or disk format some bytes begin (CDI's table of signatures)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

HEAD_BYTES = 512
"""How many bytes `recognise` needs."""


class Compression(Enum):
    """Compressions; the value is the program that undoes it, which reads and writes pipes, or none."""

    GZIP = ()
    XZ = ("xz", "-dc", "--memlimit-decompress=160MiB")
    ZSTD = ("zstd", "-dc", "--memory=128MiB", "-q")
    BZIP2 = ("bzip2", "-dc")


class DiskFormat(Enum):
    """Formats of disks; the value is QEMU's name of it."""

    RAW = "raw"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VDI = "vdi"
    VHD = "vpc"
    VHDX = "vhdx"


class Container(Enum):
    """Files that hold files."""

    TAR = "tar"


Kind = Compression | DiskFormat | Container


@dataclass(frozen=True, slots=True)
class _Signature:
    offset: int
    magic: bytes
    kind: Kind


_SIGNATURES = (
    _Signature(0, b"\x1f\x8b", Compression.GZIP),
    _Signature(0, b"\x28\xb5\x2f\xfd", Compression.ZSTD),
    _Signature(0, b"\xfd7zXZ\0", Compression.XZ),
    _Signature(0, b"BZh", Compression.BZIP2),
    _Signature(0, b"QFI\xfb", DiskFormat.QCOW2),
    _Signature(0x101, b"ustar", Container.TAR),
    _Signature(0, b"KDMV", DiskFormat.VMDK),
    _Signature(0x40, b"\x7f\x10\xda\xbe", DiskFormat.VDI),
    _Signature(0, b"conectix", DiskFormat.VHD),
    _Signature(0, b"vhdxfile", DiskFormat.VHDX),
)


def recognise(head: bytes) -> Kind:
    """What a file that begins with `head` (`HEAD_BYTES`, or the whole file) is; raw if nothing is known of
    it.
    """
    for signature in _SIGNATURES:
        end = signature.offset + len(signature.magic)
        if head[signature.offset : end] == signature.magic:
            return signature.kind
    return DiskFormat.RAW
