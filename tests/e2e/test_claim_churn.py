"""Pods with claims come and go on two nodes, and data volumes are filled, while everything is killed.

No data is lost, nobody gets a volume that is half written, nothing is left.

``VIRTPLANE_CLAIM_KILLS`` and ``VIRTPLANE_IMPORT_KILLS`` say how many kills (default: a few);
``VIRTPLANE_SEED`` repeats the choices of a run. With ``VIRTPLANE_TEST_LAYOUT=distributed`` each component
has a process of its own, to be killed alone.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e import claim_users
from tests.e2e.claim_churn import Users
from tests.e2e.claim_traces import CLAIMS, in_bytes, left_of_claims, left_of_pods, mismatches
from tests.e2e.claim_users import LABEL, NAMESPACE, Claim, Ledger
from tests.e2e.clusters import CORE, Cluster, is_ready, restarts
from tests.e2e.commands import ROOT, run
from tests.e2e.failures import ApiError, Document, NotThere
from tests.e2e.import_churn import Importers, copying_class, left_of_imports, served_images
from tests.e2e.processes import kill
from tests.e2e.support import wait_for, wait_for_none
from tests.e2e.test_resilience import forget_crashes, wrong_statuses

from virtplane.cli.cluster import HOST_IMAGE

pytestmark = [pytest.mark.host]

_KILLS = int(os.environ.get("VIRTPLANE_CLAIM_KILLS", "6"))
_IMPORT_KILLS = int(os.environ.get("VIRTPLANE_IMPORT_KILLS", "5"))
_SECONDS_PER_KILL = 20
_COMPONENTS = (
    "apiserver",
    "controllers",
    "node-node01",
    "node-node02",
    "containerd-node01",
    "containerd-node02",
)
_PROGRAMS = {
    "driver": "virtplane hostpath-driver ",
    "sidecars": "virtplane csi ",
    "driver with sidecars": "virtplane hostpath-csi ",  # the compact layout's
    "operators": "virtplane run virt-operator",
    "shim": "containerd-shim",
}
_CDI = {
    "importer": "virt-cdi-importer",
    "upload server": "virt-cdi-uploadserver",
    "cloner": "virt-cdi-cloner",
    "components": "virtplane run cdi-",  # where they have processes of their own
}
_ALL = "all"
_CRASHES = 2
"""Of a pod of the product, before it is replaced: its next start would wait for long."""
_SETTLED_SECONDS = 120.0
_FILLED_SECONDS = 240.0
_GONE_SECONDS = 150.0
_UP = (sys.executable, "-m", "virtplane.cli.main", "up", "--nodes", "2")
_INSTALL = (
    *(sys.executable, "-m", "virtplane.cli.main", "install", "--layout", "distributed"),
    *("--namespace", "kubevirt", "--image", HOST_IMAGE, "--emulation", "--require-webhook-certificate"),
)
_PODS = f"{CORE}/namespaces/{NAMESPACE}/pods"


@dataclass
class Killer:
    """Kills processes of a cluster, chosen by chance."""

    cluster: Cluster
    random: random.Random
    programs: dict[str, str]
    """The kinds of processes by a part of their commands."""
    killed: Counter[str] = field(default_factory=Counter)

    def kill(self) -> None:
        """Kill -9 one process, or one of every kind."""
        kind = self.random.choice((*_COMPONENTS, *self.programs, *self.programs, _ALL))
        victims = [pid for each in self._kinds(kind) for pid in self._victims(each)]
        for pid in victims:
            kill(pid)
        self.killed[kind] += bool(victims)

    def _kinds(self, kind: str) -> list[str]:
        return [*_COMPONENTS, *self.programs] if kind == _ALL else [kind]

    def _victims(self, kind: str) -> list[int]:
        if kind in _COMPONENTS:
            try:
                return [self.cluster.component(kind)]
            except NotThere:
                return []  # killed before, and not back yet
        mark = self.programs[kind]
        found = sorted(each.pid for each in self.cluster.processes() if mark in each.command)
        return [self.random.choice(found)] if found else []

    def replace_crashed(self, namespace: str = "kubevirt") -> None:
        """Delete pods that were killed often and that something makes anew, as an administrator would."""
        path = f"{CORE}/namespaces/{namespace}/pods"
        try:
            for pod in self.cluster.items(path):
                metadata = pod["metadata"]
                if "ownerReferences" not in metadata or "deletionTimestamp" in metadata:
                    continue
                if restarts(pod) >= _CRASHES:
                    self.cluster.request("DELETE", f"{path}/{pod['metadata']['name']}")
        except (OSError, ApiError):
            return  # the API is down just now


@pytest.fixture(scope="module")
def two_nodes(whole_machine: None) -> Iterator[Cluster]:
    """A cluster of two nodes; the one of ``VIRTPLANE_TEST_STATE`` if that is set."""
    borrowed = os.environ.get("VIRTPLANE_TEST_STATE")
    cluster = Cluster(Path(borrowed or tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        run(*_UP, "--state", cluster.state, seconds=150, cwd=ROOT)
        if not (cluster.state / "pool.img").exists():
            pytest.skip("this machine cannot have a storage pool")
        if os.environ.get("VIRTPLANE_TEST_LAYOUT") == "distributed":
            run(*_INSTALL, seconds=300, cwd=ROOT, env=cluster.environment)
        yield cluster
    finally:
        if not borrowed:
            cluster.reset()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """The pods' ledger, in a folder that nodes reach as well."""
    made = Ledger(Path(tempfile.mkdtemp(prefix="virtplane-ledger-")))
    yield made
    made.remove()


