"""A node that is added to a running cluster, others that are drained and switched off, and what `status` says
meanwhile; before that, guests that have processors of the node for themselves.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, Cluster, Machine, manifest
from tests.e2e.commands import ROOT, attempt, program, run
from tests.e2e.failures import Document, NotThere
from tests.e2e.support import open_console, wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_VIRTPLANE = (sys.executable, "-m", "virtplane.cli.main")
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_HOSTNAME = "kubernetes.io/hostname"
_STATIC = ("--node-option=cpu-manager-policy=static", "--node-option=system-reserved=cpu=100m")
"""One processor stays for everybody."""


@pytest.fixture(scope="module")
def own(guest_archive: Path) -> Iterator[Cluster]:
    """A cluster of these tests alone, with the demo's guest; the last leaves it without its operator."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        cluster.up(*_STATIC)
        cluster.load(guest_archive)
        yield cluster
    finally:
        cluster.reset()


def allowed(process: int) -> set[int]:
    """The processors that a thread or process may run on."""
    return os.sched_getaffinity(process)


def threads(process: int) -> dict[str, set[int]]:
    """The processors of a process's threads by their names; threads of one name together."""
    found: dict[str, set[int]] = {}
    for folder in Path(f"/proc/{process}/task").iterdir():
        name = (folder / "comm").read_text().strip()
        found.setdefault(name, set()).update(allowed(int(folder.name)))
    return found


@pytest.mark.feature("VML-70", "VML-71")
def test_a_guest_has_processors_that_nobody_else_uses(own: Cluster) -> None:
    free = (os.cpu_count() or 1) - 1
    if free < 1:
        pytest.skip("needs a processor more")
    # The emulator gets one of its own where there are enough.
    isolated = free > 1
    count = min(2, free - isolated)
    gates = {"developerConfiguration": {"featureGates": ["CPUManager"]}}
    own.request("PATCH", _INSTALLATION, {"spec": {"configuration": gates}})
    wanted = manifest("pinned", grace=1)
    domain = wanted["spec"]["template"]["spec"]["domain"]
    domain["resources"] = {}
    domain["cpu"] = {"cores": count, "dedicatedCpuPlacement": True, "isolateEmulatorThread": isolated}
    machine = own.create(wanted)
    try:
        machine.wait_running(90)
        pod = machine.pod()
        (compute,) = (each for each in pod["spec"]["containers"] if each["name"] == "compute")
        assert pod["status"]["qosClass"] == "Guaranteed"
        assert compute["resources"]["requests"]["cpu"] == str(count + isolated)

        theirs = allowed(machine.launcher())
        assert len(theirs) == count + isolated
        qemu = threads(machine.qemu())
        pinned = [cpus for name, cpus in sorted(qemu.items()) if name.startswith("CPU ")]
        assert [len(cpus) for cpus in pinned] == [1] * count and len(set[int]().union(*pinned)) == count
        emulator = theirs - set[int]().union(*pinned) if isolated else theirs
        assert allowed(machine.qemu()) == emulator and set[int]().union(*qemu.values()) <= theirs
        # What runs on the node already moves away, too.
        wait_for("others leave them", lambda: not theirs & allowed(own.component("virt-handler")), 30)
        with machine.console() as console:
            assert console.run("nproc") == str(count)
            shown = console.run("cat /sys/devices/system/cpu/cpu[0-9]*/topology/core_id").split()
            assert sorted(shown) == [str(number) for number in range(count)]
    finally:
        clean_up([machine])
    wait_for("they are everybody's again", lambda: theirs <= allowed(own.component("virt-handler")), 30)


