"""A node's own mount, network and UTS namespaces, kept alive by files so that processes come and go.

``STATE/nodes/NAME/ns/{mnt,net,uts}`` are bind mounts of the namespaces. Inside, /run is the node's own, and
/var/lib/kubelet, /var/log/pods, /var/log/containers and /var/lib/cni are directories of
``STATE/nodes/NAME``. Mounts made in the node stay in it; mounts made on the machine later appear in it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from kindling.cluster import machine
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import REGISTRY, Instance, NodeLayout, write_atomically
from kubecore.mountinfo import mount_points_below

MOUNT_POINTS = (
    "/var/lib/kubelet",
    "/var/log/pods",
    "/var/log/containers",
    "/var/lib/cni",
    "/var/lib/storage",
)
_KINDS = ("mnt", "net", "uts")
_CLONE_FLAGS = {"mnt": 0x00020000, "net": 0x40000000, "uts": 0x04000000}
_MOUNT_FLAGS = {"mnt": "mount", "net": "net", "uts": "uts"}

_SETUP = """\
set -e
# Namespaces that other nodes keep alive on the machine must not be kept alive from here as well.
awk '{ for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "nsfs") print $5 }' /proc/self/mountinfo |
  while read -r point; do umount -l "$point" || true; done
hostname "$NODE_NAME"
mount -t tmpfs -o mode=755,nosuid,nodev kindling-run /run
mkdir -p /run/lock /run/containerd /run/netns
mkdir -p "$NODE_DIR/kubelet" "$NODE_DIR/pod-logs" "$NODE_DIR/container-logs" "$NODE_DIR/cni"
mount --bind "$NODE_DIR/kubelet" /var/lib/kubelet
mount --bind "$NODE_DIR/pod-logs" /var/log/pods
mount --bind "$NODE_DIR/container-logs" /var/log/containers
mount --bind "$NODE_DIR/cni" /var/lib/cni
# Only now, so that the directories above do not become peers of the places they come from: every mount of a
# pod's volume would appear in both.
mount --make-rshared /
ip link set lo up
"""


def exists(node: NodeLayout) -> bool:
    """Whether the node's namespaces are alive."""
    return all(_is_namespace(node.namespaces / kind) for kind in _KINDS)


def create(instance: Instance, node: NodeLayout) -> None:
    """Make the node's namespaces unless they are alive. Raises SetupError."""
    if exists(node):
        return
    destroy(node)
    make_mount_points(instance)
    node.namespaces.mkdir(parents=True, exist_ok=True)
    # A bind mount of a mount namespace is possible only on a mount with private propagation.
    what = f"namespaces of {node.name}"
    machine.run(["mount", "--bind", str(node.namespaces), str(node.namespaces)], what=what)
    machine.run(["mount", "--make-private", str(node.namespaces)], what=what)
    arguments = []
    for kind in _KINDS:
        (node.namespaces / kind).touch()
        arguments.append(f"--{_MOUNT_FLAGS[kind]}={node.namespaces / kind}")
    script = f"NODE_NAME={node.name} NODE_DIR='{node.directory}'\n{_SETUP}"
    try:
        _run_on_some_processor(["unshare", *arguments, "--propagation=slave", "sh", "-c", script], what)
    except SetupError:
        destroy(node)
        raise


def _run_on_some_processor(command: list[str], what: str) -> None:
    """Run a command that makes namespaces; where that fails, once more on each processor in turn.

    The kernel binds a mount namespace to a file only when its number is above the current namespace's, and
    Linux 6.18 numbers namespaces from a stock of each processor: within a container, whose own namespace
    has a high number already, every attempt fails on some processors and none on others.
    """
    try:
        machine.run(command, what=what)
    except SetupError:
        processors = sorted(os.sched_getaffinity(0))
        for number in processors:
            try:
                machine.run(["taskset", "--cpu-list", str(number), *command], what=what)
            except SetupError:
                if number == processors[-1]:
                    raise
            else:
                return


def enter_command(node: NodeLayout) -> list[str]:
    """The prefix that runs a command inside the node."""
    return ["nsenter", *(f"--{_MOUNT_FLAGS[kind]}={node.namespaces / kind}" for kind in _KINDS)]


def enter(node: NodeLayout) -> None:
    """Move this process, which must have one thread only, into the node. Raises SetupError."""
    libc = ctypes.CDLL(None, use_errno=True)
    directory = Path.cwd()
    descriptors = {kind: os.open(node.namespaces / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS}
    for kind, descriptor in descriptors.items():
        if libc.setns(descriptor, _CLONE_FLAGS[kind]) != 0:
            raise SetupError(f"entering the {kind} namespace of {node.name}", os.strerror(ctypes.get_errno()))
        os.close(descriptor)
    os.chdir(directory)


def processes(node: NodeLayout) -> list[int]:
    """Processes in the node's mount or network namespace, or in a pod of its containerd's shims."""
    wanted = {_identity(node.namespaces / kind) for kind in ("mnt", "net")} - {None}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and wanted & {_identity(entry / "ns" / kind) for kind in ("mnt", "net")}:
            found.append(int(entry.name))
    return found


def kill(pids: list[int], *, timeout_seconds: float = 5.0) -> list[int]:
    """Kill processes by ID and wait for them to end; returns those still running."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + timeout_seconds
    while (left := [pid for pid in pids if _is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def destroy(node: NodeLayout) -> None:
    """Unmount the namespace files; the kernel frees each namespace when its last process ends."""
    for kind in _KINDS:
        while _is_namespace(node.namespaces / kind):
            machine.run(
                ["umount", "-l", str(node.namespaces / kind)], what=f"unmounting {kind} of {node.name}"
            )
    while node.namespaces.is_dir() and os.path.ismount(node.namespaces):
        machine.run(["umount", "-l", str(node.namespaces)], what=f"unmounting {node.namespaces}")
    for mount in mount_points_below(node.namespaces):
        machine.run(["umount", "-l", str(mount)], what=f"unmounting {mount}")


def remove_mount_points(created: list[str]) -> None:
    """Remove directories that instances created on the machine, deepest first, unless they are not empty."""
    for point in reversed(created):
        try:
            Path(point).rmdir()
        except OSError:
            continue


def make_mount_points(instance: Instance) -> None:
    """Make the directories on the machine that nodes mount their own over, and record which are new."""
    records = mount_point_records(instance)
    created = created_mount_points(instance)
    for point in MOUNT_POINTS:
        if not Path(point).is_dir():
            Path(point).mkdir(parents=True)
            created.append(point)
    for record in records:
        write_atomically(record, ("\n".join(created) + "\n").encode())


def mount_point_records(instance: Instance) -> list[Path]:
    """The files that record which directories instances created: one until the next boot, one permanent."""
    return [REGISTRY / "mount-points", instance.state / "mount-points"]


def created_mount_points(instance: Instance) -> list[str]:
    """The directories that this or another instance of the machine made."""
    lines = [record.read_text().split() for record in mount_point_records(instance) if record.exists()]
    return list(dict.fromkeys(point for points in lines for point in points))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _is_namespace(path: Path) -> bool:
    own = _identity(Path("/proc/self/ns/mnt"))
    found = _identity(path)
    return own is not None and found is not None and found[0] == own[0]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False
