"""The disk of a claim, in the container of the attachment pod that holds it. Blocks (runs in a thread).

The pod is the tenant's like any other: who may change its image, or make a pod that looks like it, decides
what its file system has. So a device counts only where the kubelet has given it to the pod (``mapped``), and
every path is resolved by the kernel, without links that lead out of the container or out of the claim.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtplane.api.kubevirt_v1.vmi_status import PersistentVolumeClaimInfo
from virtplane.compute.handler.hotplug import mapped
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.storage import claims
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.heldimages import clone_mount, processes_of
from virtplane.compute.handler.storage.images import BadImage

_DISK = "disk.img"
_DEVICES = "path"
"""The folder of the attachment pod's container in which each block claim has a folder with its device."""


_STRANGE = {errno.ELOOP: "a link", errno.EXDEV: "a link", errno.ENODEV: "no file"}
"""What stands where the disk should be, by the error of opening it."""


class NotOnNode(Exception):
    """The attachment pod does not have the claim (any more, or yet)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim in the container of an attachment pod. `process` is open for the time of the context."""

    volume: str
    process: int
    root: Root
    devices: frozenset[int] = frozenset()
    """The block devices that the kubelet has given to the pod."""

    def device(self) -> int:
        """The number of the block device. Raises NotOnNode, OSError."""
        folder = f"{_DEVICES}/{self.volume}"
        for name in self.root.names(folder):
            with self.root.opened(f"{folder}/{name}", os.O_PATH | os.O_NOFOLLOW) as descriptor:
                found = os.fstat(descriptor)
            if stat.S_ISBLK(found.st_mode) and found.st_rdev in self.devices:
                return found.st_rdev
        raise NotOnNode(f"its attachment pod has no device for {self.volume}")

    def prepare_file(self, info: PersistentVolumeClaimInfo, settings: ClaimSettings) -> str:
        """Make or grow the disk in the claim's file system, for QEMU to open; returns a remark or nothing.

        Raises BadImage, NotEnoughSpace, OSError.
        """
        remark = ""
        with self._files() as files:
            try:
                if not files.mode(_DISK):
                    remark = claims.make_disk(files, _DISK, info, settings)
                files.give(_DISK)
            except OSError as error:
                kind = _STRANGE.get(error.errno or 0)
                if kind is None:
                    raise
                raise BadImage(f"volume {self.volume}: {_DISK} is {kind}, not a disk") from error
            claims.grow_file(files, _DISK, info, settings)
        return remark

    def prepare_dump(self, name: str, suffix: str) -> None:
        """Make the file of a memory dump, for QEMU to write; earlier dumps (`suffix`) give way.

        Raises OSError.
        """
        with self._files() as files:
            with files.opened(".", os.O_RDONLY | os.O_DIRECTORY) as folder:
                for earlier in files.names("."):
                    if earlier.endswith(suffix) and earlier != name:
                        with contextlib.suppress(IsADirectoryError, FileNotFoundError):
                            os.unlink(earlier, dir_fd=folder)
            files.create(name, lambda _: None)

    def clone_file(self, name: str = _DISK) -> int:
        """A detached mount of the disk's file, or of another one. Raises BadImage, OSError."""
        return clone_mount(self.process, lambda _: f"{self.volume}/{name}", read_only=False)

    def clone_folder(self, read_only: bool) -> int:
        """A detached mount of the claim's file system, for QEMU's user to write to. Raises OSError."""
        if not read_only:
            self.root.give_folder(self.volume)
        return clone_mount(self.process, lambda _: self.volume, read_only=read_only, is_folder=True)

    @contextlib.contextmanager
    def _files(self) -> Iterator[Root]:
        """The claim's file system: links in it lead nowhere else."""
        with self.root.opened(self.volume, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW) as folder:
            files = Root(folder, beneath=True)
        with files:
            yield files


@contextlib.contextmanager
def held_claim(pod: Path, volume: str, *, block: bool, proc: Path = Path("/proc")) -> Iterator[Claim]:
    """The claim of `volume` in the attachment pod, of which `pod` is the kubelet's folder.

    Raises NotOnNode, OSError.
    """
    pod_uid, devices = pod.name, mapped.devices_of(pod) if block else frozenset[int]()
    place = f"{_DEVICES}/{volume}" if block else volume
    with contextlib.closing(processes_of(pod_uid, proc)) as found:
        for process in found:
            root = _root_with(process, place)
            if root is not None:
                with root:
                    yield Claim(volume, process, root, devices)
                return
    raise NotOnNode(f"no container of the attachment pod {pod_uid} has volume {volume}")


def _root_with(process: int, place: str) -> Root | None:
    """The file system of a process of the node's user namespace, if it has the folder `place`."""
    try:
        if Path("/proc/self/ns/user").stat().st_ino != os.stat("ns/user", dir_fd=process).st_ino:
            return None
        link = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    except (FileNotFoundError, ProcessLookupError):
        return None  # the process has ended
    try:
        root = Root(link, beneath=True)
    finally:
        os.close(link)
    try:
        if root.is_folder(place):
            return root
    except BaseException:
        root.close()
        raise
    root.close()
    return None
