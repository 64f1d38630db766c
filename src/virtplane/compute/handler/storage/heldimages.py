"""Disks of images that a container of the pod holds, mounted where the guest's container sees them.

Where a cluster has no image volumes, the launcher pod has a container for each container disk that does
nothing but keep its image. virt-handler clones the disk's mount out of that container's file system and
attaches it, read-only, to a file in the pod's ``container-disks`` folder; the kernel propagates it to the
guest's container.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from kubecore.mountinfo import is_mount_point, mount_points_below
from virtplane.api.launcherpods import image_holder
from virtplane.compute.handler.launchers.process import pods_of
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.storage.images import BadImage, only_disk

logger = logging.getLogger(__name__)

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""The numbers of these system calls are the same on every architecture."""

_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_FROM_DESCRIPTOR, _MOVE_TO_DESCRIPTOR = 0x04, 0x40
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 0x01, 0x02, 0x04, 0x08
_CLONE_FS, _CLONE_NEWNS = 0x00000200, 0x00020000
_DETACH, _NO_FOLLOW = 0x02, 0x08
_PROC_BYTES = 65536
"""More than any cgroup file or command line that is looked for."""
_FOLDERS = ("container-disks", "hotplug-disks")
"""The emptyDirs of launcher pods in which virt-handler mounts disks."""


class NotHeld(Exception):
    """No container of the pod holds the volume's image yet."""


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class HeldImage:
    """The image that a pod holds for a volume. `path` is the disk's place; empty: the only file in /disk."""

    pod_uid: str
    volume: str
    path: str = ""


def mount_disk(held: HeldImage, folder: Path, name: str, proc: Path = Path("/proc")) -> None:
    """Mount the image's disk on ``folder/name``; repeatable.

    Raises NotHeld while the container does not run, BadImage where the image has no such disk, and OSError.
    """
    with Root(folder, beneath=True) as target:
        if is_mount_point(folder / name):
            return
        with _holder(held, proc) as process:
            tree = clone_mount(process, lambda image: only_disk(image, held.path.strip("/")))
        mount_tree(tree, target, name)


def mount_tree(tree: int, target: Root, name: str, *, is_folder: bool = False) -> None:
    """Mount what `clone_mount` has made on a new file `name`, or a folder, in the folder `target`; closes
    `tree`.

    Raises OSError.
    """
    try:
        if is_folder:
            target.make_folders(name)
        else:
            target.create(name, lambda _: None)
        flags = os.O_PATH | os.O_NOFOLLOW | (os.O_DIRECTORY if is_folder else 0)
        with target.opened(name, flags) as place:
            _call(_MOVE_MOUNT, tree, b"", place, b"", _MOVE_FROM_DESCRIPTOR | _MOVE_TO_DESCRIPTOR)
    finally:
        os.close(tree)


def unmount_all(folder: Path) -> None:
    """Take away every mount in `folder`, so that the pod's folder can be removed."""
    for point in mount_points_below(folder):
        unmount(point)


def unmount(point: Path) -> None:
    """Take away the mount at `point`, at once and also from where it was propagated to. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _DETACH | _NO_FOLLOW) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(point))


def unmount_orphans(pods: Path, proc: Path = Path("/proc")) -> list[str]:
    """Unmount the disks of pods that have no process left; their uids. `pods` is the kubelet's pods folder.

    For the start of virt-handler: a pod that ended before could not be cleaned up after. One whose disks
    cannot be unmounted is logged and left out. Raises OSError where mounts or processes cannot be read.
    """
    mounted = {
        point.relative_to(pods).parts[0]
        for point in mount_points_below(pods)
        if any(folder in point.parts for folder in _FOLDERS)
    }
    orphans = sorted(mounted - _pods_with_processes(proc)) if mounted else []
    return [uid for uid in orphans if _is_unmounted(uid, pods)]


def _is_unmounted(uid: str, pods: Path) -> bool:
    try:
        for folder in _FOLDERS:
            unmount_all(pods / uid / "volumes" / "kubernetes.io~empty-dir" / folder)
    except OSError as error:
        logger.warning(
            "Disks of an ended pod could not be unmounted: the kubelet cannot remove the pod."
            " Restart virt-handler on this node to try again",
            extra={"pod": uid, "err": str(error)},
        )
        return False
    return True


def _pods_with_processes(proc: Path) -> set[str]:
    found: set[str] = set()
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # the process has ended
                found |= pods_of(_read(entry / "cgroup").decode(errors="replace"))
    return found


@contextlib.contextmanager
def _holder(held: HeldImage, proc: Path) -> Iterator[int]:
    """The ``/proc/PID`` directory of the container that holds the image, opened so that the process ID cannot
    be reused.
    """
    with contextlib.closing(processes_of(held.pod_uid, proc)) as found:
        for process in found:
            if _holds(process, held):
                yield process
                return
    raise NotHeld(f"no container of pod {held.pod_uid} holds the image of volume {held.volume}")


def processes_of(pod_uid: str, proc: Path = Path("/proc")) -> Generator[int]:
    """The ``/proc/PID`` directories of a pod's processes, each open until the next is asked for."""
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            process = os.open(entry, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if _is_of(process, pod_uid):
                yield process
        finally:
            os.close(process)


def _is_of(process: int, pod_uid: str) -> bool:
    try:
        return pod_uid in pods_of(_read("cgroup", process).decode(errors="replace"))
    except OSError:
        return False  # the process has ended


def _holds(process: int, held: HeldImage) -> bool:
    try:
        return _read("cmdline", process).split(b"\0")[-2:-1] == [image_holder(held.volume).encode()]
    except OSError:
        return False  # the process has ended


def _read(path: Path | str, folder: int | None = None) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
        return file.read(_PROC_BYTES)


def clone_mount(
    process: int, find: Callable[[Root], str], *, read_only: bool = True, is_folder: bool = False
) -> int:
    """A detached copy of the mount of one file, or folder, in a container's file system; a descriptor of it.

    `process` is the ``/proc/PID`` directory of a process of the container. `find` gets its file system and
    returns the path of the file. Raises BadImage where that is no regular file, or no folder, OSError, and
    what `find` raises.
    """
    future: Future[int] = Future()

    def enter_and_run() -> None:
        # The thread enters the container's mount namespace, and then ends.
        try:
            future.set_result(_clone(process, find, read_only=read_only, is_folder=is_folder))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=enter_and_run, name="held-image", daemon=True)
    thread.start()
    return future.result()


def _clone(process: int, find: Callable[[Root], str], *, read_only: bool, is_folder: bool) -> int:
    """See `clone_mount`. The kernel copies only mounts of the caller's namespace, so the calling thread
    enters the container's.
    """
    link = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    namespace = os.open("ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        with Root(f"/proc/self/fd/{link}", beneath=True) as image:
            disk = find(image)
            with image.opened(disk, os.O_PATH | os.O_NOFOLLOW) as file:
                mode = os.fstat(file).st_mode
                if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
                    raise BadImage(f"/{disk} is not a {'folder' if is_folder else 'regular file'}")
                if libc.unshare(_CLONE_FS) != 0 or libc.setns(namespace, _CLONE_NEWNS) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), "entering the container's mount namespace")
                tree = _call(_OPEN_TREE, file, b"", _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH)
    finally:
        os.close(namespace)
        os.close(link)
    try:
        flags = _Attributes(set=(_READ_ONLY if read_only else 0) | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
        _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(flags), ctypes.sizeof(flags))
    except BaseException:
        os.close(tree)
        raise
    return tree


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
