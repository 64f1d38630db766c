"""Processors of their own: who gets which, what the others have left, what survives the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from kindling.node.cpus import topology
from kindling.node.cpus.manager import CpuManager, exclusive
from kindling.node.cpus.topology import Place, choose, written
from kindling.node.options import NodeOptions, OptionProblem, parse, parse_cpus
from kindling.node.pods.resources import linux_resources
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.manager import huge_page_size, memory_size
from kubecore.json import JsonObject

# Two sockets of two cores of two threads; the threads of a core are 4 apart.
MACHINE = {number: Place((number // 2) % 2, number % 2) for number in range(8)}


def pod(cpu: str, uid: str = "u", quality: str = "Guaranteed") -> JsonObject:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "metadata": {"uid": uid},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"qosClass": quality},
    }


def test_whole_numbers_of_guaranteed_pods_are_exclusive() -> None:
    def count(each: JsonObject) -> int:
        return exclusive(each, each["spec"]["containers"][0])

    assert [count(pod(cpu)) for cpu in ("2", "2000m", "1500m", "0")] == [2, 2, 0, 0]
    assert count(pod("2", quality="Burstable")) == 0


def test_whole_sockets_and_cores_are_chosen_before_threads() -> None:
    def chosen(count: int, free: str = "0-7") -> str | None:
        found = choose(count, parse_cpus(free), MACHINE)
        return None if found is None else written(found)

    assert chosen(4) == "0-1,4-5", "a socket"
    assert chosen(2) == "0,4", "a core"
    assert chosen(6) == "0-2,4-6"
    assert chosen(1, "0-3,5-7") == "0", "the thread whose core is shared already"
    assert chosen(3, "1-7") == "1,4-5", "core 1, and the thread whose sibling is taken"
    assert chosen(2, "3") is None
    assert chosen(0) == ""


def test_lists_of_processors_are_read_and_written() -> None:
    assert parse_cpus("0-2,5\n") == {0, 1, 2, 5}
    assert written({5, 0, 2, 1}) == "0-2,5"
    assert parse_cpus("") == frozenset()


def test_this_machine_has_processors() -> None:
    found = topology.read()
    assert 0 in found


class Runtime:
    def __init__(self) -> None:
        self.updates: list[tuple[str, str]] = []
        self.fails = False

    async def update_resources(self, container: str, resources: JsonObject) -> None:
        if self.fails:
            raise RuntimeFailure("not now")
        self.updates.append((container, resources["cpuset_cpus"]))


def manager(directory: Path, runtime: Any = None, *options: str) -> CpuManager:
    chosen = options or ("cpu-manager-policy=static", "reserved-cpus=0")
    own: Any = runtime or Runtime()
    return CpuManager(parse(chosen), MACHINE, directory, own)


def test_everybody_shares_all_without_the_policy(tmp_path: Path) -> None:
    runtime: Any = Runtime()
    found = CpuManager(NodeOptions(), MACHINE, tmp_path, runtime)
    assert found.admit(pod("2")) is None
    assert (found.cpus(pod("2"), "c"), found.is_pinned(pod("2"))) == (("", False), False)
    assert json.loads((tmp_path / "cpu_manager_state").read_text())["policyName"] == "none"


def test_others_on_the_node_read_which_policy_there_is(tmp_path: Path) -> None:
    manager(tmp_path)
    assert json.loads((tmp_path / "cpu_manager_state").read_text())["policyName"] == "static"


def test_processors_are_given_once_and_survive_the_agent(tmp_path: Path) -> None:
    first = manager(tmp_path)
    assert first.admit(pod("2")) is None
    assert first.cpus(pod("2"), "c") == ("1,5", True)
    assert first.cpus(pod("1500m", "v"), "c") == ("0,2-4,6-7", False), "the reserved one is shared"
    assert first.admit(pod("2", "w")) is None
    assert first.cpus(pod("2", "w"), "c") == ("2,6", True)
    again = manager(tmp_path)
    assert again.cpus(pod("2", "w"), "c") == ("2,6", True)
    assert again.admit(pod("2", "w")) is None, "it has them already"
    again.retain({"w"})
    assert again.cpus(pod("1500m", "v"), "c")[0] == "0-1,3-5,7"
    state = orjson.loads((tmp_path / "cpu_manager_state").read_bytes())
    assert state == {"policyName": "static", "defaultCpuSet": "0-1,3-5,7", "entries": {"w": {"c": "2,6"}}}


def test_processors_that_cannot_be_recorded_are_not_given(tmp_path: Path) -> None:
    found = manager(tmp_path)
    obstacle = tmp_path / "cpu_manager_state.new"
    obstacle.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            found.admit(pod("2"))
    assert found.shared == set(MACHINE)
    obstacle.rmdir()
    assert found.admit(pod("2")) is None
    assert manager(tmp_path).is_pinned(pod("2"))


def test_a_pod_for_which_too_few_are_left_is_refused(tmp_path: Path) -> None:
    found = manager(tmp_path)
    refused = found.admit(pod("8"))
    assert refused is not None and refused.reason == "UnexpectedAdmissionError"
    assert "requested=8, available=7" in refused.message
    assert found.shared == set(MACHINE), "nothing is kept"
    found.admit(pod("7"))
    found.release("u")
    assert found.shared == set(MACHINE)


@pytest.mark.parametrize(
    "state",
    [b"{", b'{"policyName":"none"}', b'{"policyName":"static","entries":{"u":{"c":"99"}}}'],
)
def test_a_state_that_is_no_good_gives_nobody_anything(tmp_path: Path, state: bytes) -> None:
    (tmp_path / "cpu_manager_state").write_bytes(state)
    assert manager(tmp_path).shared == set(MACHINE)


async def test_the_others_move_away_and_back(tmp_path: Path) -> None:
    runtime = Runtime()
    found = manager(tmp_path, runtime)
    shared, own = pod("500m", "s"), pod("2", "o")
    running = [
        (each, Container(f"{each['metadata']['uid']}1", "s", "c", 0, ContainerState.RUNNING, 1))
        for each in (shared, own)
    ]
    found.admit(own)
    await found.reconcile(running)
    assert runtime.updates == [("s1", "0,2-4,6-7"), ("o1", "1,5")]
    await found.reconcile(running)
    assert len(runtime.updates) == 2, "nothing changes"
    found.release("o")
    runtime.fails = True
    await found.reconcile(running[:1])
    runtime.fails = False
    await found.reconcile(running[:1])
    assert runtime.updates[2:] == [("s1", "0-7")]


def test_a_container_starts_on_its_processors_without_a_quota() -> None:
    made = pod("2")
    document = linux_resources(made, made["spec"]["containers"][0], 1 << 32, "1,5", with_quota=False)
    assert document["cpuset_cpus"] == "1,5" and "cpu_quota" not in document


def test_the_policy_needs_reserved_processors() -> None:
    with pytest.raises(OptionProblem, match="needs reserved processors"):
        parse(["cpu-manager-policy=static"])
    assert parse(["cpu-manager-policy=static", "system-reserved=cpu=500m"]).cpu_manager_policy == "static"


def huge(medium: str, *sizes: str) -> tuple[JsonObject, JsonObject]:
    requests = {f"hugepages-{size}": "64Mi" for size in sizes}
    volume = {"name": "v", "emptyDir": {"medium": medium}}
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}, volume


def test_volumes_of_huge_pages_have_the_size_that_the_pod_requests() -> None:
    assert huge_page_size(*huge("HugePages", "2Mi")) == 2 << 20
    assert huge_page_size(*huge("HugePages-1Gi", "2Mi", "1Gi")) == 1 << 30
    for medium, *sizes in (
        ["HugePages"],
        ["HugePages", "2Mi", "1Gi"],
        ["HugePages-1Gi", "2Mi"],
        ["HugePages-x"],
    ):
        with pytest.raises(ContentProblem):
            huge_page_size(*huge(medium, *sizes))


def test_containers_have_their_limits_of_huge_pages() -> None:
    container = {"name": "c", "resources": {"limits": {"hugepages-2Mi": "64Mi", "hugepages-1Gi": "2Gi"}}}
    document = linux_resources(pod("1"), container, 1 << 32)
    assert document["hugepage_limits"] == [
        {"page_size": "1GB", "limit": 2 << 30},
        {"page_size": "2MB", "limit": 64 << 20},
    ]


def test_a_volume_in_memory_holds_no_more_than_its_limit_and_the_pods() -> None:
    def size(limit: str | None, memory: str | None) -> int | None:
        limits = {"memory": memory} if memory else {}
        containers = [{"name": "c", "resources": {"limits": limits}}]
        made = {"spec": {"containers": containers}, "status": {"qosClass": "Burstable"}}
        source = {"medium": "Memory"} | ({"sizeLimit": limit} if limit else {})
        return memory_size(made, {"name": "v", "emptyDir": source})

    assert [size("1Mi", "1Gi"), size("1Gi", "1Mi"), size(None, "1Mi"), size("1Mi", None)] == [1 << 20] * 4
    assert size(None, None) is None and size("0", None) is None
