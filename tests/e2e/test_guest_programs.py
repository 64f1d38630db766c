"""Programs that others run in the launcher's container: kubelet for probes, backup tools around a copy."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from functools import partial

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import ApiError, Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(300)]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

_MARK = "/run/healthy"
_SECRETS = f"{CORE}/namespaces/{NAMESPACE}/secrets"
_MACHINES = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines"
_OF_IMAGE = "ssh-ed25519 AAAA of-the-image"
_KEYS = "cat /root/.ssh/authorized_keys"


def _keys(*texts: str) -> Document:
    encoded = {f"key{number}": base64.b64encode(text.encode()).decode() for number, text in enumerate(texts)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "granted"}, "data": encoded}


@pytest.fixture(scope="module")
def granted(cluster: Cluster) -> Iterator[str]:
    """A secret with a key that its guests accept."""
    cluster.request("POST", _SECRETS, _keys("ssh-ed25519 AAAA first"))
    yield "granted"
    cluster.request("DELETE", f"{_SECRETS}/granted")


@pytest.fixture(scope="module")
def guest(cluster: Cluster, granted: str) -> Iterator[Machine]:
    """A guest with keys of a secret; it is ready while a file exists, alive while its agent answers."""
    wanted = manifest("probed", grace=1)
    spec = wanted["spec"]["template"]["spec"]
    spec["volumes"][1]["cloudInitNoCloud"]["userData"] += f"ssh_authorized_keys:\n  - {_OF_IMAGE}\n"
    by_agent = {"qemuGuestAgent": {"users": ["root"]}}
    keys = {"source": {"secret": {"secretName": granted}}, "propagationMethod": by_agent}
    spec["accessCredentials"] = [{"sshPublicKey": keys}]
    spec["evictionStrategy"] = "LiveMigrate"
    # Such a guest does not start unless its domain has the thread.
    spec["domain"]["devices"]["disks"][0]["dedicatedIOThread"] = True
    often = {"periodSeconds": 2, "timeoutSeconds": 5}
    spec["readinessProbe"] = {"exec": {"command": ["test", "-e", _MARK]}, **often}
    spec["livenessProbe"] = {"guestAgentPing": {}, "initialDelaySeconds": 40, **often}
    made = cluster.create(wanted)
    try:
        wait_for("the guest runs", lambda: made.phase() == "Running", 60)
        wait_for("the agent is connected", lambda: made.condition("AgentConnected") == "True", 60)
        yield made
    finally:
        clean_up([made])


def _exec(guest: Machine, *command: str) -> str:
    pod = guest.pod()["metadata"]["name"]
    return guest.cluster.kubectl("exec", "-n", NAMESPACE, pod, "-c", "compute", "--", *command)


def test_a_command_in_the_guest_decides_whether_it_is_ready(guest: Machine) -> None:
    assert guest.condition("Ready") == "False"
    with guest.console() as console:
        console.run(f"touch {_MARK}")
        wait_for("the guest is ready", lambda: guest.condition("Ready") == "True", 40)
        console.run(f"rm {_MARK}")
        wait_for("the guest is not ready", lambda: guest.condition("Ready") == "False", 40)


@needs_kubectl
@pytest.mark.feature("MON-43")
def test_a_guest_whose_agent_answers_stays_alive(guest: Machine) -> None:
    _exec(
        guest,
        "virt-probe",
        "--domainName",
        f"{NAMESPACE}_probed",
        "--guestAgentPing",
        "--timeoutSeconds",
        "9",
    )
    (compute,) = (each for each in guest.pod()["status"]["containerStatuses"] if each["name"] == "compute")
    assert compute["restartCount"] == 0
    assert guest.phase() == "Running"


@needs_kubectl
@pytest.mark.feature("SNP-06")
def test_backup_tools_freeze_and_thaw_the_guest_by_the_commands_of_its_pod(guest: Machine) -> None:
    annotations = guest.pod()["metadata"]["annotations"]
    for moment in ("pre", "post"):
        _exec(guest, *json.loads(annotations[f"{moment}.hook.backup.velero.io/command"]))


@pytest.mark.feature("NOD-03", "NOD-05")
def test_whoever_drains_the_node_is_told_that_the_guest_cannot_move(guest: Machine) -> None:
    name = guest.pod()["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    path = f"{CORE}/namespaces/{NAMESPACE}/pods/{name}/eviction"
    with pytest.raises(ApiError, match="VMI probed is configured with an eviction strategy but") as refused:
        guest.cluster.request("POST", path, eviction)
    assert refused.value.code == 429
    assert (guest.instance() or {})["status"].get("evacuationNodeName") is None


def _accepts(console: Console, key: str) -> bool:
    return key in console.run(_KEYS)


@pytest.mark.feature("VMC-61", "VMC-63")
def test_keys_of_a_secret_come_and_go_while_the_guest_runs_until_it_is_to_have_those_of_its_image_alone(
    cluster: Cluster, guest: Machine, granted: str
) -> None:
    with guest.console() as console:
        wait_for("it has the key", partial(_accepts, console, "AAAA first"), 60)
        cluster.request("PUT", f"{_SECRETS}/{granted}", _keys("ssh-ed25519 AAAA second"))
        wait_for("it has the other", partial(_accepts, console, "AAAA second"), 150)
        assert not _accepts(console, "AAAA first")
    first = guest.uid()
    without = {"template": {"spec": {"accessCredentials": None, "readinessProbe": None}}}
    cluster.request("PATCH", f"{_MACHINES}/probed", {"spec": without})
    cluster.virtctl("restart", "probed", "--force", "--grace-period=0")
    guest.wait_restarted(first)
    wait_for("the agent is connected", lambda: guest.condition("AgentConnected") == "True", 60)
    with guest.console() as console:
        assert console.run(_KEYS) == _OF_IMAGE
