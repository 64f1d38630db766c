"""One API server with its controllers for all clients; each test has a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.clients.kubectl import Kubectl, gadgets
from tests.clients.live import HollowNode, LiveCluster, running_cluster

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """The processes; at the end, neither may have failed at anything unseen."""
    with running_cluster(tmp_path_factory.mktemp("live")) as made:
        with HollowNode(made.config):
            yield made
        assert made.server_errors() == []
        assert made.logged_failures() == []


@pytest.fixture
def namespace(cluster: LiveCluster) -> Iterator[str]:
    """A namespace of its own, which is on its way out afterwards."""
    name = f"client-{next(_NUMBERS)}"
    path = "/api/v1/namespaces"
    status, answer = cluster.request("POST", path, {"metadata": {"name": name}})
    assert status == 201, answer
    yield name
    status, answer = cluster.request("DELETE", f"{path}/{name}")
    assert status in (200, 404), answer


@pytest.fixture
def kubectl(cluster: LiveCluster, namespace: str) -> Kubectl:
    """kubectl in a namespace of its own."""
    return Kubectl(cluster, namespace)


@pytest.fixture
def gadgets_served(kubectl: Kubectl) -> Iterator[None]:
    """The definition of gadgets, established; gone with all gadgets afterwards."""
    kubectl("apply", "-f", "-", document=gadgets())
    kubectl("wait", "--for=condition=Established", "crd/gadgets.kubectl.example", "--timeout=20s")
    yield
    kubectl("delete", "crd", "gadgets.kubectl.example", "--timeout=30s")
    assert kubectl.attempt("get", "gadgets").returncode == 1
