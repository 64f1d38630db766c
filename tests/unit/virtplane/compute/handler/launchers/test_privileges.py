"""Real-time threads and locked memory, on processes that the tests start."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.launchers import hostcpus, privileges
from virtplane.compute.handler.launchers.process import Process

POD = "11111111-2222-3333-4444-555555555555"


def instance(**domain: Any) -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, {"spec": {"domain": {"memory": {"guest": "64Mi"}, **domain}}})


@pytest.fixture
def launcher() -> Iterator[Process]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        folder = os.open("/", os.O_PATH)
        process = Process(child.pid, os.pidfd_open(child.pid), folder, os.dup(folder))
        try:
            yield process
        finally:
            process.close()
            child.communicate(b"\n")


def task(proc: Path, pid: int, number: int, name: str, pod: str = POD) -> None:
    folder = proc / f"{pid}/task/{number}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (proc / f"{pid}/cgroup").write_text(f"0::/kubepods/burstable/pod{pod}/c\n")


def test_threads_of_virtual_cpus_are_found_in_their_pod_alone(tmp_path: Path) -> None:
    task(tmp_path, 10, 11, "CPU 0/KVM")
    task(tmp_path, 10, 12, "CPU 1/KVM")
    task(tmp_path, 10, 13, "IO iothread1")
    task(tmp_path, 20, 21, "CPU 0/KVM", pod=POD.replace("1", "2"))
    (tmp_path / "self").mkdir()
    assert list(privileges.vcpu_threads(POD, (0,), tmp_path)) == [11]
    assert sorted(privileges.vcpu_threads(POD, (0, 1), tmp_path)) == [11, 12]


def test_threads_of_other_guests_keep_their_priority(tmp_path: Path) -> None:
    task(tmp_path, os.getpid(), os.getpid(), "CPU 0/KVM")
    privileges.schedule_in_real_time(instance(), POD, tmp_path)
    assert os.sched_getscheduler(os.getpid()) == os.SCHED_OTHER


@pytest.mark.parametrize(
    ("domain", "locked"),
    [
        ({}, False),
        ({"devices": {"hostDevices": [{"name": "h", "deviceName": "a/b"}]}}, True),
        ({"devices": {"gpus": [{"name": "h", "deviceName": "a/b"}]}}, True),
        ({"cpu": {"realtime": {}}}, True),
        ({"memory": {"guest": "64Mi", "reservedOverhead": {"memLock": "Required"}}}, True),
        (
            {
                "memory": {"guest": "64Mi", "reservedOverhead": {"memLock": "NotRequired"}},
                "devices": {"gpus": [{"name": "h", "deviceName": "a/b"}]},
            },
            False,
        ),
    ],
)
def test_memory_that_devices_write_to_is_locked(domain: JsonObject, locked: bool) -> None:
    assert privileges.locks_memory(instance(**domain)) == locked


def test_the_launcher_may_lock_the_memory_of_its_guest(launcher: Process) -> None:
    wanted = (64 << 20) + (1 << 30)
    _, hard = resource.prlimit(launcher.pid, resource.RLIMIT_MEMLOCK)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this process may not raise the limit of locked memory")
    low = (4096, wanted)
    resource.prlimit(launcher.pid, resource.RLIMIT_MEMLOCK, low)
    privileges.let_lock(instance(), launcher)
    assert resource.prlimit(launcher.pid, resource.RLIMIT_MEMLOCK) == low
    required = {"guest": "64Mi", "reservedOverhead": {"memLock": "Required"}}
    privileges.let_lock(instance(memory=required), launcher)
    assert resource.prlimit(launcher.pid, resource.RLIMIT_MEMLOCK) == (wanted, wanted)


def test_the_cpus_of_a_pod_are_those_of_its_launcher(launcher: Process, tmp_path: Path) -> None:
    (own, *_) = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(launcher.pid, {own})
    assert [cpu.number for cpu in hostcpus.of_pod(launcher, tmp_path)] == [own]


def test_cpus_have_the_place_that_the_kernel_tells(tmp_path: Path) -> None:
    for node, cpus in (("node0", "0-1"), ("node1", "2-3,8")):
        (tmp_path / "node" / node).mkdir(parents=True)
        (tmp_path / "node" / node / "cpulist").write_text(f"{cpus}\n")
    siblings = tmp_path / "cpu/cpu8/topology/thread_siblings_list"
    siblings.parent.mkdir(parents=True)
    siblings.write_text("3,8\n")
    assert [(cpu.number, cpu.node, cpu.core) for cpu in hostcpus.places([8, 1, 2], tmp_path)] == [
        (1, 0, 1),
        (2, 1, 2),
        (8, 1, 3),
    ]


@pytest.mark.parametrize("text", ["", "a", "1-b", "-"])
def test_what_is_no_list_of_cpus_names_none(text: str) -> None:
    assert hostcpus.cpu_list(text) == []
