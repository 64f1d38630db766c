"""A storage pool on an XFS of its own, and drivers of nodes that use it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubecore import loop_devices, mountinfo
from kubecore.wire import load_interface
from virtplane.storage.hostpath import mounts
from virtplane.storage.hostpath.configuration import Configuration, PoolInfo
from virtplane.storage.hostpath.controller import Controller
from virtplane.storage.hostpath.node import Node
from virtplane.storage.hostpath.pool import Pool
from virtplane.storage.hostpath.recovery import recover, tidy
from virtplane.storage.hostpath.reserve import replenish
from virtplane.storage.hostpath.server import call

GIB = 1 << 30
MIB = 1 << 20

needs_pools = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and loop devices need root")

FILES: dict[str, Any] = {"mount": {}, "access_mode": {"mode": 1}}
DEVICE: dict[str, Any] = {"block": {}, "access_mode": {"mode": 1}}


class Driver:
    """The services of one node's driver, called without a socket."""

    def __init__(
        self,
        folder: Path,
        node: str,
        *,
        shared: bool = False,
        snapshots: bool = True,
        info: PoolInfo | None = None,
    ) -> None:
        info = info or PoolInfo(
            name="p",
            path=str(folder),
            shared=shared,
            snapshot_provider="reflink" if snapshots else None,
        )
        settings = Configuration("kubevirt.io.hostpath-provisioner", node, "unix:///none", "v1", (info,))
        self.pool = Pool(info)
        self.pool.prepare()
        replenish([self.pool])
        self.node_name = node
        pools = {"p": self.pool}
        self.controller = Controller(settings, pools)
        self.node = Node(settings, pools)
        self._interface = load_interface("csi-v1")

    def recover(self) -> None:
        """Clean up, as the driver does when it starts."""
        recover([self.pool], self.node_name)
        tidy([self.pool])

    def call(self, method: str, values: Mapping[str, Any] | None = None) -> Any:
        """Call a method by its name in CSI; gives the response."""
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method).strip("_")
        for service, owner in (("Controller", self.controller), ("Node", self.node)):
            if method in self._interface.methods[service]:
                entry = self._interface.methods[service][method]
                request = entry.request(**(values or {}))
                return entry.response(**call([self.pool], getattr(owner, name), method, request))
        raise KeyError(method)

    def create(
        self,
        name: str,
        size: int = GIB,
        capability: Mapping[str, Any] = FILES,
        form: str = "image",
        **more: Any,
    ) -> Any:
        """Make a volume."""
        values = {
            "name": name,
            "capacity_range": {"required_bytes": size},
            "volume_capabilities": [capability],
            "parameters": {"storagePool": "p", "volumeFormat": form},
            **more,
        }
        return self.call("CreateVolume", values).volume

    def stage(self, name: str, place: Path, capability: Mapping[str, Any] = FILES) -> Path:
        """Stage a volume at a new folder, which is given back."""
        place.mkdir(exist_ok=True)
        self.call(
            "NodeStageVolume",
            {"volume_id": name, "staging_target_path": str(place), "volume_capability": capability},
        )
        return place

    def publish(
        self, name: str, staging: Path, target: Path, capability: Mapping[str, Any] = FILES, **more: Any
    ) -> Path:
        """Publish a volume at a path, which is given back."""
        values = {
            "volume_id": name,
            "staging_target_path": str(staging),
            "target_path": str(target),
            "volume_capability": capability,
            **more,
        }
        self.call("NodePublishVolume", values)
        return target

    def unpublish(self, name: str, target: Path) -> None:
        """Undo `publish`."""
        self.call("NodeUnpublishVolume", {"volume_id": name, "target_path": str(target)})

    def unstage(self, name: str, staging: Path) -> None:
        """Undo `stage`."""
        self.call("NodeUnstageVolume", {"volume_id": name, "staging_target_path": str(staging)})


@contextmanager
def xfs_pool(folder: Path, size: int = 8 * GIB, kind: str = "xfs") -> Iterator[Path]:
    """A mounted XFS of `size` bytes, or a file system of another kind.

    Everything mounted or attached below `folder` is undone at the end.
    """
    image = folder / "pool.img"
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    with mounted_pool(image, folder / "pool") as pool:
        try:
            yield pool
        finally:
            for point in mountinfo.mount_points_below(folder):
                if point not in (folder, pool):
                    mounts.unmount(point)


@contextmanager
def mounted_pool(image: Path, pool: Path, *options: str) -> Iterator[Path]:
    """The XFS in `image`, mounted at the new folder `pool`. The loop devices of its files go at the end."""
    pool.mkdir()
    command = ["mount", "-o", ",".join(("loop", *options)), str(image), str(pool)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    try:
        yield pool
    finally:
        detach_all(pool)
        mounts.unmount(pool)


def attached(below: Path) -> list[str]:
    """The files below a folder that have loop devices, one entry for each device."""
    return sorted(path for _, path in loop_devices.attached() if path.startswith(f"{below}/"))


def are_detached(below: Path) -> bool:
    """Whether no file below a folder has a loop device, once nobody looks at all devices of the machine."""
    deadline = time.monotonic() + 10
    while attached(below):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def detach_all(below: Path) -> None:
    """Detach the loop devices of files below a folder."""
    for number, path in loop_devices.attached():
        if path.startswith(f"{below}/"):
            loop_devices.detach(number)
