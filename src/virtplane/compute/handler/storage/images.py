"""Disk images in container images. The format is detected from the header, not from the file name.

Guests cannot write to them; disks that guests write to are raw, and their format is never detected
(``volumes``). A qcow2 image may name other files to read (backing file, external data); such an image is
refused, because it would make QEMU read any path that its author chose.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from dataclasses import dataclass

from virtplane.compute.handler.rooted import Root

_QCOW2_MAGIC = b"QFI\xfb"
_EXTERNAL_DATA = 1 << 2
_SECTOR = 512
_HEADER_BYTES = 104
_NAMED = 4
_AUTHORS_DOING = {
    errno.EXDEV: "leads out of it",
    errno.ELOOP: "leads in a circle",
    errno.ENAMETOOLONG: "leads to a name that is too long",
    errno.E2BIG: "has too many files",
}
"""What the author of an image can have done, by the error of opening a file in it."""


class BadImage(Exception):
    """The image cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Format (``raw`` or ``qcow2``) and the size in bytes that the guest sees."""

    format: str
    virtual_size: int


def inspect(root: Root, path: str) -> ImageInfo:
    """Recognise the image at `path`. Raises BadImage for a qcow2 image that refers to other files."""
    name = path.rpartition("/")[2]
    try:
        header, size = root.head(path, _HEADER_BYTES), root.size(path)
    except OSError as error:
        raise BadImage(f"{name}: {error.strerror}") from error
    if header[:4] != _QCOW2_MAGIC or len(header) < 32:
        return ImageInfo("raw", _whole_sectors(size))
    version, backing_offset = struct.unpack_from(">IQ", header, 4)
    (virtual_size,) = struct.unpack_from(">Q", header, 24)
    incompatible = struct.unpack_from(">Q", header, 72)[0] if version >= 3 and len(header) >= 80 else 0
    if backing_offset:
        raise BadImage(f"{name} is a qcow2 image with a backing file, which is not allowed")
    if incompatible & _EXTERNAL_DATA:
        raise BadImage(f"{name} is a qcow2 image with an external data file, which is not allowed")
    return ImageInfo("qcow2", virtual_size)


def raw_size(root: Root, path: str, *, block: bool) -> int:
    """The size of a raw file, or with `block` of a block device, in whole sectors. Raises BadImage."""
    try:
        with root.opened_disk(path, os.O_RDONLY, block=block) as descriptor:
            return _whole_sectors(os.lseek(descriptor, 0, os.SEEK_END))
    except OSError as error:
        raise BadImage(f"{path.rpartition('/')[2]}: {error.strerror}") from error


def _whole_sectors(size: int) -> int:
    return -(-size // _SECTOR) * _SECTOR


def find_container_disk(root: Root, folder: str, path: str) -> str:
    """The disk of the unpacked image in `folder`: `path` when given, else the only file in ``/disk``.

    The image's author controls every name in it, so links that lead out of the image are refused. The
    answer is the disk's path in `root`. Raises BadImage.
    """
    with (
        root.opened(folder, os.O_PATH | os.O_DIRECTORY) as descriptor,
        Root(descriptor, beneath=True) as image,
    ):
        return f"{folder}/{only_disk(image, path.strip('/'))}"


def only_disk(image: Root, path: str) -> str:
    """The one disk in the image's file system: `path` when given, else the only file in ``/disk``.

    Raises BadImage where there is none or more than one, or where a link leads out of the image.
    """
    try:
        wanted = [path]
        if not path:
            wanted = [f"disk/{name}" for name in image.names("disk")] if image.is_folder("disk") else []
        files = [each for each in wanted if image.is_file(each)]
    except OSError as error:
        why = _AUTHORS_DOING.get(error.errno or 0)
        if why is None:
            raise
        raise BadImage(f"/{error.filename} in the image {why}") from error
    if len(files) != 1:
        found = ", ".join(each.rpartition("/")[2] for each in files[:_NAMED]) or "none"
        if len(files) > _NAMED:
            found += f" and {len(files) - _NAMED} more"
        place = f"/{path}" if path else "/disk"
        raise BadImage(f"the image must hold exactly one disk in {place}; found: {found}")
    return files[0]


def create_overlay(root: Root, overlay: str, *, backing: str, backing_format: str, size: int) -> None:
    """A qcow2 file on top of `backing` (a path as QEMU will see it, so it is not opened here)."""
    base = ("-u", "-b", backing, "-F", backing_format)
    root.create(overlay, lambda descriptor: _qemu_img_create(descriptor, base, size))


def create_empty(root: Root, disk: str, size: int) -> None:
    """An empty qcow2 disk of `size` bytes."""
    root.create(disk, lambda descriptor: _qemu_img_create(descriptor, (), size))


def _qemu_img_create(descriptor: int, options: tuple[str, ...], size: int) -> None:
    file = f"/proc/self/fd/{descriptor}"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *options, file, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=(descriptor,))
    if done.returncode != 0:
        raise BadImage(f"qemu-img create failed: {done.stderr.strip()}")