@pytest.fixture
def users(two_nodes: Cluster, ledger: Ledger) -> Iterator[Users]:
    """Users of claims in a namespace of their own, and the seed of their choices."""
    seed = int(os.environ.get("VIRTPLANE_SEED") or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"VIRTPLANE_SEED={seed}\n")
    two_nodes.request("POST", f"{CORE}/namespaces", {"metadata": {"name": NAMESPACE}})
    try:
        yield Users(two_nodes, ledger, random.Random(seed))
    finally:
        delete_namespace(two_nodes)


def delete_namespace(cluster: Cluster) -> None:
    """Delete everything of the users at once, and wait until it is gone."""
    path = f"{CORE}/namespaces/{NAMESPACE}"
    if cluster.find(path) is not None:
        cluster.request("DELETE", path)
    wait_for("the namespace is gone", lambda: cluster.find(path) is None, _GONE_SECONDS)


def auditors(cluster: Cluster, ledger: Ledger) -> dict[str, str]:
    """Have one more pod look at every claim; gives the pods' names by claim."""
    made = {}
    for document in cluster.items(CLAIMS):
        if "deletionTimestamp" in document["metadata"]:
            continue
        name, spec = document["metadata"]["name"], document["spec"]
        claim = Claim(name, spec["storageClassName"], spec["volumeMode"], 0)
        made[name] = f"auditor-{name}"
        cluster.request("POST", _PODS, claim_users.pod(made[name], claim, ledger))
    return made


def is_hopeless(cluster: Cluster, claim: Document) -> bool:
    """Whether a claim gets no volume: its source was deleted, or grew beyond it, before it was copied."""
    source = claim["spec"].get("dataSource")
    if claim["status"]["phase"] != "Pending" or source is None:
        return False
    kind = {"VolumeSnapshot": "volumesnapshots", "PersistentVolumeClaim": "persistentvolumeclaims"}
    group = f"/apis/{source['apiGroup']}/v1" if source.get("apiGroup") else CORE
    path = f"{group}/namespaces/{NAMESPACE}/{kind[source['kind']]}/{source['name']}"
    found = cluster.find(path)
    if found is None or "deletionTimestamp" in found["metadata"]:
        return True
    size = found.get("status", {}).get("restoreSize", "0")
    if found["kind"] == "PersistentVolumeClaim":
        size = found["spec"]["resources"]["requests"]["storage"]
    return in_bytes(size) > in_bytes(claim["spec"]["resources"]["requests"]["storage"])


def have_written(ledger: Ledger, made: dict[str, str]) -> bool:
    """Whether all auditors found everything, and wrote a token of their own."""
    assert ledger.problems() == {}
    return all(
        any(token.startswith(f"{pod}/") for token in ledger.acknowledged(claim).values())
        for claim, pod in made.items()
    )


def unready(cluster: Cluster) -> list[str]:
    """Pods of users that do not run, or have not gone yet."""
    pods = cluster.items(_PODS, f"{LABEL}%3Dclaims")
    going = [pod for pod in pods if "deletionTimestamp" in pod["metadata"] or not is_ready(pod)]
    return [pod["metadata"]["name"] for pod in going]


