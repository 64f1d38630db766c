"""Guests that ask for a processor find a node that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, Cluster, Machine, manifest
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_MODEL, _FEATURE = "cpu-model.node.kubevirt.io/", "cpu-feature.node.kubevirt.io/"


def labels(cluster: Cluster, prefix: str) -> list[str]:
    """What follows `prefix` in labels of the first node."""
    found = cluster.items(f"{CORE}/nodes")[0]["metadata"]["labels"]
    return sorted(name.removeprefix(prefix) for name in found if name.startswith(prefix))


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


@pytest.mark.guest
@pytest.mark.feature("NOD-20")
def test_a_guest_gets_the_model_and_feature_that_its_node_is_labelled_with(
    cluster: Cluster, create: Callable[..., Machine]
) -> None:
    model = labels(cluster, _MODEL)[-1]
    assert "aes" in labels(cluster, _FEATURE)
    machine = create("by-model", {"model": model, "features": [{"name": "aes", "policy": "require"}]})
    machine.wait_running()
    assert machine.pod()["spec"]["nodeSelector"][_MODEL + model] == "true"
    with machine.console() as console:
        assert " aes " in console.run("grep -m 1 ^flags /proc/cpuinfo") + " "


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
