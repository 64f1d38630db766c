"""Nodes that the launcher pod of an instance may go to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import compute, instance, rendered, settings

from kindling.scheduler.decision import Placement, decide
from kindling.scheduler.snapshot import take
from kubecore.json import JsonObject
from virtplane.compute.controller.migration.target import host_model_selector


@pytest.mark.feature("VML-63")
def test_the_pod_goes_to_nodes_that_the_selector_names() -> None:
    assert rendered(instance(nodeSelector={"disk": "ssd"}))["spec"]["nodeSelector"]["disk"] == "ssd"


@pytest.mark.feature("VML-11")
def test_the_pod_goes_to_nodes_with_a_living_agent_only() -> None:
    assert rendered(instance())["spec"]["nodeSelector"]["kubevirt.io/schedulable"] == "true"


_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}


@pytest.mark.feature("VML-64")
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_affinity_to_pods_is_the_pods(kind: str) -> None:
    wanted = {
        "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _TERM}],
    }
    assert rendered(instance(affinity={kind: wanted}))["spec"]["affinity"][kind] == wanted


@pytest.mark.feature("VML-65")
def test_affinity_to_nodes_is_narrowed_to_nodes_that_can_run_the_guest() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    terms = [{"matchExpressions": [expression]}]
    wanted = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    found = rendered(instance(affinity={"nodeAffinity": wanted}))["spec"]["affinity"]["nodeAffinity"]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    (term,) = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    obsolete = {"key": "node-labeller.kubevirt.io/obsolete-host-model", "operator": "DoesNotExist"}
    assert term["matchExpressions"] == [expression, obsolete]


@pytest.mark.feature("VML-66")
def test_tolerations_are_the_pods() -> None:
    wanted = [{"key": "key", "operator": "Equal", "value": "virtualization", "effect": "NoSchedule"}]
    assert rendered(instance(tolerations=wanted))["spec"]["tolerations"] == wanted


@pytest.mark.feature("VML-68")
def test_another_scheduler_is_asked_for() -> None:
    assert rendered(instance(schedulerName="my-scheduler"))["spec"]["schedulerName"] == "my-scheduler"
    assert "schedulerName" not in rendered(instance())["spec"]


def _cpu(**cpu: Any) -> JsonObject:
    spec: JsonObject = rendered(instance(domain={"cpu": cpu}))["spec"]
    return spec


def _node_expressions(spec: JsonObject) -> list[JsonObject]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [item for term in required["nodeSelectorTerms"] for item in term["matchExpressions"]]


def test_a_cpu_model_is_looked_for_among_the_nodes() -> None:
    spec = _cpu(model="Conroe")
    assert spec["nodeSelector"]["cpu-model.node.kubevirt.io/Conroe"] == "true"
    assert "affinity" not in spec


def test_the_hosts_own_model_goes_anywhere_but_to_obsolete_hosts() -> None:
    spec = _cpu(model="host-model")
    assert not any(key.startswith("cpu-model") for key in spec["nodeSelector"])
    keys = [(item["key"], item["operator"]) for item in _node_expressions(spec)]
    assert keys == [("node-labeller.kubevirt.io/obsolete-host-model", "DoesNotExist")]


@pytest.mark.parametrize(
    ("policy", "is_required"),
    [
        pytest.param("require", True),
        pytest.param("", True),
        pytest.param(None, True),
        pytest.param("force", False, marks=pytest.mark.feature("VML-58")),
        pytest.param("optional", False, marks=pytest.mark.feature("VML-60")),
        ("disable", False),
        ("forbid", False),
    ],
)
def test_only_a_required_cpu_feature_must_be_there(policy: str | None, is_required: bool) -> None:
    feature = {"name": "apic"} if policy is None else {"name": "apic", "policy": policy}
    spec = _cpu(model="Conroe", features=[feature])
    assert ("cpu-feature.node.kubevirt.io/apic" in spec["nodeSelector"]) is is_required


def test_a_forbidden_cpu_feature_must_not_be_there() -> None:
    spec = _cpu(model="Conroe", features=[{"name": "apic", "policy": "forbid"}])
    wanted = {"key": "cpu-feature.node.kubevirt.io/apic", "operator": "DoesNotExist"}
    assert wanted in _node_expressions(spec)


def test_a_guest_with_its_hosts_model_moves_to_hosts_that_support_it() -> None:
    labels = {
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        "host-model-required-features.node.kubevirt.io/aes": "true",
        "other": "x",
    }
    node = {"metadata": {"name": "n", "labels": labels}}
    assert host_model_selector("host-model", node) == {
        "cpu-model-migration.node.kubevirt.io/EPYC": "true",
        "cpu-feature.node.kubevirt.io/aes": "true",
    }
    assert host_model_selector("Conroe", node) == {}


def test_guests_with_reservations_on_one_claim_are_never_on_one_node() -> None:
    disk = {"name": "lun", "lun": {"bus": "scsi", "reservation": True}}
    volumes = [{"name": "lun", "persistentVolumeClaim": {"claimName": "shared"}}]
    claims = {"shared": {"metadata": {"name": "shared", "uid": "c-1"}, "spec": {"volumeMode": "Block"}}}
    pod = rendered(instance(domain={"devices": {"disks": [disk]}}, volumes=volumes), claims=claims)
    assert pod["metadata"]["labels"]["pr.kubevirt.io/c-1"] == "shared"
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchExpressions"] == [{"key": "pr.kubevirt.io/c-1", "operator": "Exists"}]
    assert compute(pod)["resources"]["limits"]["devices.kubevirt.io/pr-helper"] == "1"


def test_guests_without_reservations_may_share_a_claim_on_one_node() -> None:
    disk = {"name": "lun", "lun": {"bus": "scsi"}}
    volumes = [{"name": "lun", "persistentVolumeClaim": {"claimName": "shared"}}]
    claims = {"shared": {"metadata": {"name": "shared", "uid": "c-1"}, "spec": {"volumeMode": "Block"}}}
    pod = rendered(instance(domain={"devices": {"disks": [disk]}}, volumes=volumes), claims=claims)
    assert "podAntiAffinity" not in pod["spec"]["affinity"]
    assert "devices.kubevirt.io/pr-helper" not in compute(pod)["resources"]["limits"]


def _fitting(overcommit: int) -> int:
    """How many guests of 1 GiB a node of 8 GiB takes."""
    config = settings(developerConfiguration={"memoryOvercommit": overcommit})
    devices = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}
    allocatable = {"cpu": "64", "memory": "8Gi", "ephemeral-storage": "99Gi", "pods": "110", **devices}
    labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": allocatable}}
    domain = {"memory": {"guest": "1Gi"}}
    placed: list[JsonObject] = []
    while True:
        number = len(placed)
        pod = rendered(instance(metadata={"name": f"vm{number}", "uid": f"u{number}"}, domain=domain), config)
        pod["metadata"]["uid"] = f"p{number}"
        if not isinstance(decide(pod, take([node], placed)), Placement):
            return number
        placed.append({**pod, "spec": {**pod["spec"], "nodeName": "n"}})


@pytest.mark.feature("INS-140")
def test_a_node_takes_more_guests_where_their_memory_is_overcommitted() -> None:
    usual, doubled, tripled = map(_fitting, (100, 200, 300))
    assert (usual, doubled, tripled) == (6, 9, 12)
