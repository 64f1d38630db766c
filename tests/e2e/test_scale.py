"""Many virtual machines at once, and as many as are needed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, manifest
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest]

_COUNT = 20
_SECONDS = 240


def _idle(name: str) -> Document:
    """A machine with all that the demo's has, whose guest stays in its BIOS: nothing is on its boot disk.

    A booting guest keeps a processor busy for ten seconds, and tells nothing of the cluster.
    """
    wanted = manifest(name, grace=0)
    spec = wanted["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "blank", "disk": {"bus": "virtio"}, "bootOrder": 1})
    spec["volumes"].append({"name": "blank", "emptyDisk": {"capacity": "1Mi"}})
    return wanted


@pytest.mark.timeout(400)
def test_twenty_machines_created_at_once_all_run_none_lost_or_doubled(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    names = [f"many-{index:02d}" for index in range(_COUNT)]
    begun = time.monotonic()
    with ThreadPoolExecutor(_COUNT) as pool:
        machines = list(pool.map(lambda name: cluster.create(_idle(name)), names))
    try:

        def all_run() -> bool:
            found = cluster.items(f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines")
            states = {vm["metadata"]["name"]: vm.get("status", {}).get("printableStatus") for vm in found}
            return all(states[name] == "Running" for name in names)

        wait_for("all machines run", all_run, _SECONDS)
        record_property("seconds", round(time.monotonic() - begun, 1))
        guests = Counter(
            word.split(",")[0]
            for process in cluster.processes()
            for word in process.command.split()
            if word.startswith("guest=default_many-")
        )
        assert guests == Counter(f"guest=default_{name}" for name in names)
        for machine in machines:
            machine.wait_running()  # its condition Ready follows a moment after the phase
            assert len(machine.pods()) == 1
        addresses = {wait_for(f"{each.name} has an address", each.address, 20) for each in machines}
        assert len(addresses) == _COUNT
    finally:
        clean_up(machines)


@pytest.mark.parametrize("name", ["virt-handler", "virt-operator"])
def test_what_runs_guests_has_the_shares_of_a_processor(cluster: Cluster, name: str) -> None:
    uid = cluster.component_pod(name)["metadata"]["uid"]
    values = {"cpu.shares": "1024", "cpu.weight": "39"}
    found = {
        path.name: path.read_text().strip()
        for base in Path("/sys/fs/cgroup").rglob(f"kindling-{cluster.id}")
        for file in values
        for path in base.glob(f"*/kubepods/burstable/pod{uid}/{file}")
    }
    assert found
    assert found.items() <= values.items()


_SETS = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstancereplicasets"
_AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


@pytest.fixture
def busy_set(cluster: Cluster) -> Iterator[str]:
    """A replica set of one instance, and an autoscaler that finds that it uses too much memory."""
    name, template = "busy", _idle("busy")["spec"]["template"]
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    kinds = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet"}
    cluster.request("POST", _SETS, {**kinds, "metadata": {"name": name}, "spec": spec})
    target = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "8Mi"}}
    wanted = {"minReplicas": 1, "maxReplicas": 2, "metrics": [{"type": "Resource", "resource": target}]}
    wanted["scaleTargetRef"] = {**kinds, "name": name}
    autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": wanted}
    cluster.request("POST", _AUTOSCALERS, {**autoscaler, "metadata": {"name": name}})
    yield name
    cluster.request("DELETE", f"{_AUTOSCALERS}/{name}")
    cluster.request("DELETE", f"{_SETS}/{name}")


@pytest.mark.timeout(240)
def test_an_autoscaler_adds_instances_to_a_set_that_uses_too_much(cluster: Cluster, busy_set: str) -> None:
    def both_run() -> bool:
        status = cluster.request("GET", f"{_SETS}/{busy_set}").get("status", {})
        return bool(status.get("readyReplicas") == 2)

    wait_for("two instances are ready", both_run, 90)
    status = cluster.request("GET", f"{_AUTOSCALERS}/{busy_set}")["status"]
    said = {each["type"]: each["reason"] for each in status["conditions"]}
    assert said["ScalingActive"] == "ValidMetricFound"
    (metric,) = status["currentMetrics"]
    assert metric["resource"]["current"]["averageValue"]
