"""What a node reports of a real CSI driver: ids, topology, limits, statistics of volumes."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support import csi_driver
from tests.support.csi_driver import NAME
from tests.support.waiting import until
from tests.unit.kindling.node.csi_driver.conftest import NODE, Host, size_of, using

from kindling.node.pods import identity
from kindling.node.server import volume_stats
from kindling.node.volumes import csi_limits
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import CSI_NODES

pytestmark = [pytest.mark.host, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


async def test_statistics_are_those_of_the_driver_and_one_that_hangs_costs_only_its_own(host: Host) -> None:
    host.driver.capabilities = (csi_driver.STAGE, csi_driver.STATS, csi_driver.CONDITION)
    driver = host.csi.registry.get(NAME)
    assert driver is not None
    await driver.ask()
    host.claim("c")
    host.attach("c")
    path = (await host.volumes.prepare(host.pod("u1", using("c"))))["data"].path
    host.csi.stats.ask()
    await host.csi.stats.settle()
    (stats,) = host.csi.stats.of_pods()["u1"]
    assert stats["capacityBytes"] == size_of(path)
    assert stats["inodes"] == os.statvfs(path).f_files
    assert (stats["name"], stats["pvcRef"]) == ("data", {"name": "c", "namespace": "ns"})
    assert stats["volumeHealthStats"] == {"abnormal": True}
    assert ("Pod", "VolumeConditionAbnormal", "Volume data: worn out") in host.events
    summary: JsonObject = {"pods": [{"podRef": {"uid": "u1"}}, {"podRef": {"uid": "other"}}]}
    volume_stats.add_volumes(summary, host.csi.stats.of_pods())
    assert summary["pods"][0]["volume"] == [stats]
    assert "volume" not in summary["pods"][1]
    lines = volume_stats.metrics(host.csi.stats.of_pods()).splitlines()
    labels = '{namespace="ns",persistentvolumeclaim="c"}'
    assert f"kubelet_volume_stats_capacity_bytes{labels} {stats['capacityBytes']}" in lines
    assert f"kubelet_volume_stats_health_status_abnormal{labels} 1" in lines
    await host.end("u1")
    host.csi.stats.ask()
    assert host.csi.stats.of_pods() == {}


async def test_the_node_shows_ids_and_topology_of_its_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    host = Host(tmp_path)
    host.driver.topology = {"loop.example.com/rack": "r1", "zone": "b"}
    async with AsyncExitStack() as stack:
        await host.start(stack)
        await until(lambda: host.api.get(CSI_NODES, NODE) is not None)
        metadata = host.node()["metadata"]
        # A label that is there already is not changed: volumes may be bound to it.
        assert metadata["labels"] == {"zone": "a", "loop.example.com/rack": "r1"}
        ids = '{"loop.example.com":"loop-node"}'
        assert metadata["annotations"] == {"csi.volume.kubernetes.io/nodeid": ids}
        (host.registry / "loop.sock").unlink()
        await until(lambda: not host.node()["metadata"].get("annotations"))
        await host.stop_agent()


async def test_limits_follow_a_driver_that_asks_for_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csi_limits, "_LOOK_SECONDS", 0.05)
    await host.stop_agent()
    host.rules(nodeAllocatableUpdatePeriodSeconds=0)
    await host.start_agent()
    host.driver.most = 7

    def limit() -> Any:
        found = host.api.get(CSI_NODES, NODE) or {}
        return [driver.get("allocatable") for driver in found.get("spec", {}).get("drivers", ())]

    await until(lambda: limit() == [{"count": 7}])


async def test_a_label_that_a_node_must_not_set_keeps_no_driver_from_registering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    host = Host(tmp_path)
    host.driver.topology = {"node-restriction.kubernetes.io/x": "y"}

    def refuse(request: Any) -> StatusError | None:
        if request.method == "PATCH" and b"node-restriction" in (request.body or b""):
            return StatusError(403, "Forbidden", "is not allowed to modify labels")
        return None

    host.api.reactions.append(refuse)
    async with AsyncExitStack() as stack:
        await host.start(stack)
        await until(lambda: host.api.get(CSI_NODES, NODE) is not None)
        assert "csi.volume.kubernetes.io/nodeid" in host.node()["metadata"]["annotations"]
        await host.stop_agent()
