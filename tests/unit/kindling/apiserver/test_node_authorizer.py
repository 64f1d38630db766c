"""What nodes may do: look after themselves, and read what their pods refer to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kindling.apiserver.auth.node_authorizer import NodeAuthorizer, node_of
from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kubecore.resources import ResourceType

NODE = UserInfo("system:node:one", groups=("system:nodes", "system:authenticated"))
STRANGER = "no relationship found between node 'one' and this object"


class Objects:
    """An ObjectReader over a few documents."""

    def __init__(self, **by_plural: list[dict[str, Any]]) -> None:
        self._by_plural = by_plural

    def list(self, resource: ResourceType, namespace: str | None = None) -> Sequence[dict[str, Any]]:
        found = self._by_plural.get(resource.plural, [])
        return [o for o in found if namespace is None or o["metadata"].get("namespace") == namespace]

    def get(self, resource: ResourceType, namespace: str | None, name: str) -> dict[str, Any] | None:
        return next((o for o in self.list(resource, namespace) if o["metadata"]["name"] == name), None)

    def exists(self, resource: ResourceType, namespace: str | None, name: str) -> bool:
        return self.get(resource, namespace, name) is not None


def _pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": node, **spec}}


VOLUMES = [
    {"name": "a", "secret": {"secretName": "in-volume"}},
    {
        "name": "b",
        "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "map"}}]},
    },
    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
    {"name": "d", "configMap": {"name": "files"}},
]
CONTAINERS = [
    {
        "name": "main",
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "in-variable", "key": "k"}}}],
        "envFrom": [{"configMapRef": {"name": "all-variables"}}],
    }
]
OBJECTS = Objects(
    pods=[
        _pod(
            "mine",
            "one",
            volumes=VOLUMES,
            containers=CONTAINERS,
            imagePullSecrets=[{"name": "login"}],
            serviceAccountName="account",
        ),
        _pod("theirs", "two", volumes=[{"name": "a", "secret": {"secretName": "their-secret"}}]),
        {
            "metadata": {
                "name": "mirror",
                "namespace": "ns",
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            },
            "spec": {"nodeName": "one", "volumes": [{"name": "a", "secret": {"secretName": "wished-for"}}]},
        },
    ],
    persistentvolumes=[
        {
            "metadata": {"name": "volume"},
            "spec": {
                "claimRef": {"namespace": "ns", "name": "claim"},
                "csi": {"nodeStageSecretRef": {"namespace": "drivers", "name": "stage"}},
            },
        },
        {"metadata": {"name": "unused"}, "spec": {"claimRef": {"namespace": "ns", "name": "other"}}},
    ],
    volumeattachments=[
        {"metadata": {"name": "here"}, "spec": {"nodeName": "one"}},
        {"metadata": {"name": "there"}, "spec": {"nodeName": "two"}},
    ],
)


def ask(verb: str, resource: str, name: str = "", namespace: str = "", **more: Any) -> tuple[bool, str]:
    query = AuthorizationQuery(NODE, verb, resource=resource, name=name, namespace=namespace, **more)
    return NodeAuthorizer(OBJECTS).authorize(query)


@pytest.mark.parametrize("name", ["in-volume", "projected", "in-variable", "login"])
def test_a_node_reads_the_secrets_of_its_pods(name: str) -> None:
    assert ask("get", "secrets", name, "ns") == (True, "")
    assert ask("watch", "secrets", name, "ns") == (True, "")


@pytest.mark.parametrize("name", ["their-secret", "wished-for", "unknown"])
def test_a_node_reads_no_other_secret(name: str) -> None:
    assert ask("get", "secrets", name, "ns") == (False, STRANGER)


def test_a_node_lists_no_secrets_and_writes_none() -> None:
    assert ask("list", "secrets", namespace="ns") == (False, "No Object name found")
    assert ask("list", "secrets") == (False, "can only read namespaced object of this type")
    assert ask("update", "secrets", "in-volume", "ns") == (False, "can only read resources of this type")


def test_a_volume_in_use_brings_its_claim_and_its_drivers_secret() -> None:
    assert ask("get", "persistentvolumeclaims", "claim", "ns")[0]
    assert ask("get", "persistentvolumeclaims", "mine-scratch", "ns")[0]
    assert ask("patch", "persistentvolumeclaims", "claim", "ns", subresource="status")[0]
    assert ask("get", "persistentvolumes", "volume")[0]
    assert ask("get", "secrets", "stage", "drivers")[0]
    assert ask("get", "persistentvolumes", "unused") == (False, STRANGER)
    assert ask("list", "persistentvolumes") == (False, "can only get individual resources of this type")


def test_config_maps_and_accounts_follow_the_pods() -> None:
    assert ask("get", "configmaps", "map", "ns")[0]
    assert ask("get", "configmaps", "files", "ns")[0]
    assert ask("get", "configmaps", "all-variables", "ns")[0]
    assert ask("create", "serviceaccounts", "account", "ns", subresource="token")[0]
    assert ask("create", "serviceaccounts", "default", "ns", subresource="token") == (False, STRANGER)
    refusal = (False, "can only create tokens for individual service accounts")
    assert ask("get", "serviceaccounts", "account", "ns") == refusal


def test_attachments_are_read_by_the_node_they_are_for() -> None:
    assert ask("get", "volumeattachments", "here", group="storage.k8s.io")[0]
    assert ask("get", "volumeattachments", "there", group="storage.k8s.io") == (False, STRANGER)


def test_pods_are_listed_by_the_nodes_own_name_only() -> None:
    assert ask("list", "pods", field_selector="spec.nodeName=one") == (True, "")
    refusal = (False, "can only list/watch pods with spec.nodeName field selector")
    assert ask("list", "pods") == refusal
    assert ask("watch", "pods", field_selector="spec.nodeName=two") == refusal
    assert ask("watch", "pods", field_selector="spec.nodeName!=one") == refusal
    assert ask("get", "pods", "mine", "ns")[0]
    assert ask("get", "pods", "theirs", "ns") == (False, STRANGER)
    assert ask("patch", "pods", "mine", "ns", subresource="status")[0]
    assert not ask("create", "pods", "mine", "ns", subresource="exec")[0]


def test_a_node_reads_itself_alone() -> None:
    assert ask("get", "nodes", "one")[0]
    assert ask("list", "nodes") == (False, "node 'one' cannot read all nodes, only its own Node object")
    assert ask("get", "nodes", "two") == (
        False,
        "node 'one' cannot read 'two', only its own Node object",
    )


def test_leases_and_driver_lists_are_the_nodes_own() -> None:
    lease: Any = {"group": "coordination.k8s.io", "namespace": "kube-node-lease"}
    assert ask("update", "leases", "one", **lease)[0]
    assert ask("update", "leases", "two", **lease) == (
        False,
        "can only access node lease with the same name as the requesting node",
    )
    assert ask("get", "leases", "one", "ns", group="coordination.k8s.io") == (
        False,
        'can only access leases in the "kube-node-lease" system namespace',
    )
    assert ask("get", "csinodes", "one", group="storage.k8s.io")[0]
    assert not ask("get", "csinodes", "two", group="storage.k8s.io")[0]


def test_what_is_not_divided_goes_by_the_role_of_nodes() -> None:
    assert ask("list", "services")[0]
    assert ask("create", "events", namespace="ns")[0]
    assert not ask("delete", "services", "x", "ns")[0]


@pytest.mark.parametrize(
    ("user", "node"),
    [
        (NODE, "one"),
        (UserInfo("system:node:", groups=("system:nodes",)), ""),
        (UserInfo("system:node:one", groups=("crew",)), None),
        (UserInfo("ann", groups=("system:nodes",)), None),
    ],
)
def test_a_node_is_known_by_name_and_group_together(user: UserInfo, node: str | None) -> None:
    assert node_of(user) == node
