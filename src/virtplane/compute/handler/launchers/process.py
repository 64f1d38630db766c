"""A process of a launcher pod, identified by descriptors.

A process ID may be reused between two uses. So everything is opened once, while the process is known to live,
and then used by descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import socket
import struct
import threading
from pathlib import Path

from virtplane.compute.handler.rooted import Root

_SO_PEERPIDFD = 77
"""Linux 6.5 and newer; before, the number could become another process's before it is looked up."""

_NO_PROCESS = (errno.ESRCH, errno.EINVAL, errno.ENODATA)
"""The kernel's answers for a process that has ended; others (no descriptors left) say nothing about it."""

_CGROUP_BYTES = 65536
_ENVIRONMENT_BYTES = 1 << 20
_POD = re.compile(
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?$", re.ASCII
)
"""A pod's cgroup: ``pod<uid>`` (cgroupfs driver), ``kubepods-burstable-pod<uid with _>.slice`` (systemd)."""


class ForeignProcess(Exception):
    """The process that listens on a launcher's socket is not in its pod, or uses the node's network."""

    def __init__(self, pid: int, pod_uid: str, why: str) -> None:
        super().__init__(f"process {pid} does not belong to pod {pod_uid}: {why}")
        self.pid = pid
        self.pod_uid = pod_uid


class Process:
    """A running process, with descriptors of its root directory and network namespace. Close it after use."""

    def __init__(self, pid: int, ended: int, root: int, network: int) -> None:
        self.pid = pid
        """For messages, and for what is read while the process is known to live."""
        self.ended = ended
        """A descriptor that is readable once the process has ended."""
        self._root = root
        self._network = network
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._is_open and _is_alive(self.ended)

    def root(self) -> Root:
        """A descriptor of its root directory. Raises OSError when closed."""
        with self._lock:
            self._require_open()
            return Root(self._root)

    def environment(self) -> dict[str, str]:
        """The variables that the process was started with, as far as it has left them alone.

        Raises OSError when it has ended, and for more than `_ENVIRONMENT_BYTES`.
        """
        with open(_open(self.pid, "environ", os.O_RDONLY), "rb") as file:
            found = file.read(_ENVIRONMENT_BYTES + 1)
        if not self.is_alive:
            # Otherwise the number could be another process's by now.
            raise ProcessLookupError(f"process {self.pid} has ended")
        if len(found) > _ENVIRONMENT_BYTES:
            raise OSError(
                errno.EFBIG, f"process {self.pid} has more than {_ENVIRONMENT_BYTES} bytes of variables"
            )
        pairs = (entry.partition("=") for entry in found.decode(errors="replace").split("\0"))
        return {name: value for name, equals, value in pairs if equals}

    def network(self) -> int:
        """A descriptor of its network namespace, the caller's to close. Raises OSError when closed."""
        with self._lock:
            self._require_open()
            return os.dup(self._network)

    def cgroups(self) -> str:
        """The lines of its ``/proc/<pid>/cgroup``. Raises OSError when it has ended."""
        with open(_open(self.pid, "cgroup", os.O_RDONLY), "rb") as file:
            found = file.read(_CGROUP_BYTES).decode(errors="replace")
        if not self.is_alive:
            raise ProcessLookupError(f"process {self.pid} has ended")
        return found

    def close(self) -> None:
        """Close the descriptors; the process keeps running."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                for descriptor in (self.ended, self._root, self._network):
                    os.close(descriptor)

    def _require_open(self) -> None:
        if not self._is_open:
            raise ProcessLookupError(f"process {self.pid} was closed")


def pods_of(cgroups: str) -> set[str]:
    """The UIDs of the pods that the lines of a ``/proc/<pid>/cgroup`` name."""
    names = (name for line in cgroups.splitlines() for name in line.split(":", 2)[-1].split("/"))
    return {found["uid"].replace("_", "-") for found in map(_POD.search, names) if found}


def peer_process(peer: socket.socket, pod_uid: str) -> Process:
    """The process that listens on the other end of the connected socket `peer`.

    With `pod_uid` it must be in that pod's cgroup and have another network than this node; the empty string
    stands for a launcher that the node itself started. Raises ForeignProcess, and OSError when it has ended.
    """
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    with contextlib.ExitStack() as on_failure:
        ended = _pidfd(peer, pid)
        on_failure.callback(os.close, ended)
        try:
            root = _open(pid, "root", os.O_PATH | os.O_DIRECTORY)
            on_failure.callback(os.close, root)
            network = _open(pid, "ns/net", os.O_RDONLY)
            on_failure.callback(os.close, network)
            with open(_open(pid, "cgroup", os.O_RDONLY), "rb") as file:
                cgroups = file.read(_CGROUP_BYTES).decode(errors="replace")
        except FileNotFoundError as error:
            raise ProcessLookupError(f"process {pid} has ended") from error
        if not _is_alive(ended):
            # The process lives, so its ID was not reused: everything opened so far belongs to it.
            raise ProcessLookupError(f"process {pid} has ended")
        if pod_uid:
            _check(pid, pod_uid, cgroups, network)
        on_failure.pop_all()
    return Process(pid, ended, root, network)


def _check(pid: int, pod_uid: str, cgroups: str, network: int) -> None:
    pods = pods_of(cgroups)
    if pod_uid not in pods:
        raise ForeignProcess(pid, pod_uid, f"its cgroup is that of {', '.join(sorted(pods)) or 'no pod'}")
    if os.fstat(network).st_ino in _own_networks():
        raise ForeignProcess(pid, pod_uid, "it shares the node's network")


def _pidfd(peer: socket.socket, pid: int) -> int:
    try:
        return peer.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:
            return os.pidfd_open(pid)
        if error.errno in _NO_PROCESS:
            raise ProcessLookupError(f"process {pid} has ended") from error
        raise


def _is_alive(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def _open(pid: int, name: str, flags: int) -> int:
    return os.open(f"/proc/{pid}/{name}", flags | os.O_CLOEXEC)


def _own_networks() -> set[int]:
    """The network namespaces of this process and of the node's PID 1, which may be invisible in a
    container.
    """
    found = set()
    for process in ("self", "1"):
        with contextlib.suppress(PermissionError):
            found.add(Path(f"/proc/{process}/ns/net").stat().st_ino)
    return found
