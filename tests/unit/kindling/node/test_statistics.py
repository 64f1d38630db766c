"""The statistics of a node: what the kernel counts, what directories hold, and the documents made of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kindling.node.pods import identity
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import Container, ContainerState, Sandbox
from kindling.node.stats import disk, machine
from kindling.node.stats.cgroups import CgroupReader, CgroupUsage
from kindling.node.stats.collector import Rates, Statistics, StatisticsSources, own_volumes
from kindling.node.stats.disk import DiskUsage, FileSystem
from kindling.node.stats.machine import Interface, MachineUsage
from kindling.node.stats.prometheus import cadvisor_metrics, resource_metrics
from kindling.node.stats.summary import summary
from kindling.node.stats.usage import ContainerUsage, NodeUsage, PodUsage, Reading, VolumeUsage
from kubecore.json import JsonObject

MIB = 1 << 20
READING = Reading(CgroupUsage(5_000_000_000, 60 * MIB, 40 * MIB, 30 * MIB, 7, 1, 100 * MIB), 250_000_000)
SYSTEM = FileSystem(1000, 600, 400, 100, 60)
LINK = Interface("eth0", 10, 1, 20, 2)


def usage(*, with_disk: bool = True) -> NodeUsage:
    """A node with one pod of one container, an empty directory and a claim."""
    container = ContainerUsage("c", 1_767_225_600_000_000_000, READING)
    pod = PodUsage("ns", "p", "u", "2026-01-01T00:00:00Z", READING, [container], 3, [LINK])
    node = NodeUsage(
        node="n",
        moment=1_767_225_660.0,
        machine=MachineUsage(9_000_000_000, 1000 * MIB, 300 * MIB, 200 * MIB, 100 * MIB, 70, 7, 50, 32768, 1),
        nanocores=None,
        pods=[pod],
        interfaces=[Interface("uplink", 1, 0, 2, 0)],
        default_interface="uplink",
    )
    if not with_disk:
        return replace(node, pods=[pod])
    measured = replace(container, rootfs=DiskUsage(30, 3), logs=DiskUsage(20, 2))
    volumes = [
        VolumeUsage("scratch", DiskUsage(50, 5), SYSTEM, is_local=True),
        VolumeUsage("data", DiskUsage(70, 7), SYSTEM, ("ns", "claim")),
    ]
    return replace(
        node,
        pods=[replace(pod, containers=[measured], volumes=volumes)],
        node_disk=SYSTEM,
        node_disk_used=DiskUsage(600, 40),
        image_disk=SYSTEM,
        images=DiskUsage(90, 9),
    )


def test_the_summary_tells_everything_of_node_pod_and_container() -> None:
    document = summary(usage())
    now = "2026-01-01T00:01:00Z"
    memory = {
        "time": now,
        "availableBytes": 60 * MIB,
        "usageBytes": 60 * MIB,
        "workingSetBytes": 40 * MIB,
        "rssBytes": 30 * MIB,
        "pageFaults": 7,
        "majorPageFaults": 1,
    }
    cpu = {"time": now, "usageNanoCores": 250_000_000, "usageCoreNanoSeconds": 5_000_000_000}
    room = {"time": now, "availableBytes": 400, "capacityBytes": 1000, "inodesFree": 60, "inodes": 100}
    link = {"name": "eth0", "rxBytes": 10, "rxErrors": 1, "txBytes": 20, "txErrors": 2}
    assert document["pods"] == [
        {
            "podRef": {"name": "p", "namespace": "ns", "uid": "u"},
            "startTime": "2026-01-01T00:00:00Z",
            "containers": [
                {
                    "name": "c",
                    "startTime": "2026-01-01T00:00:00Z",
                    "cpu": cpu,
                    "memory": memory,
                    "rootfs": room | {"usedBytes": 30, "inodesUsed": 3},
                    "logs": room | {"usedBytes": 20, "inodesUsed": 2},
                }
            ],
            "cpu": cpu,
            "memory": memory,
            "network": {"time": now, **link, "interfaces": [link]},
            "process_stats": {"process_count": 3},
            "volume": [
                room | {"usedBytes": 50, "inodesUsed": 5, "name": "scratch"},
                room
                | {"usedBytes": 70, "inodesUsed": 7, "name": "data"}
                | {"pvcRef": {"name": "claim", "namespace": "ns"}},
            ],
            # The claim's volume is not on the node's disk.
            "ephemeral-storage": room | {"usedBytes": 100, "inodesUsed": 10},
        }
    ]
    node = document["node"]
    assert node["cpu"] == {"time": now, "usageCoreNanoSeconds": 9_000_000_000}
    assert (node["memory"]["availableBytes"], node["memory"]["workingSetBytes"]) == (800 * MIB, 200 * MIB)
    assert (node["network"]["name"], node["network"]["txBytes"]) == ("uplink", 2)
    assert node["fs"] == room | {"usedBytes": 600, "inodesUsed": 40}
    assert node["runtime"]["imageFs"] == room | {"usedBytes": 90, "inodesUsed": 9}
    assert node["rlimit"] == {"time": now, "maxpid": 32768, "curproc": 50}


def test_a_summary_without_disks_has_none() -> None:
    document = summary(usage(with_disk=False))
    assert not {"fs", "runtime"} & set(document["node"])
    assert not {"volume", "ephemeral-storage"} & set(document["pods"][0])
    assert not {"rootfs", "logs"} & set(document["pods"][0]["containers"][0])


def test_metrics_are_samples_of_the_moment() -> None:
    page = resource_metrics(usage(with_disk=False)).splitlines()
    assert 'container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} 5.0 1767225660000' in page
    assert f'pod_memory_working_set_bytes{{namespace="ns",pod="p"}} {40 * MIB} 1767225660000' in page
    assert "node_cpu_usage_seconds_total 9.0 1767225660000" in page
    assert page[-1] == "resource_scrape_error 0"


def test_a_name_of_an_interface_breaks_no_line() -> None:
    pod = replace(usage().pods[0], interfaces=[replace(LINK, name='a"b\\')])
    page = cadvisor_metrics(replace(usage(), pods=[pod]))
    name = r"a\"b\\"
    assert f'container_network_receive_bytes_total{{interface="{name}",namespace="ns",pod="p"}} 10 ' in page


def test_rates_need_two_readings_that_are_not_too_close() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert rates.update("a", 0) is None
    now[0] = 2.0
    assert rates.update("a", 1_000_000_000) == 500_000_000
    now[0] = 2.5
    assert rates.update("a", 9_000_000_000) == 500_000_000
    now[0] = 4.0
    assert rates.update("a", 0) is None, "another cgroup of the same name"
    rates.retain(set())
    now[0] = 9.0
    assert rates.update("a", 1) is None


def test_cgroups_of_version_2_are_read(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    pod = tmp_path / "kubepods" / "podu"
    pod.mkdir(parents=True)
    for name, text in {
        "cpu.stat": "usage_usec 12\nuser_usec 10\n",
        "memory.current": "5000\n",
        "memory.stat": "anon 3000\ninactive_file 1000\npgfault 4\npgmajfault 2\n",
        "memory.max": "max\n",
        "cgroup.procs": "7\n8\n",
    }.items():
        (pod / name).write_text(text)
    reader = CgroupReader(tmp_path)
    assert reader.usage("/kubepods/podu") == CgroupUsage(12_000, 5000, 4000, 3000, 4, 2, None)
    assert reader.pids("/kubepods/podu") == [7, 8]
    (pod / "memory.max").write_text("6000\n")
    found = reader.usage("/kubepods/podu")
    assert found is not None and found.memory_limit == 6000
    assert reader.usage("/kubepods/other") is None


@contextmanager
def cgroup(name: str) -> Iterator[CgroupReader]:
    reader = CgroupReader()
    directories = {reader.directory(kind, name) for kind in ("cpuacct", "memory", "pids")}
    for directory in directories:
        directory.mkdir()
    try:
        yield reader
    finally:
        for directory in directories:
            directory.rmdir()


@pytest.mark.host
def test_the_usage_of_a_real_cgroup_is_read() -> None:
    name = f"/kindling-test-{os.getpid()}"
    with cgroup(name) as reader:
        move = " ".join(
            f"echo $$ > {reader.directory(kind, name)}/cgroup.procs;"
            for kind in ("cpuacct", "memory", "pids")
        )
        script = f"{move} x=$(head -c 3000000 /dev/zero | tr '\\0' x); echo ready; read line"
        process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            found = reader.usage(name)
            assert found is not None
            assert found.cpu_nanoseconds > 0 and found.rss > 2_000_000 <= found.working_set
            assert reader.pids(name) == [process.pid]
        finally:
            process.communicate(b"\n")
        assert reader.pids(name) == []


def test_the_machine_is_read() -> None:
    found = machine.machine_usage()
    assert 0 < found.working_set <= found.memory_used < found.memory_capacity
    assert 0 < found.processes < found.max_processes
    assert "lo" not in [each.name for each in machine.interfaces()]
    assert machine.interfaces(0) == []


def test_interfaces_whose_names_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    counters = b"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"
    names = (b"\xff\xfe", "a\u2028eth0".encode(), b"eth0")
    lines = [b"Inter-|", b" face |", *(b"  " + name + b": " + counters for name in names)]
    (tmp_path / "7/net/dev").write_bytes(b"\n".join(lines) + b"\n")
    found = [each.name for each in machine.interfaces(7, tmp_path)]
    assert found == ["\ufffd\ufffd", "a\u2028eth0", "eth0"]


async def test_directories_are_measured_without_following_links(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "file").write_bytes(b"x" * 100_000)
    (second / "link").symlink_to(first)
    found = await disk.measure([first, second, tmp_path / "missing"])
    assert set(found) == {first, second}
    assert 100_000 <= found[first].used < 130_000 and found[first].inodes == 2
    assert found[second].used < 20_000 and found[second].inodes == 2
    assert await disk.measure([]) == {}


async def test_pods_are_measured_as_far_as_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "kubelet")
    monkeypatch.setattr(identity, "LOGS", tmp_path / "logs")
    tree = tmp_path / "cgroups"
    tree.mkdir()
    (tree / "cgroup.controllers").touch()
    counters = {"cpu.stat": "usage_usec 7", "memory.current": "9", "memory.max": "max", "cgroup.procs": ""}
    counters["memory.stat"] = "anon 1\ninactive_file 2\npgfault 3\npgmajfault 4\n"
    for name in ("", "/c1", "/s1"):
        folder = tree / f"k/kubepods/besteffort/podu{name}"
        folder.mkdir(parents=True)
        for file, text in counters.items():
            (folder / file).write_text(text)
    volume = identity.volume_directory("u", "empty-dir", "scratch")
    volume.mkdir(parents=True)
    (volume / "file").write_bytes(b"x" * 50_000)
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]},
        "status": {"qosClass": "BestEffort"},
    }
    seen = PodRuntimeStatus(
        (Sandbox("s1", "p", "ns", "u", 0, True, 1),),
        {"c": (Container("c1", "s1", "c", 0, ContainerState.RUNNING, 1),)},
    )

    async def container_stats() -> list[JsonObject]:
        return [{"attributes": {"id": "c1"}, "writable_layer": {"used_bytes": {"value": 11}}}]

    async def image_file_system() -> tuple[Path, int, int]:
        return tmp_path, 5, 6

    runtime: Any = Mock(container_stats=container_stats, image_file_system=image_file_system)
    gone = {"metadata": {"uid": "gone"}}
    sources = StatisticsSources(
        "n", runtime, lambda: [pod, gone], lambda uid: seen if uid == "u" else PodRuntimeStatus(), "/k"
    )
    statistics = Statistics(sources, CgroupReader(tree))
    (found,) = (await statistics.collect(with_disk=False)).pods
    assert found.reading is not None and found.reading.usage.working_set == 7
    assert found.containers[0].rootfs is None and found.volumes == ()
    whole = await statistics.collect(with_disk=True)
    (found,) = whole.pods
    assert found.containers[0].rootfs == DiskUsage(11, 0)
    assert [each.name for each in found.volumes] == ["scratch"] and found.local_storage.used > 50_000
    assert whole.images == DiskUsage(5, 6) and whole.node_disk is not None
    (skipped,) = (await statistics.collect(with_disk=True, disk_of=lambda _: False)).pods
    assert skipped.volumes == () and skipped.containers[0].rootfs is None


async def test_a_volume_whose_files_cannot_be_counted_in_time_is_told_from_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    monkeypatch.setattr(disk, "_SECONDS", 0)
    identity.volume_directory("u", "empty-dir", "scratch").mkdir(parents=True)
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "gone", "emptyDir": {}}]
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"volumes": volumes}}
    (found,) = await own_volumes(pod)
    assert (found.name, found.is_measured, found.disk) == ("scratch", False, DiskUsage())
    usage = PodUsage("ns", "p", "u", "", None, volumes=[found])
    assert not usage.is_measured
    node = summary(NodeUsage("n", 0, machine.machine_usage(), None, [usage], node_disk=SYSTEM))
    assert "volume" not in node["pods"][0]
