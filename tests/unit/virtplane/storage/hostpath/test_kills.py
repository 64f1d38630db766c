"""The driver is killed at any moment and started again: nothing half made is left, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from tests.support.xfspool import DEVICE, FILES, MIB, Driver, are_detached, detach_all, needs_pools

from kubecore import mountinfo
from kubecore.wire import load_interface
from virtplane.storage.hostpath import mounts

pytestmark = needs_pools

ROUNDS = 3
SIZE = 256 * MIB


class Remote:
    """Calls to a driver in a process of its own."""

    def __init__(self, channel: Any) -> None:
        self._interface = load_interface("csi-v1")
        self._channel = channel

    async def call(self, service: str, method: str, **values: Any) -> Any:
        """Call a method. Raises AioRpcError."""
        request = self._interface.methods[service][method].request(**values)
        return await self._interface.stub(self._channel, service)[method](request, timeout=90)


@asynccontextmanager
async def started(folder: Path, endpoint: Path) -> AsyncIterator[tuple[Remote, asyncio.subprocess.Process]]:
    """A driver's process, ready to answer; killed at the end."""
    pools = json.dumps([{"name": "p", "path": str(folder), "snapshotProvider": "reflink"}])
    arguments = ["--drivername=d", f"--endpoint=unix://{endpoint}", "--nodeid=node1", "--version=v1"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "virtplane.storage.hostpath.main"),
        *(*arguments, "--metrics-port=0", f"--datadir={pools}"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with grpc.aio.insecure_channel(f"unix:{endpoint}") as channel:
            remote = Remote(channel)
            interface = load_interface("csi-v1")
            probe = interface.methods["Identity"]["Probe"].request()
            await interface.stub(channel, "Identity")["Probe"](probe, wait_for_ready=True, timeout=90)
            yield remote, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def work(remote: Remote, mounted: Path, name: str) -> None:
    """Make, use, copy and remove volumes until the driver is gone."""
    form = random.choice(["image", "directory"])
    capability = DEVICE if form == "image" and random.random() < 0.5 else FILES
    parameters = {"storagePool": "p", "volumeFormat": form}
    new = {"volume_capabilities": [capability], "parameters": parameters}
    for number in range(1000):
        one, other = f"{name}-{number}", f"{name}-{number}-copy"
        place = mounted / one
        staged = {"volume_id": one, "staging_target_path": str(place)}
        size = {"required_bytes": SIZE}
        await remote.call("Controller", "CreateVolume", name=one, capacity_range=size, **new)
        await remote.call("Node", "NodeStageVolume", volume_capability=capability, **staged)
        await remote.call("Controller", "CreateSnapshot", name=f"{one}-s", source_volume_id=one)
        source = {"snapshot": {"snapshot_id": f"{one}-s"}}
        copy = {"name": other, "capacity_range": size, "volume_content_source": source}
        await remote.call("Controller", "CreateVolume", **copy, **new)
        await remote.call("Node", "NodeUnstageVolume", **staged)
        await remote.call("Controller", "DeleteVolume", volume_id=one)
        if number % 2:
            await remote.call("Controller", "DeleteSnapshot", snapshot_id=f"{one}-s")


async def test_a_driver_that_is_killed_leaves_nothing_half_made(folder: Path, tmp_path: Path) -> None:
    endpoint, mounted = tmp_path / "csi.sock", tmp_path / "staging"
    mounted.mkdir()
    try:
        for _ in range(ROUNDS):
            async with started(folder, endpoint) as (remote, process):
                workers = [
                    asyncio.create_task(work(remote, mounted, f"w{random.randrange(10**9)}"))
                    for _ in range(3)
                ]
                # Not a wait for something: the moment of the kill is what varies.
                await asyncio.sleep(random.uniform(0.05, 0.6))
                process.kill()
                results = await asyncio.gather(*workers, return_exceptions=True)
                assert all(isinstance(each, grpc.aio.AioRpcError) for each in results), results
        async with started(folder, endpoint) as (remote, _process):
            await check_whole(remote, folder, mounted)
    finally:
        for point in mountinfo.mount_points_below(tmp_path):
            mounts.unmount(point)
        detach_all(folder)


async def check_whole(remote: Remote, folder: Path, mounted: Path) -> None:
    """Everything listed can be used, everything can be removed, and then nothing is left."""
    listed = [entry.volume.volume_id for entry in (await remote.call("Controller", "ListVolumes")).entries]
    pool = Driver(folder, "node1").pool
    for name in listed:
        volume = pool.volume(name)
        assert volume is not None
        mode = DEVICE if volume.content.mode == "Block" else FILES
        staged = {"volume_id": name, "staging_target_path": str(mounted / name)}
        await remote.call("Node", "NodeStageVolume", volume_capability=mode, **staged)
        await remote.call("Node", "NodeUnstageVolume", **staged)
    for entry in (await remote.call("Controller", "ListSnapshots")).entries:
        await remote.call("Controller", "DeleteSnapshot", snapshot_id=entry.snapshot.snapshot_id)
    # Also volumes that were only begun, which no list shows: their creator knows their names.
    for volume in list(pool.list_volumes()):
        await remote.call("Controller", "DeleteVolume", volume_id=volume.id)
    assert are_detached(folder)
    left = {path.relative_to(folder) for path in folder.rglob("*")}
    state = Path(".virtplane")
    assert left == {state, *(state / name for name in ("reserve", "snapshots", "volumes", "pending"))}
