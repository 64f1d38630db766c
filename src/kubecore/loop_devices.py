"""Loop devices and the files behind them, told apart by device and inode.

The kernel shows the path of a backing file as the reader's mount namespace has it, which is of no use for
files that another node mounts elsewhere; device and inode are the same for everybody.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path

_GET_STATUS64 = 0x4C05
_CLEAR_FD = 0x4C01
_INFO64 = struct.Struct("=QQ216x")
"""struct loop_info64 (linux/loop.h): the backing file's device and inode, and what is not read here."""


@dataclass(frozen=True, slots=True)
class LoopDevice:
    """A loop device that has a backing file."""

    path: Path
    file_device: int
    file_inode: int

    @property
    def number(self) -> int:
        """The device number (st_rdev) of the loop device itself."""
        return self.path.stat().st_rdev


def attached() -> list[LoopDevice]:
    """All loop devices of the machine that have a backing file."""
    found = []
    for entry in sorted(Path("/sys/block").glob("loop*/loop")):
        device = Path("/dev") / entry.parent.name
        try:
            descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            answer = fcntl.ioctl(descriptor, _GET_STATUS64, bytes(_INFO64.size))
        except OSError:
            continue  # detached since the directory was read
        finally:
            os.close(descriptor)
        file_device, file_inode = _INFO64.unpack(answer)
        found.append(LoopDevice(device, file_device, file_inode))
    return found


def of_file(file: os.stat_result) -> list[LoopDevice]:
    """The loop devices over one file."""
    wanted = (file.st_dev, file.st_ino)
    return [device for device in attached() if (device.file_device, device.file_inode) == wanted]


def of_file_system(number: int) -> list[LoopDevice]:
    """The loop devices over files of the file system whose device number (st_dev) is `number`."""
    return [device for device in attached() if device.file_device == number]


def detach(device: LoopDevice) -> None:
    """Take the backing file away; the kernel does so when the last user closes the device. Raises OSError."""
    descriptor = os.open(device.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _CLEAR_FD)
    finally:
        os.close(descriptor)
