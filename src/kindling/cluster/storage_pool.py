"""The machine's storage pool: one sparse file with XFS, which the nodes share, for a storage provisioner.

In every node, /var/lib/storage is the file system of ``STATE/pool.img``. Its directory ``shared`` is the same
for all nodes, and ``local`` is the node's own. A file system of its own, so that full volumes do not fill the
machine's; XFS, because it copies files by reference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kindling.cluster import machine, namespaces
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.instance import Instance, NodeLayout
from kubecore import loop_devices

Progress = Callable[[str], None]

MOUNT_POINT = "/var/lib/storage"
_FILE = "pool.img"
_GIB = 2**30
_SMALLEST = 512 * 2**20
"""XFS refuses file systems below 300 MiB."""
_SHARE = 0.8
"""Of the free space: what a new pool may use where no size is given. The file grows only as it is written."""
_RELEASE_SECONDS = 5.0
_HELD_DEVICES = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices"
"""Below it, the node agent has the devices of block volumes, each held open by a loop device over it. That
would outlive the node, and no driver could detach the volume any more."""

_MOUNT = """\
set -e
mountpoint -q "$POOL" || mount -t xfs -o loop,nodev,discard "$FILE" "$POOL"
mkdir -p "$POOL/shared" "$POOL/local" "$POOL/nodes/$NODE_NAME"
mountpoint -q "$POOL/local" && exit 0
mount --bind "$POOL/nodes/$NODE_NAME" "$POOL/local"
# A bind mount is a peer of the place it comes from: mounts made in one would appear in the other.
mount --make-private "$POOL/local"
mount --make-shared "$POOL/local"
"""


def pool_file(instance: Instance) -> Path:
    """The file that holds the pool; it does not exist where there is no pool."""
    return instance.state / _FILE


def ensure(instance: Instance, size: int | None, progress: Progress) -> bool:
    """Make the pool file, or let it grow to `size` bytes; returns whether there is a pool.

    Without a size, a new pool may take most of the free space, and an existing one stays as it is. A size of
    0 makes none, also later. A machine that cannot mount XFS has no pool, which is an error only if a size is
    given. Raises SetupError.
    """
    file = pool_file(instance)
    if file.exists():
        _grow(file, size)
        return True
    if size == 0 or not instance.wants_storage:
        return False
    if problem := _cannot_mount():
        if size is not None:
            raise SetupError("--storage", problem, "--storage=0 starts without it", code=ExitCode.UNUSABLE)
        progress(f"no storage pool: {problem}")
        return False
    _make(file, size or _default_size(instance.state))
    return True


def mount(instance: Instance) -> None:
    """Mount the pool in every node that lacks it, and let the file system fill its file.

    Raises SetupError.
    """
    namespaces.make_mount_points(instance)
    nodes = instance.running_nodes()
    for node in nodes:
        script = f"POOL={MOUNT_POINT} FILE='{pool_file(instance)}' NODE_NAME={node.name}\n{_MOUNT}"
        _run_in(node, ["sh", "-c", script], what=f"mounting the storage pool in {node.name}")
    for node in nodes[:1]:
        _run_in(node, ["xfs_growfs", "-d", MOUNT_POINT], what="growing the storage pool")


def detach_own(instance: Instance, node: NodeLayout) -> None:
    """Detach the loop devices by which the node holds block volumes, and those over files of its own.

    Those over shared files may be in use by other nodes.
    """
    pools = loop_devices.of_file(pool_file(instance).stat()) if pool_file(instance).exists() else []
    volumes = {loop: inode for pool in pools for loop, inode in loop_devices.of_file_system(pool).items()}
    if not volumes or not namespaces.exists(node):
        return
    held = _find_in(node, f"{_HELD_DEVICES} -type b", "%D %i")
    for volume in volumes:
        for holder, file in loop_devices.holders(volume).items():
            if (file.device, file.inode) in held:
                loop_devices.detach(holder)
    own = _find_in(node, f"{MOUNT_POINT}/local -xdev -type f", "%i")
    for volume, inode in volumes.items():
        if (inode,) in own:
            loop_devices.detach(volume)


def _find_in(node: NodeLayout, conditions: str, numbers: str) -> set[tuple[int, ...]]:
    """The numbers of each file that `find` finds in the node."""
    script = f"find {conditions} -printf '{numbers}\\n'"
    command = [*namespaces.enter_command(node), "sh", "-c", script]
    found = machine.run(command, what=f"volumes of {node.name}", check=False)
    return {tuple(int(word) for word in line.split()) for line in found.splitlines()}


def remove_own(instance: Instance, node: NodeLayout) -> None:
    """Remove the node's own directory from the pool. Raises SetupError."""
    if not pool_file(instance).exists():
        return
    # In a mount namespace of its own, which ends with the command: perhaps no node runs.
    script = f'mount -t xfs -o loop,nodev "$0" {MOUNT_POINT} && rm -rf --one-file-system -- "$1"'
    command = ["unshare", "--mount", "sh", "-c", script, str(pool_file(instance))]
    machine.run([*command, f"{MOUNT_POINT}/nodes/{node.name}"], what=f"removing volumes of {node.name}")


