"""PostgreSQL, Redis and docker-registry keep what they acknowledged, wherever their pods have to go.

Clients write without a pause while nodes are drained, lose their link or are switched off, and when the
cluster is stopped; afterwards every acknowledged entry is there. No volume of one node has two servers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, is_ready
from tests.e2e.programs import registries
from tests.e2e.programs.databases import DATABASES, POSTGRES, REDIS, Database, drain
from tests.e2e.programs.manifests import apply, load_balancer_addresses, wait_rolled_out
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

_OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
_NOTICED_SECONDS = 60
"""Kubernetes calls a node lost 40 seconds after its last sign of life."""
_LAYER = random.Random(11).randbytes(3_000_000)


@pytest.fixture(scope="module")
def programs(three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The servers, ready, with an image in the registry."""
    cluster = three_nodes
    folder = tmp_path_factory.mktemp("programs")
    documents = [document for each in DATABASES for document in each.manifests()]
    documents += registries.manifests()
    apply(cluster, folder, *documents)
    try:
        wait_rolled_out(cluster, "deployment/registry", *(f"statefulset/{each.name}" for each in DATABASES))
        for database in DATABASES:
            database.execute(cluster, database.prepare)
        for address in load_balancer_addresses(cluster, registries.NAME):
            registries.Client(address).push("apps/one", _LAYER)
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", str(folder / "manifest.json"), "--wait=false")
        cluster.kubectl("delete", "pvc", "--all", "--wait=false")
        wait_for("no pod is left", lambda: not cluster.items(f"{CORE}/namespaces/{NAMESPACE}/pods"), 60)


def assert_the_registry_has_its_image(cluster: Cluster) -> None:
    wait_rolled_out(cluster, "deployment/registry")
    for address in load_balancer_addresses(cluster, registries.NAME):
        assert registries.Client(address).pull("apps/one") == _LAYER


def assert_all_is_there(cluster: Cluster, database: Database, acknowledged: set[int]) -> None:
    assert len(acknowledged) > 1
    assert acknowledged <= database.entries(cluster)
    assert len(database.pods_that_run_it(cluster)) == 1


def is_lost(cluster: Cluster, node: str) -> bool:
    found = cluster.request("GET", f"{CORE}/nodes/{node}")
    ready = next(each for each in found["status"]["conditions"] if each["type"] == "Ready")
    return bool(ready["status"] == "Unknown")


def is_node_ready(cluster: Cluster, node: str) -> bool:
    return is_ready(cluster.request("GET", f"{CORE}/nodes/{node}"))


def is_being_deleted(cluster: Cluster, database: Database) -> bool:
    return "deletionTimestamp" in database.pod(cluster)["metadata"]


def refusals(cluster: Cluster, uid: str) -> list[str]:
    """What events of a pod say of volumes that could not be mounted."""
    events = cluster.items(f"{CORE}/namespaces/{NAMESPACE}/events")
    return [
        str(event["message"])
        for event in events
        if event["involvedObject"].get("uid") == uid and event["reason"] == "FailedMount"
    ]


def test_a_drained_node_gives_its_servers_with_their_data_to_another(
    programs: Cluster, tmp_path: Path
) -> None:
    cluster = programs
    node = POSTGRES.node(cluster)
    moved = [each for each in DATABASES if each.node(cluster) == node]
    uids = {each: str(each.pod(cluster)["metadata"]["uid"]) for each in moved}
    with ExitStack() as stack:
        clients = {each: stack.enter_context(each.written_to(cluster, tmp_path)) for each in moved}
        try:
            drain(cluster, node)
            for database in moved:
                database.wait_ready(cluster, other_than=uids[database])
                assert database.node(cluster) != node
                assert_all_is_there(cluster, database, clients[database]())
        finally:
            cluster.kubectl("uncordon", node)
    assert_the_registry_has_its_image(cluster)


