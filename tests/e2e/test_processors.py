"""Guests get the processor that they ask for, on a node that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_MODEL, _FEATURE = "cpu-model.node.kubevirt.io/", "cpu-feature.node.kubevirt.io/"
_NO_NODE = "didn't match Pod's node affinity/selector"
_SHOWN = {"Nehalem": "Nehalem Class Core i7", "Westmere": "Westmere E56xx"}
"""What guests read of models."""


def labels(cluster: Cluster, prefix: str) -> list[str]:
    """What follows `prefix` in labels of the first node."""
    found = cluster.items(f"{CORE}/nodes")[0]["metadata"]["labels"]
    return sorted(name.removeprefix(prefix) for name in found if name.startswith(prefix))


@pytest.fixture
def default_model(cluster: Cluster) -> Iterator[Callable[[str | None], None]]:
    """Sets the configuration's model for machines that name none; there is none before and afterwards."""

    def configure(model: str | None) -> None:
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": {"cpuModel": model}}})

    yield configure
    configure(None)


@pytest.fixture
def obsolete(cluster: Cluster) -> Iterator[Callable[..., None]]:
    """Sets the configuration's obsolete models; the built-in list is back afterwards."""

    def configure(*models: str) -> None:
        listed = dict.fromkeys(models, True) or None
        change = {"spec": {"configuration": {"obsoleteCPUModels": listed}}}
        cluster.request("PATCH", _INSTALLATION, change)

    yield configure
    configure()


@pytest.fixture
def create(cluster: Cluster) -> Iterator[Callable[..., Machine]]:
    """Creates a machine with a processor of its own."""
    made: list[Machine] = []

    def make(name: str, cpu: dict[str, object]) -> Machine:
        wanted = manifest(name, grace=1)
        wanted["spec"]["template"]["spec"]["domain"]["cpu"] = cpu
        made.append(cluster.create(wanted))
        return made[-1]

    yield make
    clean_up(made)


def _flags(machine: Machine) -> list[str]:
    """What the guest's kernel says that its processor can do."""
    with machine.console() as console:
        return console.run("grep -m 1 ^flags /proc/cpuinfo").split()


@pytest.mark.guest
@pytest.mark.feature("NOD-20", "VML-57", "VML-59", "VML-60", "VML-61")
def test_a_guest_gets_the_model_and_features_that_its_node_is_labelled_with(
    cluster: Cluster, create: Callable[..., Machine]
) -> None:
    offered = set(labels(cluster, _FEATURE))
    assert "Westmere" in labels(cluster, _MODEL)
    assert {"adx", "rdrand", "abm", "popcnt"} <= offered and "avx512f" not in offered
    # Of these, the model has popcnt only.
    policies = {"adx": "require", "abm": "optional", "avx512f": "optional", "popcnt": "disable"}
    features = [{"name": name, "policy": policy} for name, policy in policies.items()]
    machine = create("by-model", {"model": "Westmere", "features": [*features, {"name": "rdrand"}]})
    machine.wait_running()
    selected = machine.pod()["spec"]["nodeSelector"]
    assert selected[_MODEL + "Westmere"] == "true"
    assert [name for name in (*policies, "rdrand") if _FEATURE + name in selected] == ["adx", "rdrand"]
    flags = _flags(machine)
    assert {"adx", "rdrand", "abm", "aes"} <= set(flags)
    assert not {"popcnt", "avx512f"} & set(flags)


@pytest.mark.guest
@pytest.mark.feature("VML-58", "VML-62")
def test_a_forbidden_feature_keeps_a_guest_from_nodes_that_have_it_and_a_forced_one_from_none(
    cluster: Cluster, create: Callable[..., Machine]
) -> None:
    here, elsewhere = "aes", "avx512f"
    assert here in labels(cluster, _FEATURE) and elsewhere not in labels(cluster, _FEATURE)
    refused = create("forbids-here", {"features": [{"name": here, "policy": "forbid"}]})
    forced = {"name": "avx512cd", "policy": "force"}
    runs = create("forbids-elsewhere", {"features": [{"name": elsewhere, "policy": "forbid"}, forced]})
    runs.wait_running()
    assert elsewhere not in _flags(runs)
    wait_for("it is told", lambda: refused.status() == "ErrorUnschedulable", 20)
    pod = refused.pod()
    assert not pod["spec"].get("nodeName")
    (verdict,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    assert _NO_NODE in verdict["message"]


def _is_default(cluster: Cluster, model: str) -> bool:
    """Whether an instance that names no model would have this one; it is not made."""
    path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstances?dryRun=All"
    template = manifest("asked")["spec"]["template"]
    wanted = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **template}
    wanted["metadata"] = {"name": "asked", "namespace": NAMESPACE}
    return bool(cluster.request("POST", path, wanted)["spec"]["domain"]["cpu"]["model"] == model)


@pytest.mark.guest
@pytest.mark.feature("VML-53", "VML-54")
def test_a_guest_has_its_machines_model_or_the_installations_or_the_hosts(
    cluster: Cluster, create: Callable[..., Machine], default_model: Callable[[str | None], None]
) -> None:
    wait_for("guests have the host's model", partial(_is_default, cluster, "host-model"), 10)
    default_model("Nehalem")
    wait_for("guests have the installation's", partial(_is_default, cluster, "Nehalem"), 20)
    expected = {"of-installation": "Nehalem", "of-its-own": "Westmere"}
    machines = [create("of-installation", {}), create("of-its-own", {"model": "Westmere"})]
    for machine in machines:
        machine.wait_running(90)
        model = expected[machine.name]
        assert machine.pod()["spec"]["nodeSelector"][_MODEL + model] == "true"
        with machine.console() as console:
            assert _SHOWN[model] in console.run("grep -m 1 '^model name' /proc/cpuinfo")
    default_model("nehalem")
    wait_for("letters count", partial(_is_default, cluster, "nehalem"), 20)
    mistaken = create("of-no-node", {})
    wait_for("it is told", lambda: mistaken.status() == "ErrorUnschedulable", 20)
    default_model(None)
    wait_for("the host's is theirs again", partial(_is_default, cluster, "host-model"), 20)
    assert all(machine.is_running() for machine in machines)


@pytest.mark.feature("NOD-20")
def test_a_guest_that_asks_for_what_no_node_has_waits_and_is_told(create: Callable[..., Machine]) -> None:
    machine = create("by-no-model", {"model": "Opteron_G1"})
    wait_for("it is told", lambda: machine.status() == "ErrorUnschedulable", 20)


@pytest.mark.feature("NOD-11")
def test_a_model_that_becomes_obsolete_is_not_offered_any_more(
    cluster: Cluster, obsolete: Callable[..., None]
) -> None:
    model = labels(cluster, _MODEL)[-1]
    obsolete(model)
    wait_for("it is not offered", lambda: model not in labels(cluster, _MODEL), 20)
    # The configured list replaces the built-in one.
    assert "qemu64" in labels(cluster, _MODEL)
    obsolete()
    wait_for("it is offered again", lambda: model in labels(cluster, _MODEL), 20)
    assert "qemu64" not in labels(cluster, _MODEL)
