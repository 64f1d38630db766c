"""What was deleted and is still there says why, and the command that it names ends the wait."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS, claim, is_gone, with_claims
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, is_ready, manifest
from tests.e2e.commands import program, run
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(300),
    pytest.mark.feature("NEW-15"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


@pytest.fixture(scope="module")
def pair(guest_archive: Path) -> Iterator[Cluster]:
    """Two nodes, of which one is switched off at the end."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        cluster.up("--nodes", "2")
        cluster.load(guest_archive)
        yield cluster
    finally:
        cluster.reset()


def _advice(cluster: Cluster, what: str) -> tuple[str, str]:
    """The sentence, and what is to be done."""
    found = json.loads(cluster.virtctl("explain-status", what, "-o", "json"))
    assert found["status"] == "Terminating"
    return str(found["sentence"]), str(found["changes"][0]["advice"])


def _follow(cluster: Cluster, advice: str) -> None:
    """Type the command of an advice, as a user would: its quotes are the shell's."""
    begins = min(place for name in ("kubectl ", "virtctl ") if (place := advice.find(name)) >= 0)
    command = advice[begins:].replace("virtctl ", f"{program('virtctl')} ", 1)
    run("sh", "-c", command, env=cluster.environment)


def test_a_finalizer_of_somebody_else_is_taken_off_by_the_command_and_no_other(pair: Cluster) -> None:
    wanted = manifest("held", strategy="Halted")
    wanted["metadata"]["finalizers"] = ["example.com/first", "example.com/second"]
    machine = pair.create(wanted)
    machine.delete()
    for finalizer in ("example.com/first", "example.com/second"):
        assert finalizer in _advice(pair, "held")[0]
        _follow(pair, _advice(pair, "held")[1])
    machine.wait_gone()


def test_a_claim_names_the_guest_that_uses_it_and_goes_once_that_is_stopped(pair: Cluster) -> None:
    pair.request("POST", CLAIMS, claim("data", "8Mi", "Block"))
    machine = pair.create(with_claims("user", "data"))
    try:
        machine.wait_running(120)
        pair.request("DELETE", f"{CLAIMS}/data")
        sentence, advice = _advice(pair, "pvc/data")
        assert "waits: guest user uses it (pod virt-launcher-user-" in sentence
        assert advice == f"virtctl stop user -n {NAMESPACE}"
        _follow(pair, advice)
        wait_for("the claim is gone", lambda: is_gone(pair, f"{CLAIMS}/data"), 90)
    finally:
        clean_up([machine])


def test_a_guest_on_a_node_that_is_off_goes_when_its_administrator_says_so(pair: Cluster) -> None:
    with_controllers = pair.component_pod("virt-operator")["spec"]["nodeName"]
    [node] = {"node01", "node02"} - {with_controllers}
    wanted = manifest("cut-off", grace=1)
    wanted["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    machine = pair.create(wanted)
    machine.wait_running(120)
    pair.node("stop", node)
    wait_for("the node is missed", lambda: not is_ready(pair.request("GET", f"{CORE}/nodes/{node}")), 90)
    machine.delete()
    told = f"is on node {node}, which has not reported since"
    wait_for("it is told", lambda: told in _advice(pair, "cut-off")[0], 30)

    def is_in_events() -> bool:
        said = [each for each in machine.events() if each["reason"] == "DeletionWaiting"]
        return any(
            told in each["message"] for each in said if each["involvedObject"]["kind"].endswith("Instance")
        )

    wait_for("the event says it", is_in_events, 90)
    described = pair.kubectl("describe", "vmi", "cut-off")
    assert "DeletionWaiting" in described and told in described
    assert machine.instance() is not None
    _follow(pair, _advice(pair, "vmi/cut-off")[1])
    machine.wait_gone()
