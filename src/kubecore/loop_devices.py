"""Loop devices: attaching a file to one, finding those of a file, and detaching them.

Two devices of one file have two caches and corrupt it, so there is never a second one, whoever attached the
first; callers hold a lock of the file's. A device is found by the file's device and inode number: the kernel
shows the path of the file as the reader's mount namespace has it, which is of no use for files that another
node of the same machine mounts elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SET_STATUS64, _GET_STATUS64 = 0x4C04, 0x4C05
_CLEAR, _SET_CAPACITY, _CONFIGURE, _GET_FREE = 0x4C01, 0x4C07, 0x4C0A, 0x4C82
_AUTOCLEAR, _DIRECT_IO = 4, 16
_INFO = struct.Struct("=5Q4I64s64s32s2Q")
"""struct loop_info64."""
_CONFIG_HEAD = struct.Struct("=2I")
_CONFIG_TAIL = bytes(8 * 8)
_MAJOR = 7
_CONTROL_MINOR = 237
_ATTEMPTS = 64
DELETED = " (deleted)"
"""How the kernel marks the path of an attached file that was removed."""


class Loop:
    """An open loop device; while it is open, the kernel does not detach it. Close it, or use ``with``."""

    def __init__(self, number: int, descriptor: int) -> None:
        self.path = _node(number)
        self._descriptor = descriptor

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the device."""
        os.close(self._descriptor)

    def refresh_size(self) -> None:
        """Make the device as large as its file is now. Raises OSError."""
        fcntl.ioctl(self._descriptor, _SET_CAPACITY, 0)

    def detach(self) -> None:
        """Detach the file now, or when the last user closes the device. Raises OSError."""
        try:
            fcntl.ioctl(self._descriptor, _CLEAR, 0)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise

    def keep(self) -> None:
        """Have the device stay attached when its last user closes it. Raises OSError."""
        info = bytearray(_INFO.size)
        fcntl.ioctl(self._descriptor, _GET_STATUS64, info)
        fields = list(_INFO.unpack(info))
        if fields[8] & _AUTOCLEAR:
            fields[8] &= ~_AUTOCLEAR
            fcntl.ioctl(self._descriptor, _SET_STATUS64, _INFO.pack(*fields))

    def is_mounted(self) -> bool:
        """Whether a file system of the device is mounted, in whichever mount namespace."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return True
            raise
        os.close(descriptor)
        return False


def attach(image: int, tail: str, *, sector: int, keep: bool) -> Loop:
    """The loop device of the open file `image`, whose path ends with `tail`; attached now unless it is.

    `sector` is the device's in bytes; it must not depend on whether the image shares blocks, which the
    kernel's own choice does. Without `keep` the device detaches itself when its last user closes it, which an
    unmount does. Raises OSError.
    """
    found = find(image, tail)
    if found is not None:
        if keep:
            found.keep()
        return found
    flags = _DIRECT_IO | (0 if keep else _AUTOCLEAR)
    name = tail[-63:].encode()
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    configuration = _CONFIG_HEAD.pack(image, sector) + info + _CONFIG_TAIL
    for _ in range(_ATTEMPTS):
        number = _free_number()
        descriptor = _open(number, os.O_RDWR)
        try:
            fcntl.ioctl(descriptor, _CONFIGURE, configuration)
        except OSError as error:
            os.close(descriptor)
            if error.errno != errno.EBUSY:  # somebody else was faster with this device
                raise
        else:
            return Loop(number, descriptor)
    raise OSError(errno.EBUSY, f"no loop device for {tail} after {_ATTEMPTS} attempts")


def find(image: int, tail: str) -> Loop | None:
    """The loop device that the open file is attached to. Raises OSError."""
    status = os.fstat(image)
    wanted = File(_encoded(status.st_dev), status.st_ino)
    for number, path in attached():
        if not path.removesuffix(DELETED).endswith(tail):
            continue
        loop = open_attached(number)
        if loop is None:
            continue
        if loop.file == wanted:
            return loop
        loop.close()
    return None


def attached() -> Iterator[tuple[int, str]]:
    """Numbers of the attached loop devices, and the paths of their files as some namespace sees them."""
    for entry in Path("/sys/block").iterdir():
        if entry.name.startswith("loop") and entry.name[4:].isdigit():
            with suppress(OSError):  # detached meanwhile
                yield (
                    int(entry.name[4:]),
                    os.fsdecode((entry / "loop/backing_file").read_bytes()).rstrip("\n"),
                )


@dataclass(frozen=True, slots=True)
class File:
    """The file of a loop device: its inode, and the device of its file system as the kernel writes it."""

    device: int
    inode: int


def of_file(file: os.stat_result) -> list[int]:
    """The numbers of the loop devices over one file."""
    wanted = File(_encoded(file.st_dev), file.st_ino)
    return [number for number, found in _files() if found == wanted]


def of_file_system(number: int) -> dict[int, int]:
    """The loop devices over files of the file system on loop device `number`, and the inodes of the files."""
    device = _encoded(os.makedev(_MAJOR, number))
    return {each: found.inode for each, found in _files() if found.device == device}


def holders(number: int) -> dict[int, File]:
    """The loop devices over loop device `number` itself, and the device nodes that they were given.

    As long as one of them is attached, that device stays open.
    """
    device = _encoded(os.makedev(_MAJOR, number))
    return {each: found.file for each, found in _open_ones() if found.below == device}


def detach(number: int) -> None:
    """Detach a loop device now, or when its last user closes it. Raises OSError."""
    loop = open_attached(number)
    if loop is not None:
        with loop:
            loop.detach()


def _files() -> Iterator[tuple[int, File]]:
    for number, loop in _open_ones():
        yield number, loop.file


def _open_ones() -> Iterator[tuple[int, AttachedLoop]]:
    for number, _ in attached():
        loop = open_attached(number)
        if loop is not None:
            with loop:
                yield number, loop


class AttachedLoop(Loop):
    """A device that was found attached."""

    def __init__(self, number: int, descriptor: int, file: File, below: int) -> None:
        super().__init__(number, descriptor)
        self.file = file
        self.below = below
        """The number of the device that `file` is, as the kernel writes it; 0 for a regular file."""


def open_attached(number: int) -> AttachedLoop | None:
    """Open an attached device; None if it has been detached. Raises OSError."""
    try:
        # Not for writing: that would fail for some, and have udev look at all of them afterwards.
        descriptor = _open(number, os.O_RDONLY)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return None
        raise
    info = bytearray(_INFO.size)
    try:
        fcntl.ioctl(descriptor, _GET_STATUS64, info)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.ENXIO:
            return None
        raise
    device, inode, below = _INFO.unpack(info)[:3]
    return AttachedLoop(number, descriptor, File(device, inode), below)


def _free_number() -> int:
    path = Path("/dev/loop-control")
    if not path.exists():
        _make_node(path, stat.S_IFCHR, os.makedev(10, _CONTROL_MINOR))
    control = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _GET_FREE, 0)
    finally:
        os.close(control)


def _node(number: int) -> Path:
    """The device's node. A container's /dev lacks the devices that were made after it started."""
    path = Path(f"/dev/loop{number}")
    if not path.exists():
        _make_node(path, stat.S_IFBLK, os.makedev(_MAJOR, number))
    return path


def _make_node(path: Path, kind: int, device: int) -> None:
    with suppress(FileExistsError):
        os.mknod(path, kind | 0o600, device)


def _open(number: int, flags: int) -> int:
    descriptor = os.open(_node(number), flags | os.O_CLOEXEC)
    if os.fstat(descriptor).st_rdev != os.makedev(_MAJOR, number):
        os.close(descriptor)
        raise OSError(errno.ENODEV, f"/dev/loop{number} is not that loop device")
    return descriptor


def _encoded(device: int) -> int:
    """A device number as the kernel's loop driver writes it."""
    major, minor = os.major(device), os.minor(device)
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)
