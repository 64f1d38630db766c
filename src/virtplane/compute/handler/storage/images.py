"""Disk images that users bring: recognised by their headers, never by their names.

A qcow2 image may name other files to read (backing file, external data); one that does is refused, for it
would make QEMU read whatever path its author chose.
"""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from virtplane.compute.handler.settings import QEMU_USER

_QCOW2_MAGIC = b"QFI\xfb"
_EXTERNAL_DATA = 1 << 2
_SECTOR = 512


class BadImage(Exception):
    """The image cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Format (``raw`` or ``qcow2``) and the size in bytes that the guest sees."""

    format: str
    virtual_size: int


def inspect(path: Path) -> ImageInfo:
    """Recognise the image at `path`. Raises BadImage for a qcow2 image that refers to other files."""
    try:
        with path.open("rb") as image:
            header = image.read(104)
            size = os.fstat(image.fileno()).st_size
    except OSError as error:
        raise BadImage(f"{path.name}: {error.strerror}") from error
    if header[:4] != _QCOW2_MAGIC or len(header) < 32:
        return ImageInfo("raw", -(-size // _SECTOR) * _SECTOR)
    version, backing_offset = struct.unpack_from(">IQ", header, 4)
    (virtual_size,) = struct.unpack_from(">Q", header, 24)
    incompatible = struct.unpack_from(">Q", header, 72)[0] if version >= 3 and len(header) >= 80 else 0
    if backing_offset:
        raise BadImage(f"{path.name} is a qcow2 image with a backing file, which is not allowed")
    if incompatible & _EXTERNAL_DATA:
        raise BadImage(f"{path.name} is a qcow2 image with an external data file, which is not allowed")
    return ImageInfo("qcow2", virtual_size)


def find_container_disk(folder: Path, path: str) -> Path:
    """The disk below the unpacked image `folder`: `path` when given, else the only file in ``/disk``.

    The image's author controls every name in it, so links that lead out of the image are refused.
    """
    root = folder.resolve()
    if path:
        candidate = folder / path.lstrip("/")
        files = [candidate] if candidate.exists() else []
    else:
        disk = folder / "disk"
        files = sorted(item for item in disk.iterdir() if item.is_file()) if disk.is_dir() else []
    if len(files) != 1:
        found = ", ".join(item.name for item in files) or "none"
        raise BadImage(f"the image must hold exactly one disk in {path or '/disk'}; found: {found}")
    if not files[0].resolve().is_relative_to(root):
        raise BadImage(f"{files[0].name} leads out of the image")
    return files[0]


def create_overlay(overlay: Path, *, backing: str, backing_format: str, size: int) -> None:
    """A qcow2 file on top of `backing` (a path as QEMU will see it, so it is not opened here)."""
    overlay.parent.mkdir(parents=True, exist_ok=True)
    _qemu_img(
        "create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", backing_format, str(overlay), str(size)
    )
    hand_over(overlay)


def create_empty(disk: Path, size: int) -> None:
    """An empty qcow2 disk of `size` bytes."""
    disk.parent.mkdir(parents=True, exist_ok=True)
    _qemu_img("create", "-q", "-f", "qcow2", str(disk), str(size))
    hand_over(disk)


def hand_over(path: Path) -> None:
    """Give a file and the folder it lies in to QEMU's user; links are not followed."""
    for item in (path.parent, path):
        os.chown(item, QEMU_USER, QEMU_USER, follow_symlinks=False)


def _qemu_img(*arguments: str) -> None:
    done = subprocess.run(["qemu-img", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadImage(f"qemu-img {arguments[0]} failed: {done.stderr.strip()}")
