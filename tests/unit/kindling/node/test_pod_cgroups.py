"""The cgroups of pods and QoS classes: their limits, and what the kernel makes of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kindling.apiserver.kinds.scheduling import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES
from kindling.node.cgroup_hierarchies import hierarchies, is_unified
from kindling.node.options import NodeOptions
from kindling.node.pods.cgroup_limits import (
    INFRASTRUCTURE_PRIORITY,
    CgroupLimits,
    CgroupTree,
    burstable_shares,
    cpu_weight,
    pod_limits,
)
from kindling.node.pods.cgroup_removal import remove_tree
from kindling.node.pods.pod_cgroups import NodeShare, PodCgroups, huge_pages
from kubecore.json import JsonObject

MIB = 1 << 20


def pod(quality: str, *containers: JsonObject, uid: str = "u", **spec: Any) -> JsonObject:
    listed = [{"name": f"c{index}", "resources": each} for index, each in enumerate(containers)]
    return {
        "metadata": {"uid": uid},
        "spec": {"containers": listed, **spec},
        "status": {"qosClass": quality},
    }


def both(**amounts: str) -> JsonObject:
    return {"requests": amounts, "limits": amounts}


def test_a_guaranteed_pod_has_the_sum_of_its_containers() -> None:
    found = pod_limits(
        pod("Guaranteed", both(cpu="1", memory="64Mi"), both(cpu="500m", memory="64Mi")), pids=9
    )
    assert found == CgroupLimits(cpu_shares=1536, cpu_quota=150_000, memory=128 * MIB, pids=9)


def test_a_pod_is_limited_only_where_every_container_is() -> None:
    found = pod_limits(pod("Burstable", both(cpu="1", memory="64Mi"), {"limits": {"memory": "64Mi"}}))
    assert found == CgroupLimits(cpu_shares=1024, memory=128 * MIB)
    init = [{"name": "i", "resources": {}}]
    assert pod_limits(pod("Burstable", both(memory="64Mi"), initContainers=init)).memory is None
    whole = {"limits": {"memory": "1Gi"}}
    assert pod_limits(pod("Burstable", both(memory="64Mi"), {}, resources=whole)).memory == 1024 * MIB


def test_a_pod_that_asks_for_nothing_has_the_least_shares_and_no_limit() -> None:
    assert pod_limits(pod("BestEffort", {})) == CgroupLimits(cpu_shares=2)


SMALL = {"requests": {"cpu": "10m"}}


def test_infrastructure_begins_at_the_highest_class_that_users_can_create() -> None:
    assert INFRASTRUCTURE_PRIORITY == HIGHEST_USER_PRIORITY


@pytest.mark.parametrize(
    ("priority", "shares"),
    [
        (0, 10),
        (INFRASTRUCTURE_PRIORITY - 1, 10),
        (INFRASTRUCTURE_PRIORITY, 1024),
        (SYSTEM_CLASSES["system-node-critical"], 1024),
    ],
)
def test_infrastructure_has_the_shares_of_a_processor_at_least(priority: int, shares: int) -> None:
    assert pod_limits(pod("Burstable", SMALL, priority=priority)).cpu_shares == shares


def test_infrastructure_keeps_larger_requests_and_gains_none_where_it_requests_nothing() -> None:
    large = pod("Burstable", {"requests": {"cpu": "2"}}, priority=INFRASTRUCTURE_PRIORITY)
    assert pod_limits(large).cpu_shares == 2048
    assert pod_limits(pod("BestEffort", {}, priority=INFRASTRUCTURE_PRIORITY)).cpu_shares == 2
    guaranteed = pod("Guaranteed", both(cpu="10m", memory="64Mi"), priority=INFRASTRUCTURE_PRIORITY)
    assert pod_limits(guaranteed).cpu_shares == 10


def test_guaranteed_pods_lose_nothing_to_infrastructure() -> None:
    assert burstable_shares([pod("Burstable", SMALL, priority=INFRASTRUCTURE_PRIORITY)]) == 10


def test_the_overhead_of_a_runtime_class_comes_on_top() -> None:
    found = pod_limits(
        pod("Guaranteed", both(cpu="1", memory="64Mi"), overhead={"cpu": "1", "memory": "64Mi"})
    )
    assert (found.cpu_shares, found.cpu_quota, found.memory) == (2048, 200_000, 128 * MIB)


def test_huge_pages_are_limited_by_size() -> None:
    found = pod_limits(pod("Burstable", both(**{"hugepages-2Mi": "64Mi", "memory": "64Mi"})))
    assert found.huge_pages == {"2MB": 64 * MIB}


def test_burstable_pods_share_what_they_request() -> None:
    pods = [pod("Burstable", {"requests": {"cpu": "500m"}}), pod("Guaranteed", both(cpu="4", memory="1Gi"))]
    assert burstable_shares([*pods, pod("Burstable", {"requests": {"cpu": "250m"}})]) == 768
    assert burstable_shares([]) == 2


def test_shares_become_weights() -> None:
    assert [cpu_weight(shares) for shares in (2, 1024, 262144)] == [1, 39, 10000]


def test_version_2_gets_its_own_files(tmp_path: Path) -> None:
    """A directory with the files that the kernel would make."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids hugetlb")
    (tmp_path / "cgroup.subtree_control").touch()
    made = tmp_path / "kubepods" / "podu"
    made.mkdir(parents=True)
    for directory in (made, made.parent):
        for name in (
            "cgroup.subtree_control",
            "cpu.weight",
            "cpu.max",
            "memory.max",
            "pids.max",
            "hugetlb.2MB.max",
        ):
            (directory / name).touch()
    CgroupTree(tmp_path).ensure("/kubepods/podu", CgroupLimits(1024, 50_000, 64 * MIB, 7, {"2MB": 4 * MIB}))
    text = {path.name: path.read_text() for path in made.iterdir()}
    assert text == {
        "cgroup.subtree_control": "+cpu +memory +pids +hugetlb",
        "cpu.weight": "39",
        "cpu.max": "50000 100000",
        "memory.max": str(64 * MIB),
        "pids.max": "7",
        "hugetlb.2MB.max": str(4 * MIB),
    }
    assert (made.parent / "cgroup.subtree_control").read_text() == "+cpu +memory +pids +hugetlb"
    CgroupTree(tmp_path).ensure("/kubepods/podu", CgroupLimits())
    assert ((made / "cpu.max").read_text(), (made / "memory.max").read_text()) == ("max 100000", "max")


