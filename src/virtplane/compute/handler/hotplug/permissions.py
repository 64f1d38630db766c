"""Which block devices the launcher's cgroup may open, besides those that its container has from the start.

The devices that belong to the container are those of its pod that have nodes in its ``/dev``, if that is the
file system in memory that the container runtime makes. A process of the pod can have another ``/dev``, of an
image or a claim, by the mounts of a container that was added to the pod, or by a namespace of its own; images
and claims hold nodes of whatever devices their authors chose. Everything else that virt-handler has ever
allowed is taken back when it is no longer wanted, also when nobody remembers it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kubecore import mountinfo
from virtplane.compute.handler.hotplug import filters
from virtplane.compute.handler.hotplug.filters import ANY, BLOCK, CHARACTER, MAKE, Rule
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.rooted import Root

_FOLDERS = 64
"""More than any container's ``/dev`` has."""
_LISTED = re.compile(r"b (\d+):(\d+) [rwm]+", re.ASCII)
_FOR_ALL = (
    Rule(BLOCK, access=MAKE),
    Rule(CHARACTER, access=MAKE),
    *(Rule(CHARACTER, major, minor) for major, minor in ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9))),
    *(Rule(CHARACTER, 5, minor) for minor in (0, 1, 2)),
    Rule(CHARACTER, 136, ANY),
)
"""What container runtimes allow every container: null, zero, full, random numbers, terminals."""


_IN_MEMORY = 0x01021994
"""What statfs(2) calls a tmpfs."""
_STATFS_BYTES = 512
"""More than its structure has on any architecture."""


class ForeignDevices(OSError):
    """The launcher's ``/dev`` is not the one that container runtimes make."""


class NoCgroup(OSError):
    """The launcher's cgroup for devices was not found."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup's folder on the node."""

    path: Path
    is_unified: bool
    """True for cgroup v2."""


def allow(
    launcher: Process, numbers: Collection[int], of_pod: Collection[int], host: Path = Path("/proc/self")
) -> None:
    """Let the launcher open the block devices `numbers`, and no other ones but its container's own.

    `of_pod` are those that the kubelet has given to its pod: nodes of others in its ``/dev`` can be the work
    of a root in the container. `host` is the ``/proc`` folder of a process that sees the node's cgroups.
    virt-handler has them mounted, as it may not be allowed to look into the first process. Raises NoCgroup,
    ForeignDevices, OSError.
    """
    group = cgroup_of(launcher, host)
    with launcher.root() as root:
        own = {node for node in _nodes(root) if node[0] == CHARACTER or node[1] in of_pod}
    if group.is_unified:
        given = [Rule(BLOCK, os.major(each), os.minor(each)) for each in sorted(numbers)]
        kept = [Rule(kind, os.major(each), os.minor(each)) for kind, each in sorted(own)]
        descriptor = os.open(group.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            filters.enforce(descriptor, [*_FOR_ALL, *kept, *given])
        finally:
            os.close(descriptor)
        return
    listed = {
        os.makedev(int(a), int(b)) for a, b in _LISTED.findall((group.path / "devices.list").read_text())
    }
    for each in sorted(listed - set(numbers) - {number for kind, number in own if kind == BLOCK}):
        _write(group, "devices.deny", each)
    for each in sorted(set(numbers) - listed):
        _write(group, "devices.allow", each)


def _write(group: Cgroup, name: str, number: int) -> None:
    # One write for each: the kernel takes one device at a time.
    (group.path / name).write_text(f"b {os.major(number)}:{os.minor(number)} rwm")


def cgroup_of(launcher: Process, host: Path = Path("/proc/self")) -> Cgroup:
    """The cgroup that decides about the launcher's devices. Raises NoCgroup, OSError."""
    named = launcher.cgroups()
    path = _named(named, "devices")
    is_unified = path is None
    if path is None:
        path = _named(named, "")
    for root, point in _mounts((host / "mountinfo").read_bytes(), unified=is_unified):
        below = _below(path or "/", root)
        found = host / "root" / point.lstrip("/") / below
        with contextlib.suppress(FileNotFoundError):
            if str(launcher.pid) in (found / "cgroup.procs").read_text().split():
                return Cgroup(found, is_unified)
    raise NoCgroup(f"the cgroup of launcher {launcher.pid}, {path}, is not mounted on the node")


def _named(table: str, controller: str) -> str | None:
    for line in table.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and bool(controllers) == bool(controller):
            return path
    return None


def _mounts(table: bytes, *, unified: bool) -> Iterator[tuple[str, str]]:
    """Root and place of the mounts of the device controller (of all of cgroup v2) in a ``mountinfo``."""
    for line in map(os.fsdecode, mountinfo.rows(table)):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split(" ")[3:5]
        if kind == ("cgroup2" if unified else "cgroup") and (unified or "devices" in options.split(",")):
            yield root, point


def _below(path: str, root: str) -> str:
    """The path of a cgroup below the mount of the cgroup `root`."""
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.lstrip("/")


def _nodes(root: Root) -> Iterator[tuple[int, int]]:
    """Kind and number of the device nodes in the container's ``/dev``, but not in what is mounted there."""
    with root.opened("dev", os.O_PATH | os.O_NOFOLLOW) as descriptor:
        own = os.fstat(descriptor).st_dev
        if _file_system(descriptor) != _IN_MEMORY:
            raise ForeignDevices("the launcher's /dev is not that of its container's runtime")
    folders = ["dev"]
    for _ in range(_FOLDERS):
        if not folders:
            return
        folder = folders.pop()
        for name in root.names(folder):
            found = _status(root, f"{folder}/{name}")
            if found is None or found.st_dev != own:
                continue
            if stat.S_ISBLK(found.st_mode):
                yield BLOCK, found.st_rdev
            elif stat.S_ISCHR(found.st_mode):
                yield CHARACTER, found.st_rdev
            elif stat.S_ISDIR(found.st_mode):
                folders.append(f"{folder}/{name}")


def _status(root: Root, path: str) -> os.stat_result | None:
    try:
        with root.opened(path, os.O_PATH | os.O_NOFOLLOW) as descriptor:
            return os.fstat(descriptor)
    except FileNotFoundError:
        return None


def _file_system(descriptor: int) -> int:
    """The type of a file's file system, as statfs(2) has it."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fstatfs(descriptor, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    # A number of the machine's size, or of 32 bits: its lower half is at the same place where that matters.
    return int.from_bytes(buffer.raw[:4], sys.byteorder)
