"""ReplicaSets, Deployments, DaemonSets and StatefulSets at work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kindling.controllers import garbage_collector
from kindling.controllers.workloads import daemon_sets, deployments, replicas, stateful_sets
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ResourceType,
)

from .conftest import Cluster

pytestmark = pytest.mark.looptime

TEMPLATE: JsonObject = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}


def workload(name: str = "web", replicas: int = 2, **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
            **spec,
        },
    }


def deployment(replicas: int = 2, strategy: JsonObject | None = None, **spec: Any) -> JsonObject:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return workload("web", replicas, strategy=strategy or rolling, progressDeadlineSeconds=600, **spec)


async def change(cluster: Cluster, resource: ResourceType, name: str, patch: JsonObject) -> JsonObject:
    return await cluster.client.patch(resource, name, patch, "lab", type="merge")


async def test_a_replica_set_keeps_its_number_of_pods(cluster: Cluster) -> None:
    cluster.api.put(REPLICA_SETS, workload())
    async with cluster.running(replicas.replica_sets):
        assert len(cluster.pods()) == 2
        cluster.api.remove(PODS, cluster.pods()[0]["metadata"]["name"], "lab")
        await asyncio.sleep(1)
        assert len(cluster.pods()) == 2
        await change(cluster, REPLICA_SETS, "web", {"spec": {"replicas": 1}})
        await asyncio.sleep(1)
        assert len(cluster.pods()) == 1
        cluster.make_ready(cluster.pods()[0])
        await asyncio.sleep(1)
    status = cluster.get(REPLICA_SETS, "web", "lab")["status"]
    assert status == {
        "replicas": 1,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "terminatingReplicas": 0,
        "observedGeneration": 2,
    }
    messages = {event["message"].split(":")[0] for event in cluster.api.list(EVENTS)}
    assert messages == {"Created pod", "Deleted pod"}


async def test_a_replica_set_gives_up_the_worst_pods_first(cluster: Cluster) -> None:
    cluster.api.put(REPLICA_SETS, workload())
    async with cluster.running(replicas.replica_sets):
        keeper = cluster.pods()[1]
        cluster.make_ready(keeper)
        await change(cluster, REPLICA_SETS, "web", {"spec": {"replicas": 1}})
        await asyncio.sleep(1)
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == [keeper["metadata"]["name"]]


async def test_orphans_are_adopted_and_strangers_released(cluster: Cluster) -> None:
    cluster.api.put(PODS, {"metadata": {"name": "orphan", "namespace": "lab", "labels": {"app": "web"}}})
    cluster.api.put(REPLICA_SETS, workload(replicas=1))
    async with cluster.running(replicas.replica_sets):
        (pod,) = cluster.pods()
        assert pod["metadata"]["ownerReferences"][0]["name"] == "web"
        await change(cluster, PODS, "orphan", {"metadata": {"labels": {"app": "debug"}}})
        await asyncio.sleep(1)
    released = cluster.get(PODS, "orphan", "lab")
    assert "ownerReferences" not in released["metadata"]
    assert len(cluster.pods()) == 2


async def test_a_refused_pod_is_told_in_condition_and_event(cluster: Cluster) -> None:
    refusal = StatusError(403, "Forbidden", "exceeded quota")
    cluster.api.reactions.append(
        lambda request: refusal if request.method == "POST" and request.path.endswith("/pods") else None
    )
    cluster.api.put(REPLICA_SETS, workload())
    async with cluster.running(replicas.replica_sets):
        pass
    (condition,) = cluster.get(REPLICA_SETS, "web", "lab")["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "ReplicaFailure",
        "FailedCreate",
        "exceeded quota",
    )
    assert any(event["message"] == "Error creating: exceeded quota" for event in cluster.api.list(EVENTS))


async def test_a_replication_controller_selects_by_a_plain_map(cluster: Cluster) -> None:
    controller = workload(selector={"app": "web"})
    cluster.api.put(REPLICATION_CONTROLLERS, controller)
    async with cluster.running(replicas.replication_controllers):
        pass
    assert len(cluster.pods()) == 2
    status = cluster.get(REPLICATION_CONTROLLERS, "web", "lab")["status"]
    assert "terminatingReplicas" not in status


async def settle_rollout(cluster: Cluster, rounds: int = 8) -> None:
    for _ in range(rounds):
        for pod in cluster.pods():
            if pod.get("status", {}).get("phase") != "Running":
                cluster.make_ready(pod)
        await asyncio.sleep(1)


async def test_a_deployment_rolls_out_a_new_template_without_losing_pods(cluster: Cluster) -> None:
    cluster.api.put(DEPLOYMENTS, deployment())
    async with cluster.running(deployments.DeploymentController, replicas.replica_sets):
        await settle_rollout(cluster, 2)
        first = {pod["metadata"]["labels"]["pod-template-hash"] for pod in cluster.pods()}
        await change(
            cluster, DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        )
        await asyncio.sleep(1)
        assert len(cluster.pods()) == 3
        await settle_rollout(cluster)
        second = {pod["metadata"]["labels"]["pod-template-hash"] for pod in cluster.pods()}
        assert len(first) == len(second) == 1 and first != second
        assert len(cluster.pods()) == 2
    found = cluster.get(DEPLOYMENTS, "web", "lab")
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    conditions = {item["type"]: item for item in found["status"]["conditions"]}
    assert conditions["Available"]["message"] == "Deployment has minimum availability."
    assert conditions["Progressing"]["reason"] == "NewReplicaSetAvailable"
    assert conditions["Progressing"]["message"].endswith("has successfully progressed.")
    assert found["metadata"]["generation"] == 2


async def test_recreating_waits_for_the_old_pods_to_be_gone(cluster: Cluster) -> None:
    cluster.api.put(DEPLOYMENTS, deployment(strategy={"type": "Recreate"}))
    async with cluster.running(deployments.DeploymentController, replicas.replica_sets):
        await settle_rollout(cluster, 2)
        for pod in cluster.pods():
            held = {**pod, "metadata": {**pod["metadata"], "finalizers": ["test/hold"]}}
            cluster.api.put(PODS, held)
        await change(
            cluster, DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        )
        await asyncio.sleep(2)
        assert all(pod["metadata"].get("deletionTimestamp") for pod in cluster.pods())
        for pod in cluster.pods():
            await change(cluster, PODS, pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        await asyncio.sleep(2)
        assert len(cluster.pods()) == 2
        assert not any(pod["metadata"].get("deletionTimestamp") for pod in cluster.pods())


async def test_a_rollout_that_hangs_exceeds_its_deadline(cluster: Cluster) -> None:
    cluster.api.put(
        DEPLOYMENTS, {**deployment(), "spec": {**deployment()["spec"], "progressDeadlineSeconds": 30}}
    )
    async with cluster.running(deployments.DeploymentController, replicas.replica_sets):
        await asyncio.sleep(60)
    found = cluster.get(DEPLOYMENTS, "web", "lab")
    progressing = next(item for item in found["status"]["conditions"] if item["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert progressing["message"].endswith("has timed out progressing.")


async def test_old_sets_are_kept_up_to_the_limit_and_found_again_when_rolling_back(cluster: Cluster) -> None:
    cluster.api.put(DEPLOYMENTS, deployment(replicas=0, revisionHistoryLimit=1))
    async with cluster.running(deployments.DeploymentController, replicas.replica_sets):
        for round_number in ("1", "2", "3", "1"):
            template = {"metadata": {"annotations": {"v": round_number}}}
            await change(cluster, DEPLOYMENTS, "web", {"spec": {"template": template}})
            await asyncio.sleep(2)
        assert len(cluster.api.list(REPLICA_SETS)) == 2


async def test_deleting_a_deployment_takes_everything_along(cluster: Cluster) -> None:
    cluster.api.put(DEPLOYMENTS, deployment())
    running = (deployments.DeploymentController, replicas.replica_sets, garbage_collector.GarbageCollector)
    async with cluster.running(*running):
        await asyncio.sleep(2)
        assert len(cluster.pods()) == 2
        await cluster.client.delete(DEPLOYMENTS, "web", "lab", propagation_policy="Background")
        await asyncio.sleep(5)
    assert cluster.pods() == [] and cluster.api.list(REPLICA_SETS) == []


def node(name: str, **extra: Any) -> JsonObject:
    return {"metadata": {"name": name, "labels": extra.pop("labels", {})}, "spec": extra}


async def test_a_daemon_set_has_a_pod_on_every_fitting_node(cluster: Cluster) -> None:
    cluster.api.put(NODES, node("n1"))
    cluster.api.put(NODES, node("n2", unschedulable=True))
    cluster.api.put(NODES, node("n3", taints=[{"key": "a", "effect": "NoSchedule"}]))
    cluster.api.put(DAEMON_SETS, workload("d", updateStrategy={"type": "RollingUpdate"}))
    async with cluster.running(daemon_sets.DaemonSetController):
        affinities = [pod["spec"]["affinity"]["nodeAffinity"] for pod in cluster.pods()]
        required = [item["requiredDuringSchedulingIgnoredDuringExecution"] for item in affinities]
        targets = {item["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] for item in required}
        assert targets == {"n1", "n2"}
        cluster.api.put(NODES, node("n4"))
        await asyncio.sleep(1)
        assert len(cluster.pods()) == 3
        for pod in cluster.pods():
            cluster.make_ready(pod)
        await asyncio.sleep(1)
        status = cluster.get(DAEMON_SETS, "d", "lab")["status"]
        assert status == {
            "currentNumberScheduled": 3,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 3,
            "numberReady": 3,
            "observedGeneration": 1,
            "updatedNumberScheduled": 3,
            "numberAvailable": 3,
        }
        await change(
            cluster, DAEMON_SETS, "d", {"spec": {"template": {"spec": {"nodeSelector": {"no": "such"}}}}}
        )
        await asyncio.sleep(2)
    assert cluster.pods() == []


async def test_sets_of_both_kinds_may_share_name_and_template(cluster: Cluster) -> None:
    cluster.api.put(NODES, node("n1"))
    rolling = {"updateStrategy": {"type": "RollingUpdate"}}
    for kind in (STATEFUL_SETS, DAEMON_SETS):
        cluster.api.put(kind, workload("same", 1, **rolling))
    async with cluster.running(stateful_sets.StatefulSetController, daemon_sets.DaemonSetController):
        await asyncio.sleep(5)
        owners = [
            pod["metadata"]["ownerReferences"][0]["kind"]
            for pod in cluster.pods()
            if "ownerReferences" in pod["metadata"]
        ]
        assert sorted(owners) == ["DaemonSet", "StatefulSet"]
        revisions = cluster.api.list(CONTROLLER_REVISIONS)
        assert len({revision["metadata"]["name"] for revision in revisions}) == 2


async def test_a_daemon_set_is_updated_node_by_node(cluster: Cluster) -> None:
    for name in ("n1", "n2"):
        cluster.api.put(NODES, node(name))
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    cluster.api.put(DAEMON_SETS, workload("d", updateStrategy=rolling))
    async with cluster.running(daemon_sets.DaemonSetController):
        for pod in cluster.pods():
            cluster.make_ready(pod)
        await asyncio.sleep(1)
        template = {"metadata": {"annotations": {"v": "2"}}}
        await change(cluster, DAEMON_SETS, "d", {"spec": {"template": template}})
        await asyncio.sleep(2)
        ready = [pod for pod in cluster.pods() if pod.get("status")]
        assert (len(cluster.pods()), len(ready)) == (2, 1)
        await settle_rollout(cluster, 4)
        hashes = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in cluster.pods()}
        assert len(hashes) == 1
    assert len(cluster.api.list(CONTROLLER_REVISIONS)) == 2


def stateful(**spec: Any) -> JsonObject:
    template = {
        "metadata": {"name": "data", "labels": {"l": "m"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    spec = {"updateStrategy": update, "volumeClaimTemplates": [template], "serviceName": "db", **spec}
    return workload("db", 2, **spec)


async def test_stateful_pods_come_in_order_with_claims_of_their_own(cluster: Cluster) -> None:
    cluster.api.put(STATEFUL_SETS, stateful())
    async with cluster.running(stateful_sets.StatefulSetController):
        assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["db-0"]
        cluster.make_ready(cluster.pods()[0])
        await asyncio.sleep(1)
        assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["db-0", "db-1"]
        pod = cluster.pods()[1]
        assert pod["spec"]["hostname"] == "db-1" and pod["spec"]["subdomain"] == "db"
        assert pod["spec"]["volumes"] == [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}
        ]
        claims = cluster.api.list(PERSISTENT_VOLUME_CLAIMS)
        assert [claim["metadata"]["name"] for claim in claims] == ["data-db-0", "data-db-1"]
        assert claims[0]["metadata"]["labels"] == {"l": "m", "app": "web"}


async def test_stateful_pods_go_from_the_last_and_keep_their_claims(cluster: Cluster) -> None:
    cluster.api.put(STATEFUL_SETS, stateful(podManagementPolicy="Parallel"))
    async with cluster.running(stateful_sets.StatefulSetController):
        assert len(cluster.pods()) == 2
        await settle_rollout(cluster, 1)
        await change(cluster, STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        await asyncio.sleep(2)
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["db-0"]
    assert len(cluster.api.list(PERSISTENT_VOLUME_CLAIMS)) == 2


async def test_a_new_template_replaces_stateful_pods_from_the_last(cluster: Cluster) -> None:
    cluster.api.put(STATEFUL_SETS, stateful(podManagementPolicy="Parallel"))
    async with cluster.running(stateful_sets.StatefulSetController):
        await settle_rollout(cluster, 2)
        template = {"metadata": {"annotations": {"v": "2"}}}
        await change(cluster, STATEFUL_SETS, "db", {"spec": {"template": template}})
        await asyncio.sleep(2)
        revisions = [pod["metadata"]["labels"]["controller-revision-hash"] for pod in cluster.pods()]
        assert len(set(revisions)) == 2
        await settle_rollout(cluster, 4)
        revisions = [pod["metadata"]["labels"]["controller-revision-hash"] for pod in cluster.pods()]
        assert len(set(revisions)) == 1
        status = cluster.get(STATEFUL_SETS, "db", "lab")["status"]
    assert status["currentRevision"] == status["updateRevision"] == revisions[0]
    assert (status["readyReplicas"], status["updatedReplicas"]) == (2, 2)


async def test_a_set_that_needs_no_pods_and_is_taken_over_keeps_its_annotations(cluster: Cluster) -> None:
    cluster.api.put(DEPLOYMENTS, deployment(0, paused=True))
    found = workload("mine", 0)
    cluster.api.put(REPLICA_SETS, {**found, "metadata": {**found["metadata"], "labels": {"app": "web"}}})
    async with cluster.running(deployments.DeploymentController):
        await asyncio.sleep(1)
    found = cluster.get(REPLICA_SETS, "mine", "lab")["metadata"]
    assert [owner["name"] for owner in found["ownerReferences"]] == ["web"]
    assert set(found["annotations"]) == {"deployment.kubernetes.io/revision"}