def test_servers_of_lost_nodes_go_on_elsewhere_and_never_write_twice(
    programs: Cluster, tmp_path: Path
) -> None:
    cluster = programs
    isolated, stopped = POSTGRES.node(cluster), REDIS.node(cluster)
    if isolated == stopped:
        drain(cluster, stopped)
        REDIS.wait_ready(cluster)
        POSTGRES.wait_ready(cluster)
        cluster.kubectl("uncordon", stopped)
        isolated, stopped = POSTGRES.node(cluster), REDIS.node(cluster)
    assert isolated != stopped
    uids = {each: str(each.pod(cluster)["metadata"]["uid"]) for each in DATABASES}
    with ExitStack() as stack:
        clients = {each: stack.enter_context(each.written_to(cluster, tmp_path)) for each in DATABASES}
        with ExitStack() as mending:
            mending.callback(put_back_in_service, cluster, stopped)
            for node in (stopped, isolated):
                mending.callback(cluster.node, "start", node)
            cluster.node("isolate", isolated)
            cluster.node("stop", stopped)
            for node in (isolated, stopped):
                wait_for(f"{node} is lost", partial(is_lost, cluster, node), _NOTICED_SECONDS)
            for database in DATABASES:
                # Nobody knows whether it still runs, so there must not be another.
                wait_for("its pod is evicted", partial(is_being_deleted, cluster, database), 30)
                assert database.pod(cluster)["metadata"]["uid"] == uids[database]
            go_on_without_the_stopped_node(cluster, stopped, uids[REDIS])
            assert_all_is_there(cluster, REDIS, clients[REDIS]())
            assert_refused_while_the_isolated_one_writes(cluster, uids[POSTGRES])
        POSTGRES.wait_ready(cluster, other_than=uids[POSTGRES])
        assert_all_is_there(cluster, POSTGRES, clients[POSTGRES]())
    for node in (isolated, stopped):
        wait_for(f"{node} is ready", partial(is_node_ready, cluster, node), 30)
    assert_the_registry_has_its_image(cluster)


def go_on_without_the_stopped_node(cluster: Cluster, node: str, uid: str) -> None:
    """Say that a node is switched off, as an administrator does who knows."""
    assert not REDIS.pods_that_run_it(cluster)
    taint = "{key}={value}:{effect}".format(**_OUT_OF_SERVICE)
    cluster.kubectl("taint", "node", node, taint)
    REDIS.wait_ready(cluster, other_than=uid)
    assert REDIS.node(cluster) != node


def put_back_in_service(cluster: Cluster, node: str) -> None:
    """Take back that a node is switched off, if that was said."""
    taints = cluster.request("GET", f"{CORE}/nodes/{node}")["spec"].get("taints", ())
    if _OUT_OF_SERVICE["key"] in {taint["key"] for taint in taints}:
        cluster.kubectl("taint", "node", node, f"{_OUT_OF_SERVICE['key']}-")


def assert_refused_while_the_isolated_one_writes(cluster: Cluster, uid: str) -> None:
    """Say that the isolated node is switched off, which is not true."""
    cluster.kubectl("delete", "pod", f"{POSTGRES.name}-0", "--force", "--grace-period=0", "--wait=false")
    successor = wait_for("there is another pod", lambda: another_pod(cluster, uid), 30)
    said = wait_for("its volume is refused", lambda: refusals(cluster, successor), 30)
    assert any("can be used on one node at a time, and is in use on" in each for each in said), said
    assert len(POSTGRES.pods_that_run_it(cluster)) == 1, "the old one runs, the new one does not"
    assert not is_ready(POSTGRES.pod(cluster))


def another_pod(cluster: Cluster, uid: str) -> str:
    """The UID of another pod of PostgreSQL."""
    found = cluster.find(POSTGRES.pod_path)
    present = str(found["metadata"]["uid"]) if found else ""
    return present if present != uid else ""


def test_everything_is_there_after_the_cluster_was_stopped(programs: Cluster, tmp_path: Path) -> None:
    cluster = programs
    with ExitStack() as stack:
        clients = {each: stack.enter_context(each.written_to(cluster, tmp_path)) for each in DATABASES}
        cluster.down()
        assert not any(each.pods_that_run_it(cluster) for each in DATABASES)
        cluster.up()
        for database in DATABASES:
            wait_for(f"{database.name} answers", partial(database.answers, cluster), 60)
            assert_all_is_there(cluster, database, clients[database]())
    for address in load_balancer_addresses(cluster, registries.NAME):
        # The Deployment's status may be from before.
        wait_for("the registry answers", partial(registries.Client(address).pull, "apps/one"), 60)
    assert_the_registry_has_its_image(cluster)
