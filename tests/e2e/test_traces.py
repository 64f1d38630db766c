"""What is deleted leaves nothing behind on the machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.clusters import Cluster, Machine, manifest
from tests.e2e.commands import run
from tests.e2e.processes import all_processes
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.guest]


def mounts(namespace_of: int | str = "self") -> set[str]:
    """Mount points in the mount namespace of a process."""
    lines = Path(f"/proc/{namespace_of}/mountinfo").read_text().splitlines()
    return {line.split()[4] for line in lines}


def in_node(cluster: Cluster, *command: str) -> str:
    """The output of a command in the node's namespaces."""
    namespaces = cluster.state / "nodes/node01/ns"
    enter = [f"--{name}={namespaces / kind}" for name, kind in (("mount", "mnt"), ("net", "net"))]
    return run("nsenter", *enter, *command).stdout


def loop_files(cluster: Cluster) -> set[str]:
    """The cluster's files behind loop devices: others on the machine come and go."""
    files = run("losetup", "--list", "--noheadings", "--output", "BACK-FILE").stdout.splitlines()
    return {file for file in files if str(cluster.state) in file}


def below_state(cluster: Cluster) -> set[str]:
    """Directories and sockets of the node, without containerd's content and the logs of the API server."""
    node = cluster.state / "nodes/node01"
    return {str(path) for folder in ("kubelet", "cni", "pod-logs") for path in (node / folder).rglob("*")}


def node_snapshot(cluster: Cluster) -> dict[str, set[str]]:
    """Everything in a node that a virtual machine could leave behind, by kind."""
    agent = cluster.component("containerd-node01")
    cgroups = [path for path in Path("/sys/fs/cgroup").rglob(f"kindling-{cluster.id}") if path.is_dir()]
    return {
        "processes": {
            process.command
            for process in cluster.processes()
            if "launcher" in process.command or "qemu" in process.command or "libvirtd" in process.command
        },
        "shims": {process.command for process in cluster.processes() if "containerd-shim" in process.command},
        "links": {
            line.split(":")[1].split("@")[0] for line in in_node(cluster, "ip", "-o", "link").splitlines()
        },
        "namespaces": set(in_node(cluster, "ls", "/run/netns").split()),
        "mounts": mounts(agent),
        "rules": {line.split("#")[0] for line in in_node(cluster, "nft", "list", "ruleset").splitlines()},
        "cgroups": {
            folder
            for root in cgroups
            for folder, _, _ in os.walk(root)  # which passes over what goes meanwhile
            if Path(folder).name.startswith("pod")
        },
        "files": below_state(cluster),
        "loops": loop_files(cluster),
    }


@pytest.mark.timeout(120)
@pytest.mark.feature("VML-20")
def test_a_deleted_machine_leaves_nothing_in_its_node(
    cluster: Cluster, new_machine: Callable[..., Machine]
) -> None:
    before = node_snapshot(cluster)
    machine = new_machine("vanishing")
    machine.wait_running()
    pod = machine.pod()["metadata"]["uid"]
    present = node_snapshot(cluster)
    grown = {kind for kind in before if present[kind] - before[kind]}
    assert {"processes", "shims", "links", "namespaces", "mounts", "cgroups", "files"} <= grown
    machine.delete()
    machine.wait_gone()

    def left() -> dict[str, set[str]]:
        after = node_snapshot(cluster)
        return {kind: after[kind] - before[kind] for kind in before if after[kind] - before[kind]}

    wait_for("nothing is left", lambda: not left() or None, 20)
    assert not any(pod in name for name in below_state(cluster))


def machine_traces(state: Path, identifier: str) -> dict[str, set[str]]:
    """What a cluster has on the machine, by kind; empty sets where there is no cluster."""
    marks = (f"kindling-{identifier}", f"kd{identifier}", str(state), f"KINDLING_PROCESS={identifier}/")

    def marked(lines: list[str]) -> set[str]:
        return {line for line in lines if any(mark in line for mark in marks)}

    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/kindling-*") if path.is_dir()]
    return {
        "processes": {
            process.command
            for process in all_processes()
            if any(mark in process.traces for mark in marks) and "pytest" not in process.command
        },
        "links": marked(run("ip", "-o", "link").stdout.splitlines()),
        "mounts": marked(Path("/proc/self/mountinfo").read_text().splitlines()),
        "rules": marked(run("nft", "list", "tables").stdout.splitlines()),
        "loops": marked(
            run("losetup", "--list", "--noheadings", "--output", "BACK-FILE").stdout.splitlines()
        ),
        "cgroups": marked(cgroups),
        "registry": {str(path) for path in Path("/run/kindling").glob(f"{identifier}*")},
        "state": {str(path) for path in [state] if path.exists()},
        "namespaces": marked(run("lsns", "--noheadings", "--output", "NSFS").stdout.splitlines()),
    }


@pytest.mark.timeout(240)
def test_down_stops_everything_up_brings_it_back_and_reset_leaves_nothing(guest_archive: Path) -> None:
    own = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        own.up()
        identifier = own.id
        own.load(guest_archive)
        machine = own.create(manifest("survivor", grace=1))
        machine.wait_running()
        first = machine.uid()
        running = machine_traces(own.state, identifier)
        assert {kind for kind, found in running.items() if not found} <= {"loops"}
        own.down()
        stopped = machine_traces(own.state, identifier)
        assert {kind for kind, found in stopped.items() if found} <= {"state", "registry"}
        own.up()
        machine.wait_restarted(first, 60)
    finally:
        own.reset()
    left = machine_traces(own.state, identifier)
    assert {kind: found for kind, found in left.items() if found} == {}
