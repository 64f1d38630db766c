"""The launcher's folder of hotplugged volumes: mounts of disks' files and of file systems, device nodes.

Blocks (runs in a thread).

The launcher may write to the folder. So nothing in it is believed but mounts, which only the node makes, and
nothing in it is opened: what is there is created, or taken away, by its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from kubecore.mountinfo import mount_points_below
from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.handler.rooted import NAMES_LIMIT, Root
from virtplane.compute.handler.storage.heldimages import mount_tree, unmount

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_FILE = ".img"
_MODE = 0o660


class Folder:
    """The folder `path` of one launcher pod, as virt-handler sees it. All methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exists(self) -> bool:
        """Whether the pod has such a folder; one without is never plugged into."""
        return self._path.is_dir()

    def mounted(self) -> tuple[set[str], set[str]]:
        """The volumes whose disks are mounted, and those whose file systems are, by one look."""
        found = {point.name for point in mount_points_below(self._path) if point.parent == self._path}
        disks = {name.removesuffix(_FILE) for name in found if name.endswith(_FILE)}
        return {name for name in disks if is_name(name)}, {name for name in found if is_name(name)}

    def files(self) -> set[str]:
        """The volumes whose disks are mounted."""
        return self.mounted()[0]

    def folders(self) -> set[str]:
        """The volumes whose file systems are mounted."""
        return self.mounted()[1]

    def devices(self) -> set[str]:
        """The volumes that have device nodes. The launcher can hide its own, which leaves their
        permissions.
        """
        if not self.exists:
            return set()
        with self._opened() as folder, os.scandir(folder) as entries:
            found = [entry.name for _, entry in zip(range(NAMES_LIMIT), entries, strict=False)]
        return {name for name in found if is_name(name) and self._number(name) is not None}

    def mount(self, volume: str, tree: int) -> None:
        """Mount the disk that the descriptor `tree` stands for, which is closed."""
        with Root(self._path, beneath=True) as root:
            mount_tree(tree, root, volume + _FILE)

    def mount_folder(self, volume: str, tree: int) -> None:
        """Mount the file system that the descriptor `tree` stands for, which is closed."""
        with Root(self._path, beneath=True) as root:
            mount_tree(tree, root, volume, is_folder=True)

    def make_device(self, volume: str, number: int) -> None:
        """Make the device node, for QEMU to open."""
        if self._number(volume) == number:
            return
        with self._opened() as folder:
            fresh = f".{volume}.new"
            for name in (volume, fresh):
                _unlink(name, folder)
            os.mknod(fresh, stat.S_IFBLK | _MODE, number, dir_fd=folder)
            os.chown(fresh, QEMU_USER, QEMU_USER, dir_fd=folder, follow_symlinks=False)
            os.rename(fresh, volume, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, volume: str) -> None:
        """Take away the volume's mount of a file or device node, whichever is there."""
        self._unmount(volume + _FILE)
        if self.exists:
            with self._opened() as folder:
                for name in (volume + _FILE, volume):
                    _unlink(name, folder)

    def remove_folder(self, volume: str) -> None:
        """Take away the mount of the volume's file system."""
        self._unmount(volume)
        if self.exists:
            with self._opened() as folder, contextlib.suppress(FileNotFoundError, NotADirectoryError):
                try:
                    os.rmdir(volume, dir_fd=folder)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:  # what the launcher has put below is its own
                        raise

    def _unmount(self, name: str) -> None:
        for point in mount_points_below(self._path):
            if point == self._path / name:
                unmount(point)

    def _number(self, volume: str) -> int | None:
        try:
            found = os.lstat(self._path / volume)
        except FileNotFoundError:
            return None
        return found.st_rdev if stat.S_ISBLK(found.st_mode) else None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def is_name(volume: str) -> bool:
    """Whether a volume's name is what admission lets pass: it becomes the name of a file."""
    return _NAME.fullmatch(volume) is not None


def _unlink(name: str, folder: int) -> None:
    """Remove the file; what the launcher has put there instead is its own to clean up."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=folder)
