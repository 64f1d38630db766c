"""Nodes, pod garbage, endpoints, quotas, budgets, tokens and roles."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.objects import node, pod

from kindling.apiserver.auth.keys import new_key
from kindling.controllers import resource_quotas
from kindling.controllers.accounts import cluster_roles, token_secrets
from kindling.controllers.main import CONTROLLERS
from kindling.controllers.nodes import lifecycle, pod_gc, ttl
from kindling.controllers.nodes.lifecycle import eviction_delay, taints
from kindling.controllers.services import endpoint_mirroring, endpoint_slices, endpoints
from kindling.controllers.workloads import disruption
from kubecore.json import JsonObject
from kubecore.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)

from .conftest import Cluster

pytestmark = pytest.mark.looptime

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_list_of_controllers_is_sorted() -> None:
    modules = [controller.__module__ for controller in CONTROLLERS]
    assert modules == sorted(modules)


async def test_a_silent_node_is_tainted_and_its_pods_leave_when_their_time_is_over(cluster: Cluster) -> None:
    cluster.api.put(NODES, node())
    cluster.api.put(LEASES, lease("1"))
    patient = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    cluster.api.put(PODS, pod("leaves", tolerations=[{**patient, "tolerationSeconds": 300}]))
    cluster.api.put(PODS, pod("stays", tolerations=[patient]))
    async with cluster.running(lifecycle.NodeLifecycleController):
        await asyncio.sleep(60)
        found = cluster.get(NODES, "n1")
        ready = found["status"]["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert ready["message"] == "Kubelet stopped posting node status."
        keys = [(taint["key"], taint["effect"]) for taint in found["spec"]["taints"]]
        assert keys == [
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
        ]
        conditions = cluster.get(PODS, "stays", "lab")["status"]["conditions"]
        assert conditions[0]["status"] == "False"
        assert len(cluster.pods()) == 2
        await asyncio.sleep(310)
        assert [item["metadata"]["name"] for item in cluster.pods()] == ["stays"]
        cluster.api.put(NODES, {**cluster.get(NODES, "n1"), "status": node()["status"]})
        cluster.api.put(LEASES, lease("2"))
        await asyncio.sleep(10)
        assert "taints" not in cluster.get(NODES, "n1")["spec"]


def lease(renewed: str) -> JsonObject:
    metadata = {"name": "n1", "namespace": "kube-node-lease"}
    return {"metadata": metadata, "spec": {"renewTime": renewed}}


async def test_a_node_that_renews_its_lease_is_left_alone(cluster: Cluster) -> None:
    cluster.api.put(NODES, node())
    async with cluster.running(lifecycle.NodeLifecycleController):
        for round_number in range(12):
            cluster.api.put(LEASES, lease(str(round_number)))
            await asyncio.sleep(10)
    assert "taints" not in cluster.get(NODES, "n1")["spec"]


def test_taints_follow_conditions_and_cordons_and_leave_others_alone() -> None:
    own = {"key": "mine", "effect": "NoSchedule"}
    found = node(ready="False", unschedulable=True, taints=[own])
    found["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    wanted = [(taint["key"], taint["effect"]) for taint in taints(found, NOW)]
    assert wanted == [
        ("mine", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]
    given = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    new: JsonObject = {"metadata": {"name": "n"}, "spec": {"taints": [given]}}
    assert taints(new, NOW) == new["spec"]["taints"]
    recovered = {**node(), "spec": {"taints": taints(found, NOW)}}
    assert taints(recovered, NOW) == [own]


def test_the_time_to_leave_depends_on_taint_and_toleration() -> None:
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    later = NOW + timedelta(seconds=10)
    assert eviction_delay(pod(), [taint], later) == 0
    assert eviction_delay(pod(), [{**taint, "effect": "NoSchedule"}], later) is None
    tolerant = pod(tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 30}])
    assert eviction_delay(tolerant, [taint], later) == 20
    assert eviction_delay(pod(tolerations=[{"operator": "Exists"}]), [taint], later) is None


async def test_pods_of_vanished_nodes_are_removed_after_a_while(cluster: Cluster) -> None:
    cluster.api.put(NODES, node("n1"))
    cluster.api.put(PODS, pod("kept", on="n1"))
    cluster.api.put(PODS, pod("lost", on="gone"))
    async with cluster.running(pod_gc.PodGarbageCollector):
        await asyncio.sleep(30)
        assert len(cluster.pods()) == 2
        await asyncio.sleep(40)
    assert [item["metadata"]["name"] for item in cluster.pods()] == ["kept"]


def test_too_many_ended_pods_are_removed_oldest_first() -> None:
    pods = [{**pod(str(number)), "status": {"phase": "Succeeded"}} for number in range(3)]
    for number, item in enumerate(pods):
        item["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
    assert pod_gc.excess_finished(pods, maximum=2) == pods[:1]


async def test_nodes_learn_how_long_they_may_keep_what_they_read(cluster: Cluster) -> None:
    cluster.api.put(NODES, node())
    async with cluster.running(ttl.NodeTtl):
        await asyncio.sleep(1)
    assert cluster.get(NODES, "n1")["metadata"]["annotations"] == {"node.alpha.kubernetes.io/ttl": "0"}
    assert [ttl.seconds(count) for count in (1, 101, 501, 1001, 5000)] == [0, 15, 30, 60, 300]


def service(name: str = "svc", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab", "labels": {"l": "m"}},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}], **spec},
    }


def serving(port: int) -> JsonObject:
    return {"ports": [{"name": "http", "containerPort": port}]}


async def test_endpoints_are_grouped_by_the_ports_that_pods_offer(cluster: Cluster) -> None:
    cluster.api.put(PODS, pod("one", ip="10.0.0.1", container=serving(8080)))
    cluster.api.put(PODS, pod("two", ip="10.0.0.2", container=serving(9090), ready=False))
    cluster.api.put(PODS, pod("none", ip="10.0.0.3"))
    cluster.api.put(SERVICES, service())
    async with cluster.running(endpoints.EndpointsController):
        found = cluster.get(ENDPOINTS, "svc", "lab")
        assert found["metadata"]["labels"] == {
            "l": "m",
            "endpoints.kubernetes.io/managed-by": "endpoint-controller",
        }
        by_port = {subset["ports"][0]["port"]: subset for subset in found["subsets"]}
        assert [entry["ip"] for entry in by_port[8080]["addresses"]] == ["10.0.0.1"]
        assert [entry["ip"] for entry in by_port[9090]["notReadyAddresses"]] == ["10.0.0.2"]
        cluster.api.remove(SERVICES, "svc", "lab")
        await asyncio.sleep(1)
        assert cluster.api.list(ENDPOINTS) == []


@pytest.mark.feature("MON-39")
async def test_slices_tell_readiness_and_termination_apart(cluster: Cluster) -> None:
    cluster.api.put(NODES, {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}})
    cluster.api.put(PODS, pod("one", container=serving(8080)))
    cluster.api.put(SERVICES, service())
    async with cluster.running(endpoint_slices.EndpointSliceController):
        (found,) = cluster.api.list(ENDPOINT_SLICES)
        assert found["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
        (endpoint,) = found["endpoints"]
        assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
        assert (endpoint["zone"], endpoint["nodeName"]) == ("z", "n1")
        dying = cluster.pods()[0]
        dying = {**dying, "metadata": {**dying["metadata"], "finalizers": ["test/hold"]}}
        cluster.api.put(PODS, dying)
        await cluster.client.delete(PODS, "one", "lab")
        await asyncio.sleep(1)
        (found,) = cluster.api.list(ENDPOINT_SLICES)
        assert found["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}


async def test_a_slice_holds_a_hundred_endpoints(cluster: Cluster) -> None:
    for number in range(101):
        cluster.api.put(PODS, pod(f"p{number:03}", ip=f"10.0.0.{number}", container=serving(80)))
    cluster.api.put(SERVICES, service())
    async with cluster.running(endpoint_slices.EndpointSliceController):
        sizes = sorted(len(found["endpoints"]) for found in cluster.api.list(ENDPOINT_SLICES))
    assert sizes == [1, 100]


async def test_endpoints_written_by_hand_are_mirrored(cluster: Cluster) -> None:
    cluster.api.put(SERVICES, service(selector=None))
    subset = {
        "addresses": [{"ip": "10.66.1.1", "hostname": "h"}],
        "notReadyAddresses": [{"ip": "10.66.1.2"}],
        "ports": [{"port": 80, "name": "x"}],
    }
    metadata = {"name": "svc", "namespace": "lab", "labels": {"mine": "yes"}}
    cluster.api.put(ENDPOINTS, {"metadata": metadata, "subsets": [subset]})
    async with cluster.running(endpoint_mirroring.EndpointMirroring, endpoint_slices.EndpointSliceController):
        (found,) = cluster.api.list(ENDPOINT_SLICES)
        assert found["metadata"]["labels"] == {
            "mine": "yes",
            "kubernetes.io/service-name": "svc",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        }
        assert found["endpoints"] == [
            {"addresses": ["10.66.1.1"], "conditions": {"ready": True}, "hostname": "h"},
            {"addresses": ["10.66.1.2"], "conditions": {"ready": False}},
        ]
        cluster.api.remove(ENDPOINTS, "svc", "lab")
        await asyncio.sleep(1)
        assert cluster.api.list(ENDPOINT_SLICES) == []


async def test_a_quota_tells_what_is_used_and_counts_again_when_something_goes(cluster: Cluster) -> None:
    hard = {"pods": "5", "requests.cpu": "2", "count/configmaps": "9", "services.nodeports": "1"}
    cluster.api.put(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "lab"}, "spec": {"hard": hard}})
    needs = {"resources": {"requests": {"cpu": "250m"}}}
    for name in ("a", "b"):
        cluster.api.put(PODS, pod(name, container=needs))
    cluster.api.put(CONFIG_MAPS, {"metadata": {"name": "x", "namespace": "lab"}})
    async with cluster.running(resource_quotas.ResourceQuotaController):
        status = cluster.get(RESOURCE_QUOTAS, "q", "lab")["status"]
        assert status["used"] == {
            "pods": "2",
            "requests.cpu": "500m",
            "count/configmaps": "1",
            "services.nodeports": "0",
        }
        assert status["hard"] == hard
        cluster.api.remove(PODS, "a", "lab")
        await asyncio.sleep(1)
        used = cluster.get(RESOURCE_QUOTAS, "q", "lab")["status"]["used"]
        assert (used["pods"], used["requests.cpu"]) == ("1", "250m")


def budget(**spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "b", "namespace": "lab", "generation": 1},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, **spec},
    }


async def test_a_budget_tells_how_many_pods_may_go(cluster: Cluster) -> None:
    cluster.api.put(POD_DISRUPTION_BUDGETS, budget(minAvailable=1))
    for name, ready in (("one", True), ("two", True), ("three", False)):
        cluster.api.put(PODS, pod(name, ready=ready))
    async with cluster.running(disruption.DisruptionController):
        status = cluster.get(POD_DISRUPTION_BUDGETS, "b", "lab")["status"]
        numbers = {key: status[key] for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")}
        assert numbers == {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
        assert (status["expectedPods"], status["observedGeneration"]) == (3, 1)
        (condition,) = status["conditions"]
        assert (condition["type"], condition["reason"]) == ("DisruptionAllowed", "SufficientPods")
        cluster.api.remove(PODS, "two", "lab")
        await asyncio.sleep(1)
        status = cluster.get(POD_DISRUPTION_BUDGETS, "b", "lab")["status"]
        assert (status["disruptionsAllowed"], status["conditions"][0]["reason"]) == (0, "InsufficientPods")


async def test_percentages_of_a_budget_are_of_what_the_owners_want(cluster: Cluster) -> None:
    owner = cluster.api.put(
        DEPLOYMENTS, {"metadata": {"name": "d", "namespace": "lab"}, "spec": {"replicas": 4}}
    )
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "controller": True}
    metadata = {
        "name": "rs",
        "namespace": "lab",
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    replica_set = cluster.api.put(REPLICA_SETS, {"metadata": metadata, "spec": {"replicas": 2}})
    for name in ("one", "two"):
        item = pod(name)
        item["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "rs",
                "controller": True,
                "uid": replica_set["metadata"]["uid"],
            }
        ]
        cluster.api.put(PODS, item)
    cluster.api.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable="50%"))
    async with cluster.running(disruption.DisruptionController):
        status = cluster.get(POD_DISRUPTION_BUDGETS, "b", "lab")["status"]
    assert (status["expectedPods"], status["desiredHealthy"]) == (4, 2)


async def test_a_budget_that_cannot_be_calculated_allows_nothing(cluster: Cluster) -> None:
    cluster.api.put(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
    cluster.api.put(PODS, pod("alone"))
    async with cluster.running(disruption.DisruptionController):
        status = cluster.get(POD_DISRUPTION_BUDGETS, "b", "lab")["status"]
    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert status["disruptionsAllowed"] == 0


async def test_account_secrets_are_filled_and_go_with_the_account(cluster: Cluster) -> None:
    def secret(name: str, account: str) -> JsonObject:
        annotations = {"kubernetes.io/service-account.name": account}
        return {
            "metadata": {"name": name, "namespace": "lab", "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
        }

    cluster.api.put(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "lab"}})
    cluster.api.put(SECRETS, secret("good", "robot"))
    cluster.api.put(SECRETS, secret("bad", "nobody"))
    async with cluster.running(token_secrets.TokenSecrets, sign_token=token_secrets.signer(new_key())):
        (found,) = cluster.api.list(SECRETS)
        data = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
        assert (data["namespace"], data["ca.crt"]) == ("lab", "CA")
        assert token_secrets.has_own_token(found)
        cluster.api.remove(SERVICE_ACCOUNTS, "robot", "lab")
        await asyncio.sleep(1)
        assert cluster.api.list(SECRETS) == []


async def test_a_token_of_an_earlier_secret_is_replaced(cluster: Cluster) -> None:
    sign = token_secrets.signer(new_key())
    account = {"metadata": {"name": "robot", "namespace": "lab"}}
    annotations = {"kubernetes.io/service-account.name": "robot"}
    cluster.api.put(SERVICE_ACCOUNTS, account)
    stolen = sign(cluster.get(SERVICE_ACCOUNTS, "robot", "lab"), {"metadata": {"name": "s", "uid": "old"}})
    cluster.api.put(
        SECRETS,
        {
            "metadata": {"name": "s", "namespace": "lab", "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
            "data": {"token": base64.b64encode(stolen.encode()).decode()},
        },
    )
    async with cluster.running(token_secrets.TokenSecrets, sign_token=sign):
        (found,) = cluster.api.list(SECRETS)
        assert base64.b64decode(found["data"]["token"]).decode() != stolen
        assert token_secrets.has_own_token(found)


async def test_aggregated_roles_have_the_rules_of_the_chosen_ones(cluster: Cluster) -> None:
    def role(name: str, verb: str, **labels: str) -> JsonObject:
        return {"metadata": {"name": name, "labels": labels}, "rules": [{"verbs": [verb]}]}

    cluster.api.put(CLUSTER_ROLES, role("b", "get", edit="yes"))
    cluster.api.put(CLUSTER_ROLES, role("a", "list", edit="yes"))
    cluster.api.put(CLUSTER_ROLES, role("c", "watch"))
    selectors = [{"matchLabels": {"edit": "yes"}}]
    aggregated = {"metadata": {"name": "edit"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    cluster.api.put(CLUSTER_ROLES, aggregated)
    async with cluster.running(cluster_roles.ClusterRoleAggregation):
        await asyncio.sleep(1)
        assert cluster.get(CLUSTER_ROLES, "edit")["rules"] == [{"verbs": ["list"]}, {"verbs": ["get"]}]
        cluster.api.remove(CLUSTER_ROLES, "a")
        await asyncio.sleep(1)
        assert cluster.get(CLUSTER_ROLES, "edit")["rules"] == [{"verbs": ["get"]}]
