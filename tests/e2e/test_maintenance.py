"""A node that is added to a running cluster, another that is drained, and what `status` says meanwhile."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, Cluster, manifest
from tests.e2e.commands import ROOT, attempt, run
from tests.e2e.support import open_console, wait_for

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_VIRTPLANE = (sys.executable, "-m", "virtplane.cli.main")


@pytest.fixture(scope="module")
def own(guest_archive: Path) -> Iterator[Cluster]:
    """A cluster of these tests alone, with the demo's guest; the last leaves it without its operator."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        cluster.up()
        cluster.load(guest_archive)
        yield cluster
    finally:
        cluster.reset()


def node_of_operator(cluster: Cluster) -> str:
    pods = cluster.items(f"{CORE}/namespaces/kubevirt/pods", "kubevirt.io%3Dvirt-operator")
    return next((pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"), "")


@pytest.mark.feature("NOD-02")
def test_a_node_is_added_and_takes_over_what_runs_on_one_that_is_drained(own: Cluster) -> None:
    machine = own.create(manifest("wanderer", grace=1))
    machine.wait_running()
    first = machine.uid()
    assert node_of_operator(own) == "node01"

    run(*_VIRTPLANE, "up", "--nodes", "2", "--state", own.state, seconds=120, cwd=ROOT)
    assert run(*_VIRTPLANE, "status", "--state", own.state).stdout.endswith("virtplane   ready\n")
    assert machine.uid() == first and machine.is_running()

    drained = own.kubectl(
        "drain",
        "node01",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=90s",
        seconds=100,
    )
    assert "node/node01 drained" in drained
    # The image was loaded before the node was there.
    machine.wait_restarted(first, 90)
    assert (machine.instance() or {})["status"]["nodeName"] == "node02"
    assert node_of_operator(own) == "node02"
    wait_for("virtplane is ready", lambda: ready(own), 30)

    with open_console(machine) as console:
        console.log_in()
        console.process.kill()
    with open_console(machine) as console:
        console.log_in()
    assert "Traceback" not in (own.state / "logs/apiserver.log").read_text()
    for component in ("virt-api", "virt-handler", "apiserver"):
        assert run(*_VIRTPLANE, "logs", "-n", "5", "--state", own.state, component).stdout.strip()


def ready(cluster: Cluster) -> bool:
    """Whether `status` says so."""
    return attempt(*_VIRTPLANE, "status", "--state", cluster.state).returncode == 0


def test_a_cluster_whose_control_plane_is_gone_is_not_called_ready(own: Cluster) -> None:
    own.kubectl("-n", "kubevirt", "scale", "deployment", "virt-operator", "--replicas=0")
    wait_for("it is noticed", lambda: not ready(own), 30)
    done = attempt(*_VIRTPLANE, "status", "--state", own.state)
    assert done.returncode == 1
    assert "cluster     ready\nvirtplane   not ready: the KubeVirt API does not answer" in done.stdout