@pytest.mark.timeout(480 + _KILLS * _SECONDS_PER_KILL)
def test_no_data_is_lost_doubled_or_left_when_everything_is_killed_at_random(
    two_nodes: Cluster, users: Users, ledger: Ledger, record_property: Callable[[str, object], None]
) -> None:
    killer = Killer(two_nodes, users.random, _PROGRAMS)
    users.begin()
    while killer.killed.total() < _KILLS:
        for _ in range(3):
            users.act()
        killer.kill()
        killer.replace_crashed()
        assert ledger.problems() == {}, dict(killer.killed)
        time.sleep(users.random.uniform(0.0, 3.0))  # what is killed next may be anywhere in its recovery
    record_property("killed", dict(killer.killed))
    record_property("done", dict(Counter(users.done)))
    # From here on nothing is killed: all must become true by itself.
    wait_for("the API answers", lambda: two_nodes.items(f"{CORE}/nodes"), 60)
    forget_crashes(two_nodes)
    wait_for_none("every status is true", lambda: wrong_statuses(two_nodes, []), 60)
    wait_for("users have done what they wanted", users.catch_up, 30)
    hopeless = [each for each in two_nodes.items(CLAIMS) if is_hopeless(two_nodes, each)]
    users.give_up({claim["metadata"]["name"] for claim in hopeless})
    wait_for("users have given up claims without a source", users.catch_up, 30)
    made = auditors(two_nodes, ledger)
    assert made
    wait_for("every claim has all its tokens", lambda: have_written(ledger, made), _SETTLED_SECONDS)
    wait_for_none("all pods run", lambda: unready(two_nodes), _SETTLED_SECONDS)
    wait_for_none("claims, volumes and files agree", lambda: mismatches(two_nodes), _SETTLED_SECONDS)
    wait_for_none("nothing of gone pods is left", lambda: left_of_pods(two_nodes), 30)
    delete_namespace(two_nodes)
    wait_for_none("nothing of claims is left", lambda: left_of_claims(two_nodes), _GONE_SECONDS)
    assert ledger.problems() == {}


@pytest.fixture
def importers(two_nodes: Cluster, ledger: Ledger, users: Users, tmp_path: Path) -> Iterator[Importers]:
    """Users of data volumes in that namespace, and a server of disks."""
    with served_images(two_nodes, tmp_path) as images, copying_class(two_nodes):
        made = Importers(two_nodes, ledger, images, users.random)
        try:
            yield made
        finally:
            made.leave()


@pytest.mark.timeout(600 + _IMPORT_KILLS * _SECONDS_PER_KILL)
def test_data_volumes_get_whole_disks_or_none_when_everything_is_killed_at_random(
    two_nodes: Cluster, importers: Importers, ledger: Ledger, record_property: Callable[[str, object], None]
) -> None:
    killer = Killer(two_nodes, importers.random, _PROGRAMS | _CDI)
    while killer.killed.total() < _IMPORT_KILLS:
        for _ in range(3):
            importers.act()
        killer.kill()
        killer.replace_crashed()
        killer.replace_crashed(NAMESPACE)
        assert ledger.problems() == {}, dict(killer.killed)
        time.sleep(importers.random.uniform(0.0, 3.0))  # what is killed next may be anywhere in its recovery
    record_property("killed", dict(killer.killed))
    record_property("done", dict(Counter(importers.done)))
    # From here on nothing is killed: all must become true by itself.
    wait_for("the API answers", lambda: two_nodes.items(f"{CORE}/nodes"), 60)
    forget_crashes(two_nodes)
    killer.replace_crashed(NAMESPACE)
    wait_for("users have done what they wanted", importers.catch_up, 60)
    wait_for_none("every volume is filled", lambda: list(importers.phases().items()), _FILLED_SECONDS)
    wait_for_none("pods have found the disks", importers.unread, _SETTLED_SECONDS)
    assert ledger.problems() == {}
    volumes = importers.volumes
    wait_for_none("what filled them is gone", lambda: left_of_imports(two_nodes, volumes), _SETTLED_SECONDS)
    wait_for_none("nothing of gone pods is left", lambda: left_of_pods(two_nodes), 30)
    delete_namespace(two_nodes)
    wait_for_none("nothing of claims is left", lambda: left_of_claims(two_nodes), _GONE_SECONDS)
    assert ledger.problems() == {}
