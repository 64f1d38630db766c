"""A small CSI driver for tests: volumes are files, attached as loop devices, with XFS on them."""

from __future__ import annotations

import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kindling.node.volumes import mounts
from kubecore.wire import load_interface

NAME = "loop.example.com"
NODE_ID = "loop-node"
STAGE, STATS, EXPAND, CONDITION, MULTI_WRITER, MOUNT_GROUP = 1, 2, 3, 4, 5, 6


class LoopDriver:
    """Serves Node and Registration. `attach` and `grow` do what the driver's controller does."""

    def __init__(self, directory: Path, capabilities: tuple[int, ...] = (STAGE, STATS, EXPAND)) -> None:
        self.directory = directory
        self.capabilities = capabilities
        self.calls: list[tuple[str, Any]] = []
        self.refusals: dict[str, tuple[grpc.StatusCode, str]] = {}
        """Errors by method."""
        self.topology: dict[str, str] = {}
        self.most = 0
        """The most volumes of this node; 0 for no limit."""
        self.devices: dict[str, Path] = {}
        """Loop devices of attached volumes, by handle."""
        self.nodes: dict[str, Path] = {}
        """Other files for these devices, to be published instead: a driver's container has its own /dev."""
        self._csi = load_interface("csi-v1")
        self._registration = load_interface("pluginregistration-v1")

    def file(self, handle: str) -> Path:
        return self.directory / f"{handle}.img"

    def attach(self, handle: str, size: int) -> dict[str, str]:
        """Make and attach a volume; returns the publish context."""
        self.file(handle).touch()
        os.truncate(self.file(handle), size)
        device = _run("losetup", "--find", "--show", str(self.file(handle)))
        self.devices[handle] = Path(device)
        return {"device": device}

    def grow(self, handle: str, size: int) -> None:
        os.truncate(self.file(handle), size)
        _run("losetup", "--set-capacity", str(self.devices[handle]))

    def detach_all(self) -> None:
        for device in self.devices.values():
            # What an agent held that a failed test left.
            held = _run("losetup", "--noheadings", "--output", "NAME", "--associated", str(device))
            for each in (*held.split(), str(device)):
                _run("losetup", "--detach", each)
        self.devices.clear()

    async def serve(self, stack: AsyncExitStack, registry: Path) -> None:
        """Serve the driver, and register it in the folder `registry`."""
        node = {
            name: self._answering(name, method)
            for name, method in vars(type(self)).items()
            if name.startswith("Node")
        }
        registration = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}
        for path, interface, service, methods in (
            (self.directory / "csi.sock", self._csi, "Node", node),
            (registry / "loop.sock", self._registration, "Registration", registration),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((interface.handler(service, methods),))
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            stack.push_async_callback(server.stop, 0)

    def _answering(self, name: str, method: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self.calls.append((name, request))
            if name in self.refusals:
                await context.abort(*self.refusals[name])
            return self._csi.methods["Node"][name].response(**(method(self, request) or {}))

        return answer

    async def _info(self, _request: Any, _context: Any) -> Any:
        endpoint = str(self.directory / "csi.sock")
        values = {"type": "CSIPlugin", "name": NAME, "endpoint": endpoint}
        return self._registration.message("PluginInfo", values)

    async def _notified(self, _request: Any, _context: Any) -> Any:
        return self._registration.message("RegistrationStatusResponse")

    def last(self, method: str) -> Any:
        """The last request to a method."""
        return [request for name, request in self.calls if name == method][-1]

    def NodeGetCapabilities(self, _request: Any) -> dict[str, Any]:
        return {"capabilities": [{"rpc": {"type": kind}} for kind in self.capabilities]}

    def NodeGetInfo(self, _request: Any) -> dict[str, Any]:
        topology = {"accessible_topology": {"segments": self.topology}} if self.topology else {}
        return {"node_id": NODE_ID, "max_volumes_per_node": self.most, **topology}

    def NodeStageVolume(self, request: Any) -> None:
        device, place = request.publish_context["device"], Path(request.staging_target_path)
        if request.volume_capability.HasField("mount") and not mounts.is_mounted(place):
            if subprocess.run(["blkid", "-p", device], capture_output=True, check=False).returncode:
                _run("mkfs.xfs", "-q", "-K", device)
            mounts.mount(device, place, "xfs")

    def NodeUnstageVolume(self, request: Any) -> None:
        mounts.unmount(Path(request.staging_target_path))

    def NodePublishVolume(self, request: Any) -> None:
        target = Path(request.target_path)
        if mounts.is_mounted(target):
            return
        if request.volume_capability.HasField("block"):
            target.touch()
            device = self.nodes.get(request.volume_id, request.publish_context["device"])
            mounts.bind(str(device), target)
        else:
            target.mkdir()
            source = request.staging_target_path or str(self.directory)
            mounts.bind(source, target, read_only=request.readonly)

    def NodeUnpublishVolume(self, request: Any) -> None:
        mounts.unmount(Path(request.target_path))

    def NodeExpandVolume(self, request: Any) -> None:
        if request.volume_capability.HasField("mount"):
            _run("xfs_growfs", request.volume_path)

    def NodeGetVolumeStats(self, request: Any) -> dict[str, Any]:
        found = os.statvfs(request.volume_path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        usage = [
            {"unit": 1, "total": total, "available": free, "used": total - free},
            {"unit": 2, "total": found.f_files, "available": found.f_ffree},
        ]
        return {"usage": usage, "volume_condition": {"abnormal": True, "message": "worn out"}}


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
