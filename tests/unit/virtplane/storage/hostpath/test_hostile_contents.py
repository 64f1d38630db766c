"""What tenants put into volumes, and how much of it, harms neither the driver nor other tenants."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.support.waiting import until
from tests.support.xfspool import FILES, Driver, needs_pools

from kubecore import mountinfo
from kubecore.wire import load_interface
from virtplane.storage.hostpath import images, mounts, trees, volumes
from virtplane.storage.hostpath.configuration import Configuration
from virtplane.storage.hostpath.failures import CsiFailure
from virtplane.storage.hostpath.main import serving
from virtplane.storage.hostpath.server import Server

pytestmark = needs_pools


@pytest.fixture
def driver(folder: Path, tmp_path: Path) -> Iterator[Driver]:
    yield Driver(folder, "node1")
    for point in mountinfo.mount_points_below(tmp_path):
        mounts.unmount(point)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_device_nodes_of_tenants_open_nothing_although_their_volume_is_on_the_nodes_disk(
    driver: Driver, tmp_path: Path
) -> None:
    driver.create("v", form="directory")
    target = driver.publish("v", tmp_path / "none", tmp_path / "t")
    os.mknod(target / "disk.img", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(PermissionError):
        (target / "disk.img").open("rb")
    (target / "file").write_text("x")


def test_a_copy_of_more_files_than_anyone_needs_ends(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.create("v", form="directory")
    for number in range(20):
        (folder / "v" / f"{number}").write_text("x")
        (folder / "v" / f"{number}-too").hardlink_to(folder / "v" / f"{number}")
    wanted = {"name": "s", "source_volume_id": "v"}
    for limit, problem in (
        ("_MOST_ENTRIES", "more than 10 files"),
        ("_MOST_LINKED", "more than 10 files with several names"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(trees, limit, 10)
            with pytest.raises(CsiFailure, match=problem):
                driver.call("CreateSnapshot", wanted)
    assert not list(driver.pool.pending.iterdir())
    driver.call("CreateSnapshot", wanted)


def test_a_full_pool_does_not_use_up_the_drivers_descriptors(
    driver: Driver, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "v" / "sub" / "sub").mkdir(parents=True)
    (folder / "v" / "sub" / "sub" / "file").write_text("x")
    mkdir = os.mkdir

    def refuse(name: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise OSError(errno.ENOSPC, "full", name)
        mkdir(name, mode)

    def share(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    before = open_files()
    for number in range(10):
        for target, name, full in ((os, "mkdir", refuse), (images, "share_blocks", share)):
            with monkeypatch.context() as patched:
                patched.setattr(target, name, full)
                with pytest.raises(OSError, match="full"):
                    trees.copy(folder / "v", tmp_path / f"{name}-{number}")
    assert open_files() == before


def test_the_driver_opens_as_many_files_as_the_kernel_lets_it() -> None:
    program = (
        "import resource; from virtplane.storage.hostpath.main import main; main(['--metrics-port=0']);"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    command = f'ulimit -Sn 256 && ulimit -Hn 4096 && exec {sys.executable} -c "{program}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True)
    assert done.stdout == "4096 4096\n"


async def test_volumes_are_mounted_although_copies_of_tenants_keep_the_driver_busy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slowly(*_: object) -> None:
        begun.release()
        assert go_on.wait(60)
        raise OSError("too late")

    monkeypatch.setattr(volumes, "create", slowly)
    driver = Driver(folder, "node1")
    settings = Configuration("d", "node1", f"unix://{tmp_path}/s", "v1", (driver.pool.info,))
    server = Server(settings, {"p": driver.pool})
    interface = load_interface("csi-v1")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
            controller, node = interface.stub(channel, "Controller"), interface.stub(channel, "Node")
            new = interface.methods["Controller"]["CreateVolume"].request(
                volume_capabilities=[FILES], parameters={"storagePool": "p"}
            )
            calls = []
            for number in range(50):
                new.name = f"v{number}"
                calls.append(asyncio.ensure_future(controller["CreateVolume"](new, timeout=60)))
            await asyncio.to_thread(begun.acquire, timeout=60)
            about = interface.methods["Node"]["NodeGetInfo"].request()
            assert (await node["NodeGetInfo"](about, timeout=30)).node_id == "node1"
            assert not any(call.done() for call in calls)
            go_on.set()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all("too late" in str(result) for result in results)
    finally:
        go_on.set()
        await server.stop()


async def test_piles_of_files_keep_neither_a_start_nor_the_ends_of_pods_waiting(
    driver: Driver, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = driver.pool.pending / ".left"
    (left / "pile").mkdir(parents=True)
    inline = {"volume_context": {"csi.storage.k8s.io/ephemeral": "true"}}
    target = driver.publish("csi-inline", tmp_path / "none", tmp_path / "t", **inline)
    (target / "file").write_text("x")
    go_on, begun, remove = threading.Event(), threading.Event(), trees.remove

    def slowly(path: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        remove(path)

    monkeypatch.setattr(trees, "remove", slowly)
    settings = Configuration("d", "node1", f"unix://{tmp_path}/s", "v1", (driver.pool.info,))
    interface = load_interface("csi-v1")
    wanted = interface.methods["Node"]["NodeUnpublishVolume"].request(
        volume_id="csi-inline", target_path=str(target)
    )
    try:
        async with (
            asyncio.timeout(50),
            serving(settings, 0),
            grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel,
        ):
            assert await asyncio.to_thread(begun.wait, 30)
            await interface.stub(channel, "Node")["NodeUnpublishVolume"](wanted, timeout=30)
            assert not (folder / "csi-inline").exists() and left.exists()
            go_on.set()
            await until(lambda: not list(driver.pool.pending.iterdir()))
    finally:
        go_on.set()