def release(instance: Instance) -> None:
    """Detach the loop devices over the pool's files, and wait until the pool itself is unmounted.

    To be called when no process of the nodes is left. Raises SetupError when something still uses the pool.
    """
    file = pool_file(instance)
    if not file.exists():
        return
    status = file.stat()
    deadline = time.monotonic() + _RELEASE_SECONDS
    while pools := loop_devices.of_file(status):
        for pool in pools:
            for volume in loop_devices.of_file_system(pool):
                for holder in loop_devices.holders(volume):
                    loop_devices.detach(holder)
                loop_devices.detach(volume)
        if time.monotonic() > deadline:
            raise SetupError(
                "releasing the storage pool",
                f"/dev/loop{pools[0]} over {file} is in use",
                "see who has it mounted",
            )
        time.sleep(0.02)


def _make(file: Path, size: int) -> None:
    """Make the pool file under another name first, so that an interrupted start leaves no half-made pool."""
    if size < _SMALLEST:
        raise SetupError(
            "--storage",
            f"{size} bytes are too few for a file system",
            "512Mi or more",
            code=ExitCode.UNUSABLE,
        )
    temporary = file.with_name(f".{file.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        machine.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(temporary)], what="making the storage pool")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the name is what tells the next start that there is a pool
    finally:
        os.close(folder)


def _grow(file: Path, size: int | None) -> None:
    present = file.stat()
    if size is None or size == present.st_size:
        return
    if size < present.st_size:
        raise SetupError(
            "--storage",
            f"the pool has {present.st_size} bytes, and XFS cannot shrink",
            "leave the option out, or start anew",
            code=ExitCode.UNUSABLE,
        )
    os.truncate(file, size)
    for number in loop_devices.of_file(present):
        loop = loop_devices.open_attached(number)
        if loop is not None:
            with loop:
                loop.refresh_size()


def _run_in(node: NodeLayout, command: Sequence[str], *, what: str) -> None:
    machine.run([*namespaces.enter_command(node), *command], what=what)


def _default_size(state: Path) -> int:
    figures = os.statvfs(state)
    free = figures.f_bavail * figures.f_frsize
    return max(_SMALLEST, int(free * _SHARE) // _GIB * _GIB)


def _cannot_mount() -> str:
    """Why this machine cannot have a pool; empty if it can."""
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices (/dev/loop-control)"
    machine.run(["modprobe", "--quiet", "xfs"], what="the module of XFS", check=False)
    if "xfs" not in Path("/proc/filesystems").read_text().split():
        return "the kernel cannot mount XFS"
    return ""
