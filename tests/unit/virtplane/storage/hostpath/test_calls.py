"""What the driver answers: to good calls, to bad ones, and after a crash."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry
from tests.support.xfspool import DEVICE, FILES, GIB, MIB, Driver, are_detached, attached, needs_pools

from kubecore.wire import load_interface
from virtplane.storage.hostpath import locks, mounts
from virtplane.storage.hostpath.configuration import BadConfiguration, PoolInfo, configuration
from virtplane.storage.hostpath.failures import Code, CsiFailure
from virtplane.storage.hostpath.locks import locked
from virtplane.storage.hostpath.metrics import PoolMetrics
from virtplane.storage.hostpath.pool import Pool
from virtplane.storage.hostpath.server import Server

NAME = "kubevirt.io.hostpath-provisioner"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "n", "e", "v", "[]"), "no driver name provided"),
        ((NAME, "", "e", "v", "[]"), "no node id provided"),
        ((NAME, "n", "", "v", "[]"), "no driver endpoint provided"),
        ((NAME, "n", "e", "", "[]"), "no version provided"),
        ((NAME, "n", "e", "v", "{"), "unable to parse storage pool info"),
        ((NAME, "../n", "e", "v", "[]"), "is not the name of a node"),
        (
            (NAME, "n", "e", "v", '[{"name":"p","path":"/p","snapshotProvider":"tape"}]'),
            "Unsupported snapshot provider tape for storage pool p",
        ),
    ],
)
def test_a_driver_that_cannot_work_says_why(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        configuration(*arguments)


@needs_pools
@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"name": ""}, Code.INVALID_ARGUMENT, "^name missing in request$"),
        ({"name": "../../etc"}, Code.INVALID_ARGUMENT, "cannot be the name of a volume"),
        ({"name": ".virtplane"}, Code.INVALID_ARGUMENT, "cannot be the name of a volume"),
        ({"volume_capabilities": []}, Code.INVALID_ARGUMENT, "^volume capabilities missing in request$"),
        (
            {"parameters": {}},
            Code.INVALID_ARGUMENT,
            "^unable to locate path for storage pool legacy$",
        ),
        ({"parameters": {"volumeFormat": "tape"}}, Code.INVALID_ARGUMENT, "it must be image or directory"),
        ({"capacity_range": {"required_bytes": 1 << 50}}, Code.OUT_OF_RANGE, "larger than storage pool p"),
        ({"capacity_range": {"required_bytes": 1, "limit_bytes": 2}}, Code.OUT_OF_RANGE, "the least size"),
        ({"capacity_range": {"required_bytes": -1}}, Code.INVALID_ARGUMENT, "must not be negative"),
        (
            {
                "accessibility_requirements": {
                    "requisite": [{"segments": {"topology.hostpath.csi/node": "x"}}]
                }
            },
            Code.INVALID_ARGUMENT,
            "^not correct node$",
        ),
        (
            {"volume_capabilities": [{"block": {}, "access_mode": {"mode": 5}}]},
            Code.INVALID_ARGUMENT,
            "storage pool p is not shared",
        ),
        (
            {"volume_content_source": {"snapshot": {"snapshot_id": "../x"}}},
            Code.NOT_FOUND,
            "snapshot ../x not found, unable to restore into volume",
        ),
        (
            {"volume_capabilities": [{"mount": {"fs_type": "vfat"}, "access_mode": {"mode": 1}}]},
            Code.INVALID_ARGUMENT,
            "file system 'vfat' is not one of xfs, ext4",
        ),
    ],
)
def test_a_volume_that_cannot_be_made_is_refused(
    folder: Path, values: dict[str, Any], code: Code, message: str
) -> None:
    driver = Driver(folder, "node1")
    good: dict[str, Any] = {
        "name": "v",
        "volume_capabilities": [FILES],
        "parameters": {"storagePool": "p", "volumeFormat": "image"},
        "capacity_range": {"required_bytes": GIB},
    }
    with pytest.raises(CsiFailure, match=message) as failure:
        driver.call("CreateVolume", {**good, **values})
    assert failure.value.code is code
    assert list(driver.pool.list_volumes()) == []
    assert list(driver.pool.pending.iterdir()) == []


@needs_pools
def test_ids_from_outside_reach_no_path(folder: Path) -> None:
    driver = Driver(folder, "node1")
    (folder.parent / "outside").mkdir(exist_ok=True)
    for name in ("../outside", "..", ".", "/etc", ".virtplane", "a/b", "x" * 200, "a\x00b"):
        driver.call("DeleteVolume", {"volume_id": name})
        driver.call("DeleteSnapshot", {"snapshot_id": name})
        with pytest.raises(CsiFailure) as failure:
            driver.stage(name, folder / "none")
        assert failure.value.code is Code.NOT_FOUND
    assert (folder.parent / "outside").is_dir()
    assert driver.pool.volumes.is_dir()


@needs_pools
def test_a_pool_without_a_provider_has_no_snapshots(folder: Path) -> None:
    driver = Driver(folder, "node1", snapshots=False)
    driver.create("v", 64 * MIB, DEVICE)
    offered = {each.rpc.type for each in driver.call("ControllerGetCapabilities").capabilities}
    with_snapshots = Driver(folder, "node1").call("ControllerGetCapabilities").capabilities
    assert {each.rpc.type for each in with_snapshots} - offered == {5, 6, 15}
    with pytest.raises(CsiFailure, match=r"^volumesnapshot path not set for storage pool p$"):
        driver.call("CreateSnapshot", {"name": "s", "source_volume_id": "v"})


@needs_pools
def test_pages_of_a_list_lose_nothing_when_volumes_go(folder: Path) -> None:
    driver = Driver(folder, "node1")
    for number in range(5):
        driver.create(f"v{number}", 64 * MIB, DEVICE)
    page = driver.call("ListVolumes", {"max_entries": 2})
    assert [entry.volume.volume_id for entry in page.entries] == ["v0", "v1"]
    driver.call("DeleteVolume", {"volume_id": "v1"})
    rest = driver.call("ListVolumes", {"starting_token": page.next_token})
    assert [entry.volume.volume_id for entry in rest.entries] == ["v2", "v3", "v4"]
    with pytest.raises(CsiFailure, match=r"^the type of startingToken should be integer$"):
        driver.call("ListVolumes", {"starting_token": "x"})


@needs_pools
def test_calls_for_one_volume_wait_for_each_other_or_are_aborted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    driver = Driver(folder, "node1")
    driver.create("v", 64 * MIB, DEVICE)
    with (
        locked(driver.pool.record_folder("v"), "volume v"),
        pytest.raises(CsiFailure, match="an operation for volume v is already in progress") as failure,
    ):
        driver.stage("v", tmp_path / "s", DEVICE)
    assert failure.value.code is Code.ABORTED
    assert are_detached(folder)


@needs_pools
def test_a_driver_that_starts_undoes_what_a_killed_one_left(folder: Path, tmp_path: Path) -> None:
    driver = Driver(folder, "node1")
    for name in ("used", "left"):
        driver.create(name, 64 * MIB, DEVICE)
        driver.stage(name, tmp_path / name, DEVICE)
    left = driver.pool.record_folder("left") / "users" / "node1"
    left.write_text("the boot before")
    abandoned = driver.pool.pending / ".abandoned"
    (abandoned / "new").mkdir(parents=True)
    with driver.pool.workplace() as busy:
        driver.recover()
        assert busy.exists(), "another driver still works there"
    assert not abandoned.exists()
    assert not left.exists()
    assert are_detached(driver.pool.record_folder("left"))
    assert [Path(path).parent.name for path in attached(folder)] == ["used"]
    driver.unstage("used", tmp_path / "used")
    assert are_detached(folder)


@needs_pools
@pytest.mark.parametrize("source", ["", "old"])
def test_a_directory_that_was_only_begun_is_finished_by_the_next_call(folder: Path, source: str) -> None:
    """The driver was killed after it put files in place and before it wrote that it had."""
    driver = Driver(folder, "node1")
    driver.create("old", form="directory")
    (folder / "old" / "file").write_text("old")
    more: dict[str, Any] = {"volume_content_source": {"volume": {"volume_id": source}}} if source else {}
    driver.create("v", form="directory", **more)
    record = driver.pool.record_folder("v") / "record.json"
    record.write_text(record.read_text().replace('"is_whole":true', '"is_whole":false'))
    (folder / "v" / "half").write_text("")
    with pytest.raises(CsiFailure, match="volume v not found"):
        driver.publish("v", folder / "none", folder / "target")
    driver.create("v", form="directory", **more)
    assert sorted(entry.name for entry in (folder / "v").iterdir()) == (["file"] if source else [])


@needs_pools
@pytest.mark.feature("STO-65")
def test_a_pool_is_used_only_while_its_claim_is_mounted(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "pool"
    path.mkdir()
    info = PoolInfo(name="p", path=str(path), claimed=True)
    driver = Driver(path, "node1", info=info)
    with pytest.raises(CsiFailure, match="the claim of storage pool p is not mounted on this node yet"):
        driver.create("v", form="directory")
    assert list(driver.call("ListVolumes").entries) == []
    assert list(path.iterdir()) == []
    mounts.bind(folder, path)
    try:
        driver.create("v", form="directory")
        assert (folder / "v").is_dir()
    finally:
        mounts.unmount(path)


@needs_pools
def test_a_damaged_record_hides_no_other_volume(folder: Path) -> None:
    driver = Driver(folder, "node1")
    for name in ("good", "bad"):
        driver.create(name, 64 * MIB, DEVICE)
    (driver.pool.record_folder("bad") / "record.json").write_text("{")
    driver.recover()
    assert [entry.volume.volume_id for entry in driver.call("ListVolumes").entries] == ["good"]
    with pytest.raises(CsiFailure) as failure:
        driver.call("DeleteVolume", {"volume_id": "bad"})
    assert failure.value.code is Code.INTERNAL
    assert driver.pool.image("bad").exists()


@needs_pools
@pytest.mark.feature("STO-64", "MON-63")
def test_metrics_show_what_is_promised_and_a_pool_on_the_systems_disk(folder: Path, tmp_path: Path) -> None:
    driver = Driver(folder, "node1")
    for name in ("a", "b"):
        driver.create(name, 7 * GIB, DEVICE)
    for system, shared in ((tmp_path, 0.0), (folder, 1.0)):
        registry = CollectorRegistry()
        PoolMetrics([driver.pool], system).register(registry)
        assert registry.get_sample_value("kubevirt_hpp_pool_path_shared_with_os") == shared
    labels = {"storage_pool": "p"}
    provisioned = registry.get_sample_value("kubevirt_hpp_pool_provisioned_bytes", labels)
    capacity = registry.get_sample_value("kubevirt_hpp_pool_capacity_bytes", labels)
    assert provisioned == 14 * GIB
    assert capacity is not None
    assert capacity < provisioned


@needs_pools
async def test_the_services_answer_on_a_socket(folder: Path, tmp_path: Path) -> None:
    endpoint = tmp_path / "csi" / "csi.sock"
    settings = configuration(NAME, "node1", f"unix://{endpoint}", "v9", f'[{{"name":"p","path":"{folder}"}}]')
    pools = {info.name: Pool(info) for info in settings.pools}
    for pool in pools.values():
        pool.prepare()
    server = Server(settings, pools)
    await server.start()
    try:
        assert endpoint.stat().st_mode & 0o777 == 0o600
        interface = load_interface("csi-v1")
        async with grpc.aio.insecure_channel(f"unix:{endpoint}") as channel:

            async def ask(service: str, method: str, **values: Any) -> Any:
                request = interface.methods[service][method].request(**values)
                return await interface.stub(channel, service)[method](request)

            info = await ask("Identity", "GetPluginInfo")
            assert (info.name, info.vendor_version) == (NAME, "v9")
            assert (await ask("Identity", "Probe")).ready.value
            node = await ask("Node", "NodeGetInfo")
            assert dict(node.accessible_topology.segments) == {"topology.hostpath.csi/node": "node1"}
            capacity = await ask("Controller", "GetCapacity", parameters={"storagePool": "p"})
            space = os.statvfs(folder)
            assert capacity.maximum_volume_size.value == space.f_blocks * space.f_frsize
            made = await asyncio.gather(
                *(
                    ask(
                        "Controller",
                        "CreateVolume",
                        name="v",
                        volume_capabilities=[DEVICE],
                        parameters={"storagePool": "p", "volumeFormat": "image"},
                    )
                    for _ in range(4)
                )
            )
            assert {answer.volume.capacity_bytes for answer in made} == {GIB}
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask("Controller", "ControllerPublishVolume")
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert refused.value.details() == "ControllerPublishVolume is not supported"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask("Node", "NodePublishVolume")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    finally:
        await server.stop()
    assert not endpoint.exists()
