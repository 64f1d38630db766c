"""The disk: a partition table, the loader's two partitions, and the root file system, which is the last.

Everything is written into a file, so no device and no mount is needed.
"""

from __future__ import annotations

import os
import secrets
import uuid
from pathlib import Path
from typing import NamedTuple

from virtplane.image.commands import run

SECTOR_BYTES = 512
_MIB_SECTORS = (1 << 20) // SECTOR_BYTES

DISK_BYTES = 2 << 30
"""Size of the disk as guests see it. On a bigger volume, the root file system grows at the first start."""


class Partition(NamedTuple):
    """A partition; numbers of sectors."""

    number: int
    start: int
    sectors: int
    type: str
    """The type's GUID in the partition table."""

    @property
    def offset(self) -> int:
        """Where it begins, in bytes."""
        return self.start * SECTOR_BYTES

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.sectors * SECTOR_BYTES


# Numbers as in Debian's own images: the root file system is the first, although it is the last on the disk.
BIOS = Partition(14, _MIB_SECTORS, 3 * _MIB_SECTORS, "21686148-6449-6E6F-744E-656564454649")
ESP = Partition(15, 4 * _MIB_SECTORS, 60 * _MIB_SECTORS, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B")
_ROOT_START = 64 * _MIB_SECTORS
# The table's copy fills the end of the disk.
_ROOT_SECTORS = DISK_BYTES // SECTOR_BYTES - _ROOT_START - _MIB_SECTORS
ROOT = Partition(1, _ROOT_START, _ROOT_SECTORS, "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709")


class Loader(NamedTuple):
    """What starts the system, outside of the root file system."""

    boot_code: bytes
    """The beginning of the disk's first sector."""
    core: bytes
    """The content of the BIOS boot partition."""
    esp: Path
    """The folder with the content of the EFI system partition."""


class Identities(NamedTuple):
    """By what the parts of one disk find each other."""

    root: str
    """UUID of the root file system."""
    esp: str
    """Serial number of the EFI system partition's file system: eight hexadecimal digits."""

    @property
    def esp_label(self) -> str:
        """The serial number as mount writes it."""
        return f"{self.esp[:4]}-{self.esp[4:]}"


def new_identities() -> Identities:
    """Random ones."""
    return Identities(str(uuid.uuid4()), secrets.token_hex(4).upper())


def table() -> str:
    """The partition table, in sfdisk's language."""
    lines = ["label: gpt"]
    for part in (ROOT, BIOS, ESP):
        lines.append(f"{part.number} : start={part.start}, size={part.sectors}, type={part.type}")
    return "\n".join(lines) + "\n"


def write(raw: Path, tree: Path, loader: Loader, identities: Identities) -> None:
    """Write the disk into the new file `raw`. Raises BuildError, OSError."""
    with raw.open("xb") as stream:
        os.truncate(stream.fileno(), DISK_BYTES)
    run(["sfdisk", "--quiet", str(raw)], "The partition table could not be written.", given=table())
    with raw.open("r+b") as stream:
        stream.write(loader.boot_code)
        stream.seek(BIOS.offset)
        stream.write(loader.core)
    _write_esp(raw, loader.esp, identities)
    command = ["mkfs.ext4", "-q", "-F", "-L", "root", "-U", identities.root, "-d", str(tree)]
    command += ["-E", f"offset={ROOT.offset}", str(raw), f"{ROOT.bytes // 1024}k"]
    run(command, "The root file system could not be written.", "Is the disk full?")


def _write_esp(raw: Path, content: Path, identities: Identities) -> None:
    what = "The EFI system partition could not be written."
    command = ["mkfs.vfat", "-F", "16", "-n", "ESP", "-i", identities.esp, "--offset", str(ESP.start)]
    run([*command, str(raw), str(ESP.bytes // 1024)], what)
    sources = [str(path) for path in sorted(content.iterdir())]
    run(["mcopy", "-s", "-i", f"{raw}@@{ESP.offset}", *sources, "::/"], what)


def compress(raw: Path, image: Path) -> None:
    """Convert the disk into a compressed qcow2 image. Raises BuildError."""
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-W", "-m", "4"]
    command += ["-o", "compression_type=zlib", str(raw), str(image)]
    run(command, "The image could not be written.", "Is the disk full?")
