"""The block sizes of storage, which guests see whose disks have ``blockSize.matchVolume``."""

from __future__ import annotations

import fcntl
import os
import struct

from virtplane.compute.domain.context import BlockSizes
from virtplane.compute.handler.rooted import Root

_BLKSSZGET = 0x1268
_BLKPBSZGET = 0x127B
_SECTOR_BYTES = 512


def of_volume(root: Root, path: str, *, block: bool) -> BlockSizes:
    """The sizes of a block device, or those that the file system of an image prefers.

    An image that is no multiple of them has sectors. Raises OSError as ``Root.give``.
    """
    with root.opened_disk(path, os.O_RDONLY | os.O_NONBLOCK, block=block) as descriptor:
        if block:
            return BlockSizes(_ask(descriptor, _BLKSSZGET), _ask(descriptor, _BLKPBSZGET))
        status = os.fstat(descriptor)
        size = status.st_blksize
        if size < _SECTOR_BYTES or status.st_size % size:
            size = _SECTOR_BYTES
        return BlockSizes(size, size)


def _ask(descriptor: int, question: int) -> int:
    answer: int = struct.unpack("I", fcntl.ioctl(descriptor, question, bytes(4)))[0]
    return answer
