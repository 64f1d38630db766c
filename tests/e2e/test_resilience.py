"""Components that are killed come back, and guests do not notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, Cluster, Machine, is_ready, is_ready_again, manifest, restarts
from tests.e2e.commands import program, run
from tests.e2e.failures import ApiError, Document
from tests.e2e.processes import kill
from tests.e2e.support import wait_for, wait_for_none
from tests.support.clusters import clean_up
from tests.support.starvation import starvation_measured

from virtplane.api.labels import CONDITION_UNPAUSED
from virtplane.compute.handler.node.kvm import PROCESSOR_SECONDS

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

_RECOVERY_SECONDS = 10.0
_PROBE_SECONDS = PROCESSOR_SECONDS if Path("/dev/kvm").exists() else 0.0
"""A new virt-handler serves nobody before it has tried KVM, which computes for this long where KVM hangs."""
_COMPONENTS = (
    "apiserver",
    "controllers",
    "node-node01",
    "containerd-node01",
    "virt-handler",
    "virt-operator",  # And with it virt-api and virt-controller: one process in the compact layout.
)
_IN_PODS = ("virt-handler", "virt-operator")
_COMPONENTS_NAMESPACE = f"{CORE}/namespaces/kubevirt"

Identity = tuple[str, int, str]


@pytest.fixture(scope="module")
def guests(cluster: Cluster) -> Iterator[dict[Machine, Identity]]:
    """Two guests that have booted, and by what each is recognised."""
    machines = [cluster.create(manifest(name, grace=1)) for name in ("steady-one", "steady-two")]
    try:
        for machine in machines:
            machine.wait_running()
        yield {machine: identity(machine) for machine in machines}
    finally:
        clean_up(machines)


def test_the_status_of_a_cluster_names_the_processes_that_run(cluster: Cluster) -> None:
    listing = run(program("kindling"), "status", "--state", cluster.state).stdout
    shown = {words[0]: words[1] for line in listing.splitlines() if len(words := line.split()) > 1}
    names = [name for name in _COMPONENTS if name not in _IN_PODS]
    assert {name: shown.get(name) for name in names} == {name: str(cluster.component(name)) for name in names}


@pytest.mark.parametrize("victims", [(name,) for name in _COMPONENTS] + [_COMPONENTS], ids="+".join)
def test_guests_run_on_and_everything_is_true_again_soon(
    cluster: Cluster,
    guests: dict[Machine, Identity],
    victims: tuple[str, ...],
    record_property: Callable[[str, object], None],
) -> None:
    forget_crashes(cluster)
    pids = {name: cluster.component(name) for name in victims}
    pods = {name: cluster.component_pod(name) for name in victims if name in _IN_PODS}
    with starvation_measured() as starvation:
        begun = time.monotonic()
        for pid in pids.values():
            kill(pid)
        for name, pid in pids.items():
            wait_for(f"another {name} runs", partial(has_successor, cluster, name, pid), 30)
        for name, pod in pods.items():
            wait_for(f"{name} is ready again", partial(is_ready_again, cluster, name, pod), 30)
        wait_for_none("every status is true", lambda: wrong_statuses(cluster, list(guests)), 30)
        seconds = time.monotonic() - begun
    record_property("seconds", round(seconds, 1))
    record_property("starvation", round(starvation.factor, 1))
    # Consoles answer, and it is the same boot of the same guest.
    assert {machine: identity(machine) for machine in guests} == guests
    probe = _PROBE_SECONDS if "virt-handler" in victims else 0.0
    assert seconds < (_RECOVERY_SECONDS + probe) * starvation.factor


def forget_crashes(cluster: Cluster) -> None:
    """Replace pods that crashed before: doing so again has containers wait 10 s and longer.

    Pods of users may be anywhere in their lives: those of imports come, serve and go, and wait like others
    when they crash.
    """
    path = f"{_COMPONENTS_NAMESPACE}/pods"
    for pod in cluster.items(path):
        if restarts(pod):
            try:
                cluster.request("DELETE", f"{path}/{pod['metadata']['name']}")
            except ApiError as error:
                if error.code != 404:
                    raise
            wait_for("the pod is replaced", partial(is_replaced, cluster, pod), 30)
    wait_for_none("the components are ready", lambda: wrong_statuses(cluster, [], _COMPONENTS_NAMESPACE), 30)


def is_replaced(cluster: Cluster, pod: Document) -> bool:
    """Whether a pod has gone and others of its namespace are there."""
    present = cluster.items(f"{_COMPONENTS_NAMESPACE}/pods")
    uids = {item["metadata"]["uid"] for item in present}
    ready = [item for item in present if is_ready(item)]
    return pod["metadata"]["uid"] not in uids and len(ready) == len(present) >= 2


def identity(machine: Machine) -> Identity:
    """What changes when a guest does not run on: its instance, its process, its boot."""
    with machine.console() as console:
        boot = console.run("cat /proc/sys/kernel/random/boot_id")
    return machine.uid(), machine.qemu(), boot


def has_successor(cluster: Cluster, name: str, pid: int) -> bool:
    """Whether a component runs again as another process."""
    return cluster.component(name) != pid


def _is_paused(pod: Document) -> bool:
    """Whether a launcher is not ready for its guest is paused, as it may be."""
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
    return conditions.get(CONDITION_UNPAUSED) == "False"


def wrong_statuses(cluster: Cluster, guests: list[Machine], pods_of: str = CORE) -> list[str]:
    """What the API says that is not so, or not yet so again; of pods, of those below the path `pods_of`."""
    wrong = [machine.name for machine in guests if not machine.is_running()]
    for pod in cluster.items(f"{pods_of}/pods"):
        if pod["status"].get("phase") == "Running" and not is_ready(pod) and not _is_paused(pod):
            wrong.append(pod["metadata"]["name"])
    for node in cluster.items(f"{CORE}/nodes"):
        conditions = {item["type"]: item["status"] for item in node["status"]["conditions"]}
        if conditions["Ready"] != "True":
            wrong.append(node["metadata"]["name"])
    (kubevirt,) = cluster.items("/apis/kubevirt.io/v1/kubevirts")
    conditions = {item["type"]: item["status"] for item in kubevirt["status"]["conditions"]}
    if conditions["Available"] != "True":
        wrong.append("kubevirt")
    try:
        # Whether their server answers is asked anew after a restart, at once and then every two seconds.
        cluster.request("GET", "/apis/subresources.kubevirt.io/v1")
    except ApiError as error:
        if error.code != 503:
            raise
        wrong.append("subresources.kubevirt.io")
    return wrong
