"""What a node may write: itself, and the pods that are bound to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.admission import Cluster

from kindling.apiserver.admission.node_restriction import NodeRestriction, forbidden_labels
from kindling.apiserver.registry.context import UserInfo
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import LEASES, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICE_ACCOUNTS, ResourceType

NODE = UserInfo("system:node:one", groups=("system:nodes", "system:authenticated"))


def _pod(node: str = "one", **metadata: Any) -> JsonObject:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u1", **metadata}, "spec": {"nodeName": node}}


def _mirror(**owner: Any) -> JsonObject:
    reference = {"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "n1", "controller": True, **owner}
    return _pod(annotations={"kubernetes.io/config.mirror": "x"}, ownerReferences=[reference])


async def refusal(
    cluster: Cluster,
    resource: ResourceType,
    obj: JsonObject | None,
    *,
    user: UserInfo = NODE,
    subresource: str = "",
    **more: Any,
) -> str:
    """What the plugin says, without the words that go before; "" where it lets the request pass."""
    attributes = cluster.request(resource, obj, **more)
    attributes.ctx = replace(attributes.ctx, user=user, subresource=subresource)
    try:
        await NodeRestriction(cluster.objects).validate(attributes)
    except StatusError as error:
        assert error.code == 403
        return error.message.partition(" is forbidden: ")[2]
    return ""


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.objects.put(NODES, {"metadata": {"name": "one", "uid": "n1"}})
    made.objects.put(PODS, _pod())
    return made


async def test_others_than_nodes_pass(cluster: Cluster) -> None:
    ann = UserInfo("ann")
    assert await refusal(cluster, NODES, {"metadata": {"name": "two"}}, user=ann) == ""


async def test_a_node_writes_itself_alone(cluster: Cluster) -> None:
    assert await refusal(cluster, NODES, {"metadata": {"name": "one"}}) == ""
    said = await refusal(cluster, NODES, {"metadata": {"name": "two"}})
    assert said == 'node "one" is not allowed to modify node "two"'


async def test_a_node_changes_no_taints(cluster: Cluster) -> None:
    old = {"metadata": {"name": "one"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    new = {"metadata": {"name": "one"}, "spec": {}}
    said = await refusal(cluster, NODES, new, operation="UPDATE", old=old)
    assert said == 'node "one" is not allowed to modify taints'


async def test_a_node_takes_no_role(cluster: Cluster) -> None:
    labels = {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/os": "linux", "free": "x"}
    said = await refusal(cluster, NODES, {"metadata": {"name": "one", "labels": labels}})
    assert said == (
        'node "one" is not allowed to set the following labels: node-role.kubernetes.io/control-plane'
    )


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("anything", True),
        ("example.com/a", True),
        ("kubernetes.io/hostname", True),
        ("node.kubernetes.io/anything", True),
        ("sub.kubelet.kubernetes.io/anything", True),
        ("node-restriction.kubernetes.io/a", False),
        ("sub.node-restriction.kubernetes.io/a", False),
        ("kubernetes.io/other", False),
        ("team.k8s.io/other", False),
    ],
)
def test_labels_of_kubernetes_are_not_the_nodes_to_change(label: str, allowed: bool) -> None:
    assert forbidden_labels({label: "x"}, {}) == ([] if allowed else [label])
    assert forbidden_labels({}, {label: "x"}) == ([] if allowed else [label])
    assert forbidden_labels({label: "x"}, {label: "x"}) == []


async def test_pods_that_a_node_makes_are_mirrors_of_its_own(cluster: Cluster) -> None:
    assert await refusal(cluster, PODS, _mirror()) == ""
    said = await refusal(cluster, PODS, _pod())
    assert said == (
        'pod does not have "kubernetes.io/config.mirror" annotation, node "one" can only create mirror pods'
    )
    assert await refusal(cluster, PODS, _mirror(name="two")) == (
        'node "one" can only create pods with an owner reference set to itself'
    )
    assert await refusal(cluster, PODS, _mirror(uid="other")) == (
        "node one UID mismatch: expected other got n1"
    )
    curious = _mirror()
    curious["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
    assert await refusal(cluster, PODS, curious) == 'node "one" can not create pods that reference secrets'


async def test_pods_of_other_nodes_are_neither_deleted_nor_evicted_nor_reported(cluster: Cluster) -> None:
    theirs = _pod("two")
    cluster.objects.put(PODS, theirs)
    assert await refusal(cluster, PODS, None, operation="DELETE", old=_pod()) == ""
    assert await refusal(cluster, PODS, None, operation="DELETE", old=theirs) == (
        'node "one" can only delete pods with spec.nodeName set to itself'
    )
    assert await refusal(cluster, PODS, _pod(), subresource="eviction") == (
        "node one can only evict pods with spec.nodeName set to itself"
    )
    said = await refusal(cluster, PODS, theirs, operation="UPDATE", old=theirs, subresource="status")
    assert said == 'node "one" can only update pod status for pods with spec.nodeName set to itself'


async def test_labels_are_not_changed_by_way_of_a_pods_status(cluster: Cluster) -> None:
    new = _pod(labels={"app": "other"})
    said = await refusal(cluster, PODS, new, operation="UPDATE", old=_pod(), subresource="status")
    assert said == 'node "one" cannot update labels through pod status'


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (None, "node requested token not bound to a pod"),
        (
            {"apiVersion": "v1", "kind": "Pod", "name": "p"},
            "node requested token with a pod binding without a uid",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "old"},
            "the UID in the bound object reference (old) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        ),
        ({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}, ""),
    ],
)
async def test_tokens_are_for_pods_of_the_node(cluster: Cluster, reference: Any, said: str) -> None:
    request = {"metadata": {"name": "a"}, "spec": {"boundObjectRef": reference}}
    assert await refusal(cluster, SERVICE_ACCOUNTS, request, subresource="token") == said


async def test_of_a_claims_status_only_the_size_is_the_nodes(cluster: Cluster) -> None:
    old = {"metadata": {"name": "c"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    grown = {"metadata": {"name": "c"}, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    lost = {"metadata": {"name": "c"}, "status": {"phase": "Lost"}}
    common: Any = {"operation": "UPDATE", "old": old, "subresource": "status"}
    assert await refusal(cluster, PERSISTENT_VOLUME_CLAIMS, grown, **common) == ""
    assert "is not allowed to update fields" in await refusal(
        cluster, PERSISTENT_VOLUME_CLAIMS, lost, **common
    )


async def test_a_lease_is_made_under_the_nodes_own_name(cluster: Cluster) -> None:
    lease = {"metadata": {"name": "two", "namespace": "kube-node-lease"}}
    said = await refusal(cluster, LEASES, lease, namespace="kube-node-lease")
    assert said == "can only access node lease with the same name as the requesting node"
