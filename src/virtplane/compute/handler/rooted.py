"""Access to files below a directory that others can write to, such as a launcher's file system or its
emptyDirs.

virt-handler is root on the node and the launcher is not to be trusted: it could plant a link where a file is
expected, also between a look and the use. The kernel resolves every path here (``openat2``): absolute links
lead where the container itself would go (``/var/run -> /run``), and none leads out of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from kubecore import openat2
from virtplane.api.launcherpods import QEMU_USER

READ_LIMIT = 4 << 20
"""Bytes of one file that are read: Kubernetes' own objects, which pods have mounted, end at 1 MiB."""

NAMES_LIMIT = 10_000
_PATH = os.O_PATH | os.O_CLOEXEC
_FOLDER = _PATH | os.O_DIRECTORY


class Root:
    """A folder, by its path or a descriptor of it, open until ``close``.

    Paths are relative to it, with or without a slash in front.

    With `beneath`, links that lead out of the folder are refused (OSError, EXDEV) rather than followed
    inside it; without `links`, every link is (ELOOP). All methods raise OSError.
    """

    def __init__(self, path: Path | str | int, *, beneath: bool = False, links: bool = True) -> None:
        self._descriptor = os.dup(path) if isinstance(path, int) else os.open(path, _FOLDER)
        self._resolve = openat2.NO_MAGIC_LINKS | (openat2.BENEATH if beneath else openat2.IN_ROOT)
        self._resolve |= 0 if links else openat2.NO_LINKS

    def __enter__(self) -> Root:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor of the directory."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> Iterator[int]:
        """The descriptor of a file or folder, for the time of the context."""
        descriptor = self._open(path, flags, mode)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, path: str, flags: int, mode: int = 0) -> int:
        return openat2.open_below(self._descriptor, path.strip("/") or ".", flags, self._resolve, mode)

    def mode(self, path: str) -> int:
        """The file's type and permissions, 0 if it does not exist."""
        try:
            with self.opened(path, _PATH) as descriptor:
                return os.fstat(descriptor).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return 0
            raise

    def is_file(self, path: str) -> bool:
        """Whether there is a regular file."""
        return stat.S_ISREG(self.mode(path))

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder."""
        return stat.S_ISDIR(self.mode(path))

    def is_block_device(self, path: str) -> bool:
        """Whether there is a block device."""
        return stat.S_ISBLK(self.mode(path))

    def names(self, folder: str) -> list[str]:
        """The sorted names in the directory. Raises OSError (E2BIG) if there are more than `NAMES_LIMIT`."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        with self.opened(folder, flags) as descriptor, os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, NAMES_LIMIT + 1))
        if len(names) > NAMES_LIMIT:
            raise OSError(errno.E2BIG, f"more than {NAMES_LIMIT} files in one folder", folder)
        return names

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """All of a regular file. Raises OSError: EFBIG for more than `limit` bytes, EINVAL for no file."""
        content = self.head(path, limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"more than {limit} bytes in one file", path)
        return content

    def head(self, path: str, count: int) -> bytes:
        """The first `count` bytes of a regular file, or all of it. Raises OSError (EINVAL for no file)."""
        with self.opened(path, _PATH) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            with _through(descriptor).open("rb") as file:
                return file.read(count)

    def texts(self, folder: str) -> dict[str, str]:
        """The visible files of a mounted secret by name.

        Raises OSError: EFBIG for more than `READ_LIMIT` bytes in all of them, EILSEQ for what is not UTF-8.
        """
        found: dict[str, str] = {}
        total = 0
        for name in self.names(folder):
            if name.startswith(".") or not self.is_file(f"{folder}/{name}"):
                continue
            content = self.read(f"{folder}/{name}", READ_LIMIT - total)
            total += len(content)
            try:
                found[name] = content.decode()
            except UnicodeDecodeError as error:
                raise OSError(errno.EILSEQ, "not text in UTF-8", f"{folder}/{name}") from error
        return found

    def size(self, path: str) -> int:
        """The file's length in bytes."""
        with self.opened(path, _PATH) as descriptor:
            return os.fstat(descriptor).st_size

    @contextlib.contextmanager
    def opened_disk(self, path: str, flags: int, *, block: bool = False) -> Iterator[int]:
        """The descriptor of a regular file, or with `block` of a block device.

        Nothing else is opened in its place: opening a pipe waits, and opening a device does something. Raises
        OSError as `give`.
        """
        with self._found(path, stat.S_ISBLK if block else stat.S_ISREG) as place:
            descriptor = os.open(_through(place), flags | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def give(
        self, path: str, owner: int = QEMU_USER, *, block: bool = False, device: int | None = None
    ) -> None:
        """Give a file to the user (and the group of the same number) that QEMU runs as.

        It must be a regular file, with `block` a block device, or the character device with the number
        `device`. Raises OSError: ELOOP where the last name of `path` is a link, ENODEV where it is anything
        else.
        """
        kind = stat.S_ISBLK if block else stat.S_ISREG if device is None else stat.S_ISCHR
        with self._found(path, kind) as descriptor:
            if device is not None and os.fstat(descriptor).st_rdev != device:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
            os.chown(_through(descriptor), owner, owner)

    def give_folder(self, path: str, owner: int = QEMU_USER) -> None:
        """Give a folder to the user that QEMU runs as.

        Raises OSError: ELOOP where a name of `path` is a link, ENOTDIR where the last is no folder.
        """
        resolve = self._resolve | openat2.NO_LINKS
        descriptor = openat2.open_below(
            self._descriptor, path.strip("/"), os.O_RDONLY | os.O_DIRECTORY, resolve
        )
        try:
            os.fchown(descriptor, owner, owner)
        finally:
            os.close(descriptor)

    def takes_direct_io(self, path: str, *, block: bool = False) -> bool:
        """Whether a regular file, with `block` a block device, can be written to past the page cache.

        Without that QEMU learns of a failure only when it flushes: it does not know what was lost, and lets
        no flush succeed any more until the guest is started anew. Raises OSError as `give` does.
        """
        with self._found(path, stat.S_ISBLK if block else stat.S_ISREG) as descriptor:
            try:
                os.close(
                    os.open(_through(descriptor), os.O_RDONLY | os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)
                )
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return False
                raise
            return True

    @contextlib.contextmanager
    def _found(self, path: str, is_fit: Callable[[int], bool]) -> Iterator[int]:
        """The place of a file of the right kind, without opening it."""
        with self.opened(path, _PATH | os.O_NOFOLLOW) as descriptor:
            mode = os.fstat(descriptor).st_mode
            if not is_fit(mode):
                number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENODEV
                raise OSError(number, os.strerror(number), path)
            yield descriptor

    def create(self, path: str, write: Callable[[int], None], owner: int = QEMU_USER) -> None:
        """Create a file atomically: `write` fills a new file, which then gets its owner and is renamed.

        Missing directories are created with the same owner. An existing file is replaced. Nothing is left of
        a file that could not be written.
        """
        folder, _, name = path.strip("/").rpartition("/")
        self.make_folders(folder, owner)
        with self.opened(folder, _FOLDER) as parent:
            fresh = f".{name}.new"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(fresh, flags, 0o660, dir_fd=parent)
            try:
                write(descriptor)
                os.fchown(descriptor, owner, owner)
                os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=parent)
                raise
            finally:
                os.close(descriptor)

    def copy(self, source: Path, path: str) -> None:
        """Create a file with the content of one of the node's files."""
        content = source.read_bytes()

        def write(descriptor: int) -> None:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content)

        self.create(path, write)

    def make_folders(self, path: str, owner: int = QEMU_USER) -> None:
        """Create the directory and its parents if they do not exist."""
        parts = [part for part in path.split("/") if part]
        for depth, name in enumerate(parts):
            with self.opened("/".join(parts[:depth]), _FOLDER) as parent:
                try:
                    os.mkdir(name, 0o755, dir_fd=parent)
                except FileExistsError:
                    continue
                os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def _through(descriptor: int) -> Path:
    """The path of what a descriptor stands for, whatever has become of its name."""
    return Path(f"/proc/self/fd/{descriptor}")