def test_huge_pages_of_the_machine_are_counted(tmp_path: Path) -> None:
    (tmp_path / "hugepages-2048kB").mkdir()
    (tmp_path / "hugepages-2048kB" / "nr_hugepages").write_text("3\n")
    assert huge_pages(tmp_path) == {2 * MIB: 6 * MIB}
    assert huge_pages(tmp_path / "missing") == {}


@pytest.fixture
def root() -> Iterator[str]:
    """A cgroup of this test in every hierarchy."""
    name = f"/kindling-test-{os.getpid()}"
    yield name
    for hierarchy in hierarchies():
        remove_tree(hierarchy / name.lstrip("/"))


def read(controller: str, cgroup: str, name: str) -> str:
    root = next((each for each in hierarchies() if each.name == controller), Path("/sys/fs/cgroup"))
    return (root / cgroup.lstrip("/") / name).read_text().strip()


version_1 = pytest.mark.skipif(is_unified(), reason="reads files of version 1")


@version_1
@pytest.mark.host
async def test_the_kernel_takes_the_limits_of_pods_and_classes(root: str) -> None:
    burstable = pod("Burstable", {"requests": {"cpu": "500m"}, "limits": {"memory": "64Mi"}}, uid="b")
    admitted = [burstable]
    cgroups = PodCgroups(root, NodeOptions(pod_max_pids=50), NodeShare(4000, 512 * MIB), lambda: admitted)
    cgroups.start()
    assert read("memory", f"{root}/kubepods", "memory.limit_in_bytes") == str(512 * MIB)
    assert read("cpu", f"{root}/kubepods", "cpu.shares") == "4096"
    assert read("cpu", f"{root}/kubepods/besteffort", "cpu.shares") == "2"
    await cgroups.ensure(burstable)
    own = f"{root}/kubepods/burstable/podb"
    assert read("cpu", own, "cpu.shares") == "512"
    assert read("cpu", own, "cpu.cfs_quota_us") == "-1"
    assert read("memory", own, "memory.limit_in_bytes") == str(64 * MIB)
    assert read("pids", own, "pids.max") == "50"
    assert read("cpu", f"{root}/kubepods/burstable", "cpu.shares") == "512"
    await cgroups.ensure(pod("Burstable", SMALL, uid="i", priority=INFRASTRUCTURE_PRIORITY))
    assert read("cpu", f"{root}/kubepods/burstable/podi", "cpu.shares") == "1024"
    await cgroups.ensure(pod("Guaranteed", both(cpu="1500m", memory="128Mi"), uid="g"))
    assert read("cpu", f"{root}/kubepods/podg", "cpu.cfs_quota_us") == "150000"
    admitted.clear()
    await cgroups.refresh()
    assert read("cpu", f"{root}/kubepods/burstable", "cpu.shares") == "2"


@pytest.mark.host
def test_a_fork_bomb_ends_at_the_limit(root: str) -> None:
    CgroupTree().ensure(root, CgroupLimits(pids=8))
    hierarchy = next((each for each in hierarchies() if each.name == "pids"), Path("/sys/fs/cgroup"))
    directory = hierarchy / root.lstrip("/")
    script = 'echo $$ >"$0/cgroup.procs"; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 5 >/dev/null 2>&1 & done'
    script += "; echo through"
    done = subprocess.run(["sh", "-c", script, str(directory)], capture_output=True, text=True, check=False)
    for pid in (directory / "cgroup.procs").read_text().split():
        os.kill(int(pid), 9)
    assert "through" not in done.stdout
    assert "fork" in done.stderr
    while (directory / "cgroup.procs").read_text():
        os.sched_yield()