def node_of_operator(cluster: Cluster) -> str:
    pods = cluster.items(f"{CORE}/namespaces/kubevirt/pods", "kubevirt.io%3Dvirt-operator")
    return next((pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"), "")


@pytest.fixture(scope="module")
def wanderer(own: Cluster) -> Machine:
    """A machine on node01 that goes to another node when its own is drained."""
    wanted = manifest("wanderer", grace=1)
    wanted["spec"]["template"]["spec"]["evictionStrategy"] = "None"
    machine = own.create(wanted)
    machine.wait_running()
    return machine


@pytest.fixture(scope="module")
def two_nodes(own: Cluster, wanderer: Machine) -> str:
    """A second node, which was added while machines run; gives what instance the machine had before."""
    first = wanderer.uid()
    run(*_VIRTPLANE, "up", "--nodes", "2", "--state", own.state, seconds=120, cwd=ROOT)
    return first


@pytest.fixture(scope="module")
def planned(own: Cluster, wanderer: Machine, two_nodes: str) -> tuple[str, str]:
    """What is said of a drain of the first node beforehand: while a machine blocks it, and without it."""
    assert wanderer.uid() == two_nodes
    wanted = manifest("stubborn", grace=1)
    wanted["spec"]["template"]["spec"] |= {
        "evictionStrategy": "LiveMigrate",
        "nodeSelector": {_HOSTNAME: "node01"},
    }
    command = (program("virtctl"), "adm", "drain-plan", "node01")
    stubborn = own.create(wanted)
    try:

        def is_blocked() -> str:
            done = attempt(*command, env=own.environment)
            return done.stdout if done.returncode == 1 and "stubborn" in done.stdout else ""

        blocked = wait_for("it blocks the drain", is_blocked, 60)
    finally:
        clean_up([stubborn])
    return blocked, own.virtctl(*command[1:])


@pytest.mark.feature("NEW-04")
def test_a_plan_tells_what_a_drain_would_do_and_does_nothing(
    wanderer: Machine, two_nodes: str, planned: tuple[str, str]
) -> None:
    """Whether it was right, the drain shows."""
    blocked, free = planned
    assert "node01: of 2 guests, 1 would start again on another node, 1 would block the drain.\n" in blocked
    assert (
        "default/stubborn blocks: VMI stubborn is configured with an eviction strategy but is not" in blocked
    )
    assert "field:  spec.template.spec.evictionStrategy is LiveMigrate\n" in blocked
    assert "default/wanderer restarts: its guest is shut down within 1 s, and starts again on node02." in free
    assert (wanderer.uid(), wanderer.is_running()) == (two_nodes, True)


@pytest.fixture(scope="module")
def drained(own: Cluster, wanderer: Machine, two_nodes: str, planned: tuple[str, str]) -> str:
    """What ``kubectl drain`` of the first node says, once all of it runs on the second."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
    said = own.kubectl("drain", "node01", *options, seconds=100)
    # The image was loaded before the second node was there.
    wanderer.wait_restarted(two_nodes, 90)
    wait_for("virtplane is ready", lambda: problem(own) == "", 30)
    return said


@pytest.mark.feature("NOD-02")
def test_a_node_is_added_and_no_machine_notices(own: Cluster, wanderer: Machine, two_nodes: str) -> None:
    assert problem(own) == ""
    assert (wanderer.uid(), wanderer.is_running()) == (two_nodes, True)
    assert (wanderer.instance() or {})["status"]["nodeName"] == "node01" == node_of_operator(own)


@pytest.mark.feature("NOD-02", "NOD-07", "INS-126")
def test_a_new_node_takes_over_what_runs_on_one_that_is_drained(
    own: Cluster, wanderer: Machine, drained: str
) -> None:
    assert "node/node01 drained" in drained
    assert (wanderer.instance() or {})["status"]["nodeName"] == "node02"
    assert node_of_operator(own) == "node02"
    with open_console(wanderer) as console:
        console.log_in()
        console.process.kill()
    with open_console(wanderer) as console:
        console.log_in()
    assert "Traceback" not in (own.state / "logs/apiserver.log").read_text()
    for component in ("virt-api", "virt-handler", "apiserver"):
        assert run(*_VIRTPLANE, "logs", "-n", "5", "--state", own.state, component).stdout.strip()


def problem(cluster: Cluster) -> str:
    """What `status` says while not everything is ready; empty otherwise."""
    done = attempt(*_VIRTPLANE, "status", "--state", cluster.state)
    return done.stdout if done.returncode else ""


@contextmanager
def switched_off(cluster: Cluster, node: str) -> Iterator[None]:
    """A node that is off for a while; guests may be there afterwards."""
    cluster.node("stop", node)
    try:
        yield
    finally:
        cluster.node("start", node)
        open_again(cluster, node)


def open_again(cluster: Cluster, node: str) -> None:
    """Let pods and guests on a node that was drained."""
    cluster.kubectl("uncordon", node)
    wait_for("guests may be there", partial(is_schedulable, cluster, node), 60)


@pytest.mark.feature("NOD-09")
@pytest.mark.usefixtures("drained")
def test_a_drained_node_is_switched_off_and_on_and_nobody_notices(own: Cluster, wanderer: Machine) -> None:
    before = wanderer.uid()
    with switched_off(own, "node01"):
        wait_for("virtplane is ready", lambda: problem(own) == "", 10)
        with wanderer.console() as console:
            assert console.run("hostname") == "wanderer"
    assert (wanderer.uid(), wanderer.is_running()) == (before, True)


def is_schedulable(cluster: Cluster, node: str) -> bool:
    """Whether guests may be on a node, as virt-handler says."""
    labels = cluster.request("GET", f"{CORE}/nodes/{node}")["metadata"]["labels"]
    return bool(labels.get("kubevirt.io/schedulable") == "true")


def set_workloads(cluster: Cluster, placement: Document | None) -> None:
    """Say on which nodes guests may be."""
    workloads = {"nodePlacement": placement} if placement else None
    cluster.request("PATCH", _INSTALLATION, {"spec": {"workloads": workloads}})


@pytest.fixture
def stays(own: Cluster) -> Iterator[Document]:
    """A machine for node01 alone, which is not to be moved."""
    wanted = manifest("stays", grace=20)
    spec = wanted["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {_HOSTNAME: "node01"}, "evictionStrategy": "None"}
    yield wanted
    set_workloads(own, None)
    clean_up([Machine(own, "stays")])


@pytest.mark.feature("NOD-06", "VML-67")
@pytest.mark.usefixtures("drained")
def test_a_guest_is_where_the_installation_is_and_powers_down_with_its_node(
    own: Cluster, wanderer: Machine, stays: Document
) -> None:
    open_again(own, "node01")
    set_workloads(own, {"nodeSelector": {_HOSTNAME: "node02"}})
    wait_for("node01 is no node of guests", lambda: not is_schedulable(own, "node01"), 60)
    machine = own.create(stays)
    wait_for("it is told", lambda: machine.status() == "ErrorUnschedulable", 20)
    set_workloads(own, None)
    machine.wait_running(120)

    first = machine.uid()
    with switched_off(own, "node01"):
        with pytest.raises(NotThere):
            machine.qemu()
        assert wanderer.is_running()
    machine.wait_restarted(first, 120)


def test_a_cluster_whose_control_plane_is_gone_is_not_called_ready(own: Cluster) -> None:
    own.kubectl("-n", "kubevirt", "scale", "deployment", "virt-operator", "--replicas=0")
    wait_for("it is noticed", lambda: problem(own) != "", 30)
    assert "cluster     ready\nvirtplane   not ready: the KubeVirt API does not answer" in problem(own)
