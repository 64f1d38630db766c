"""Containers are held to their limits of processors once they have started."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindling.node.pods.cgroup_limits import CgroupTree
from kindling.node.pods.cpu_quotas import CpuQuotas
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import Container, ContainerState, Sandbox
from kubecore.json import JsonObject

POD: JsonObject = {
    "metadata": {"uid": "u", "name": "p", "namespace": "n"},
    "spec": {
        "containers": [
            {"name": "small", "resources": {"limits": {"cpu": "10m"}}},
            {"name": "free", "resources": {}},
        ]
    },
    "status": {"qosClass": "Burstable"},
}
SMALL, FREE = POD["spec"]["containers"]


def observed(*states: tuple[str, ContainerState]) -> PodRuntimeStatus:
    sandbox = Sandbox("s", "p", "n", "u", 0, True, 0)
    return PodRuntimeStatus(
        (sandbox,), {name: (Container(f"{name}-id", "s", name, 0, state, 0),) for name, state in states}
    )


class Machine:
    """A folder with the files that a kernel with cgroups of version 1 would make."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, container_id: str) -> None:
        cgroup = self._cgroup(container_id)
        cgroup.mkdir(parents=True)
        (cgroup / "cpu.cfs_period_us").write_text("100000")
        (cgroup / "cpu.cfs_quota_us").write_text("-1")

    def quota(self, container_id: str) -> str:
        return (self._cgroup(container_id) / "cpu.cfs_quota_us").read_text()

    def quotas(self, *owners: str) -> CpuQuotas:
        return CpuQuotas("/node", lambda _pod, name: ("", name in owners), CgroupTree(self._path))

    def _cgroup(self, container_id: str) -> Path:
        return self._path / "cpu" / "node/kubepods/burstable/podu" / container_id


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.start("small-id")
    made.start("free-id")
    return made


async def test_a_started_container_gets_its_quota(machine: Machine) -> None:
    quotas = machine.quotas()
    await quotas.hold(POD, SMALL, "small-id")
    await quotas.hold(POD, FREE, "free-id")
    assert (machine.quota("small-id"), machine.quota("free-id")) == ("1000", "-1")


async def test_an_agent_that_ended_before_the_quota_sets_it_when_it_is_back(machine: Machine) -> None:
    running = observed(("small", ContainerState.RUNNING), ("free", ContainerState.RUNNING))
    await machine.quotas().hold_running(POD, running)
    assert (machine.quota("small-id"), machine.quota("free-id")) == ("1000", "-1")


async def test_what_has_not_started_waits_for_its_quota(machine: Machine) -> None:
    await machine.quotas().hold_running(POD, observed(("small", ContainerState.CREATED)))
    assert machine.quota("small-id") == "-1"


async def test_a_container_with_processors_of_its_own_may_use_them_all(machine: Machine) -> None:
    await machine.quotas("small").hold(POD, SMALL, "small-id")
    assert machine.quota("small-id") == "-1"


async def test_a_quota_is_set_once(machine: Machine) -> None:
    """A resize changes it later."""
    quotas = machine.quotas()
    await quotas.hold(POD, SMALL, "small-id")
    (file,) = (machine._path / "cpu").rglob("small-id/cpu.cfs_quota_us")
    file.write_text("5000")
    await quotas.hold_running(POD, observed(("small", ContainerState.RUNNING)))
    assert machine.quota("small-id") == "5000"


async def test_a_quota_that_is_refused_is_tried_again(machine: Machine) -> None:
    quotas = machine.quotas()
    (period,) = (machine._path / "cpu").rglob("small-id/cpu.cfs_period_us")
    period.unlink()
    period.mkdir()
    await quotas.hold(POD, SMALL, "small-id")
    assert machine.quota("small-id") == "-1"
    period.rmdir()
    await quotas.hold(POD, SMALL, "small-id")
    assert machine.quota("small-id") == "1000"


async def test_a_container_that_has_ended_needs_no_quota(machine: Machine) -> None:
    await machine.quotas().hold(POD, SMALL, "gone-id")


async def test_containers_that_are_gone_are_forgotten(machine: Machine) -> None:
    """One that is restarted for ever leaves nothing behind."""
    quotas = machine.quotas()
    for number in range(100):
        await quotas.hold(POD, SMALL, f"gone-{number}")
        await quotas.hold_running(POD, observed(("small", ContainerState.RUNNING)))
    assert quotas.held("u") == {"small-id"}
