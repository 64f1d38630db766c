"""Namespaces, garbage collection, accounts, and what is published into namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from kindling.controllers import garbage_collector, namespaces, resource_quotas
from kindling.controllers.accounts import root_ca, service_accounts
from kindling.controllers.namespaces import Contents, conditions
from kindling.controllers.ownership_graph import OwnershipGraph, node_of
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ResourceType,
)
from kubecore.testing import MemoryApi, discovery
from kubecore.testing.memory import built_in_resources

from .conftest import Cluster

pytestmark = pytest.mark.looptime

WIDGETS = ResourceType("example.com", "v1", "widgets", "Widget")


def namespace(name: str = "lab") -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}


def config_map(name: str, owner: JsonObject | None = None, **more: Any) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": more.pop("namespace", "lab"), **more}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ]
    return {"metadata": metadata}


def names(cluster: Cluster, resource: ResourceType = CONFIG_MAPS) -> list[str]:
    return [obj["metadata"]["name"] for obj in cluster.api.list(resource)]


async def test_every_namespace_has_its_account_and_the_authority(cluster: Cluster) -> None:
    cluster.api.put(NAMESPACES, namespace())
    async with cluster.running(service_accounts.ServiceAccountController, root_ca.RootCaPublisher):
        assert names(cluster, SERVICE_ACCOUNTS) == ["default"]
        assert cluster.get(CONFIG_MAPS, "kube-root-ca.crt", "lab")["data"] == {"ca.crt": "CA"}
        cluster.api.remove(SERVICE_ACCOUNTS, "default", "lab")
        spoiled = {**cluster.get(CONFIG_MAPS, "kube-root-ca.crt", "lab"), "data": {}}
        cluster.api.put(CONFIG_MAPS, spoiled)
        await asyncio.sleep(1)
        assert names(cluster, SERVICE_ACCOUNTS) == ["default"]
        assert cluster.get(CONFIG_MAPS, "kube-root-ca.crt", "lab")["data"] == {"ca.crt": "CA"}


async def test_a_dying_namespace_is_emptied_and_tells_what_holds_it(cluster: Cluster) -> None:
    cluster.api.put(NAMESPACES, namespace())
    cluster.api.put(CONFIG_MAPS, config_map("held", finalizers=["example.com/hold"]))
    cluster.api.put(SECRETS, {"metadata": {"name": "s", "namespace": "lab"}})
    async with cluster.running(namespaces.NamespaceController):
        await cluster.client.delete(NAMESPACES, "lab")
        await asyncio.sleep(2)
        assert names(cluster, SECRETS) == []
        found = {
            item["type"]: item["message"] for item in cluster.get(NAMESPACES, "lab")["status"]["conditions"]
        }
        assert found == {
            "NamespaceDeletionDiscoveryFailure": "All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure": "All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure": (
                "All content successfully deleted, may be waiting on finalization"
            ),
            "NamespaceContentRemaining": (
                "Some resources are remaining: configmaps. has 1 resource instances"
            ),
            "NamespaceFinalizersRemaining": (
                "Some content in the namespace has finalizers remaining: "
                "example.com/hold in 1 resource instances"
            ),
        }
        patch = {"metadata": {"finalizers": None}}
        await cluster.client.patch(CONFIG_MAPS, "held", patch, "lab", type="merge")
        await asyncio.sleep(15)
        assert cluster.api.get(NAMESPACES, "lab") is None


async def test_pods_go_before_what_they_may_read(cluster: Cluster) -> None:
    cluster.api.put(NAMESPACES, namespace())
    cluster.api.put(PODS, {"metadata": {"name": "p", "namespace": "lab", "finalizers": ["test/hold"]}})
    cluster.api.put(SECRETS, {"metadata": {"name": "s", "namespace": "lab"}})
    async with cluster.running(namespaces.NamespaceController):
        await cluster.client.delete(NAMESPACES, "lab")
        await asyncio.sleep(5)
        assert names(cluster, SECRETS) == ["s"]
        await cluster.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "lab", type="merge")
        await asyncio.sleep(15)
    assert names(cluster, SECRETS) == []


def test_failures_of_discovery_and_deletion_are_told() -> None:
    contents = Contents(
        deletion_errors=["no"], discovery_failures={"metrics.k8s.io/v1beta1": "stale GroupVersion discovery"}
    )
    found = {kind: (status, reason, message) for kind, status, reason, message in conditions(contents)}
    assert found["NamespaceDeletionDiscoveryFailure"] == (
        True,
        "DiscoveryFailed",
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
        "metrics.k8s.io/v1beta1: stale GroupVersion discovery",
    )
    assert found["NamespaceDeletionContentFailure"][:2] == (True, "ContentDeletionFailed")
    assert not contents.is_empty


async def test_dependents_go_after_their_owner_over_generations(cluster: Cluster) -> None:
    owner = cluster.api.put(CONFIG_MAPS, config_map("owner"))
    child = cluster.api.put(CONFIG_MAPS, config_map("child", owner))
    cluster.api.put(CONFIG_MAPS, config_map("grandchild", child))
    cluster.api.put(CONFIG_MAPS, config_map("other"))
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
        assert len(names(cluster)) == 4
        await cluster.client.delete(CONFIG_MAPS, "owner", "lab")
        await asyncio.sleep(3)
    assert names(cluster) == ["other"]


async def test_objects_whose_owner_never_was_are_collected(cluster: Cluster) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "no-such-uid"}}
    cluster.api.put(CONFIG_MAPS, config_map("child", ghost))
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
    assert names(cluster) == []


async def test_an_object_stays_as_long_as_one_owner_does(cluster: Cluster) -> None:
    first, second = (cluster.api.put(CONFIG_MAPS, config_map(name)) for name in ("first", "second"))
    both = config_map("child", first)
    both["metadata"]["ownerReferences"] += config_map("x", second)["metadata"]["ownerReferences"]
    cluster.api.put(CONFIG_MAPS, both)
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
        await cluster.client.delete(CONFIG_MAPS, "first", "lab")
        await asyncio.sleep(3)
    (reference,) = cluster.get(CONFIG_MAPS, "child", "lab")["metadata"]["ownerReferences"]
    assert reference["name"] == "second"


async def test_foreground_deletion_waits_for_blocking_dependents(cluster: Cluster) -> None:
    owner = cluster.api.put(CONFIG_MAPS, config_map("owner"))
    cluster.api.put(CONFIG_MAPS, config_map("child", owner, finalizers=["test/hold"]))
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
        await cluster.client.delete(CONFIG_MAPS, "owner", "lab", propagation_policy="Foreground")
        await asyncio.sleep(3)
        assert names(cluster) == ["child", "owner"]
        patch = {"metadata": {"finalizers": None}}
        await cluster.client.patch(CONFIG_MAPS, "child", patch, "lab", type="merge")
        await asyncio.sleep(3)
    assert names(cluster) == []


async def test_orphaned_dependents_lose_their_owner(cluster: Cluster) -> None:
    owner = cluster.api.put(CONFIG_MAPS, config_map("owner"))
    cluster.api.put(CONFIG_MAPS, config_map("child", owner))
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
        await cluster.client.delete(CONFIG_MAPS, "owner", "lab", propagation_policy="Orphan")
        await asyncio.sleep(3)
    assert names(cluster) == ["child"]
    assert "ownerReferences" not in cluster.get(CONFIG_MAPS, "child", "lab")["metadata"]


async def test_an_owner_in_another_namespace_is_no_owner(cluster: Cluster) -> None:
    owner = cluster.api.put(CONFIG_MAPS, config_map("owner", namespace="other"))
    cluster.api.put(CONFIG_MAPS, config_map("child", owner))
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
    assert names(cluster) == ["owner"]
    (event,) = cluster.api.list(EVENTS)
    uid = owner["metadata"]["uid"]
    assert (event["reason"], event["message"]) == (
        "OwnerRefInvalidNamespace",
        f'ownerRef [v1/ConfigMap, namespace: lab, name: owner, uid: {uid}] does not exist in namespace "lab"',
    )


async def test_a_server_that_claims_kinds_of_others_has_nothing_of_them_collected(cluster: Cluster) -> None:
    claimed = {"group": "apps", "version": "v1", "kind": "ReplicaSet"}
    widgets = {
        "resource": "widgets",
        "responseKind": claimed,
        "scope": "Namespaced",
        "verbs": ["get", "list"],
    }

    def aggregated(request: Request) -> Response | None:
        document = discovery.aggregated(request.path, built_in_resources())
        if document is None:
            return None
        if request.path == "/apis":
            versions = [{"version": "v1", "resources": [widgets], "freshness": "Current"}]
            document["items"].append({"metadata": {"name": "example.com"}, "versions": versions})
        return Response(200, {}, orjson.dumps(document))

    cluster.api.reactions.append(aggregated)
    owner = cluster.api.put(REPLICA_SETS, {"metadata": {"name": "web", "namespace": "lab"}})
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner["metadata"]["uid"],
    }
    cluster.api.put(PODS, {"metadata": {"name": "web-1", "namespace": "lab", "ownerReferences": [reference]}})
    # An owner that no watch has shown is asked for.
    late = StatusError(503, "ServiceUnavailable", "the list takes too long")
    cluster.api.reactions.append(lambda request: late if request.path == REPLICA_SETS.path() else None)
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(2 * garbage_collector.PATIENCE_SECONDS)
        assert names(cluster, PODS) == ["web-1"]
        assert any(request.path == REPLICA_SETS.path("lab", "web") for request in cluster.api.requests)


async def test_custom_kinds_are_collected_as_soon_as_they_are_served(cluster: Cluster) -> None:
    cluster.api = MemoryApi([WIDGETS])
    cluster.client = cluster.api.client()
    owner = cluster.api.put(WIDGETS, {"metadata": {"name": "w", "namespace": "lab"}})
    child = config_map("child", owner)
    child["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Widget"}
    cluster.api.put(CONFIG_MAPS, child)
    async with cluster.running(garbage_collector.GarbageCollector):
        await asyncio.sleep(3)
        assert names(cluster) == ["child"]
        await cluster.client.delete(WIDGETS, "w", "lab")
        await asyncio.sleep(3)
    assert names(cluster) == []


def test_the_graph_tells_what_to_look_at() -> None:
    graph = OwnershipGraph()
    owner = {"metadata": {"name": "o", "namespace": "lab", "uid": "o"}}
    child = {**config_map("c", owner)}
    child["metadata"]["uid"] = "c"
    assert graph.put(node_of(CONFIG_MAPS, child)) == ["c"]
    assert graph.put(node_of(CONFIG_MAPS, owner)) == []
    assert graph.put(node_of(CONFIG_MAPS, child)) == []
    assert [node.uid for node in graph.dependents("o")] == ["c"]
    dying = {
        "metadata": {**owner["metadata"], "deletionTimestamp": "x", "finalizers": ["foregroundDeletion"]}
    }
    assert graph.put(node_of(CONFIG_MAPS, dying)) == ["o", "c"]
    assert graph.remove("c") == ["o"]
    assert graph.remove("o") == []
    assert len(graph) == 0


async def test_quotas_are_counted_again_when_an_object_of_any_kind_goes(cluster: Cluster) -> None:
    hard = {"configmaps": "5", "count/secrets": "5"}
    cluster.api.put(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "lab"}, "spec": {"hard": hard}})
    for name in ("a", "b"):
        cluster.api.put(CONFIG_MAPS, config_map(name))

    def used() -> JsonObject:
        status: JsonObject = cluster.get(RESOURCE_QUOTAS, "q", "lab")["status"]["used"]
        return status

    async with cluster.running(resource_quotas.ResourceQuotaController, garbage_collector.GarbageCollector):
        assert used() == {"configmaps": "2", "count/secrets": "0"}
        await cluster.client.delete(CONFIG_MAPS, "a", "lab")
        await asyncio.sleep(1)
        assert used() == {"configmaps": "1", "count/secrets": "0"}


async def test_a_quota_that_admission_found_used_up_is_counted_again_soon(cluster: Cluster) -> None:
    hard = {"count/configmaps": "1"}
    made = {"metadata": {"name": "q", "namespace": "lab"}, "spec": {"hard": hard}}
    cluster.api.put(RESOURCE_QUOTAS, made)
    async with cluster.running(resource_quotas.ResourceQuotaController):
        quota = cluster.get(RESOURCE_QUOTAS, "q", "lab")
        cluster.api.put(RESOURCE_QUOTAS, {**quota, "status": {"hard": hard, "used": hard}})
        await asyncio.sleep(resource_quotas.COUNTED_AGAIN_SECONDS + 1)
        assert cluster.get(RESOURCE_QUOTAS, "q", "lab")["status"]["used"] == {"count/configmaps": "0"}
