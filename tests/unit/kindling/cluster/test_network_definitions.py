"""The kinds of secondary networks, and who may write them, on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import running_server

from kindling.cluster.network_definitions import create, definitions
from kindling.node.networks.claims import CLAIMS
from kindling.node.networks.definitions import DEFINITIONS
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.objects import meta
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, ResourceType

REVIEWS = ResourceType("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)


def network(config: str) -> dict[str, Any]:
    metadata = {"name": "lan", "namespace": "default"}
    return {"apiVersion": DEFINITIONS.api_version, "kind": DEFINITIONS.kind, "metadata": metadata,
            "spec": {"config": config}}  # fmt: skip


async def allows(client: Client, verb: str, resource: ResourceType, **who: Any) -> bool:
    plural, _, subresource = resource.plural.partition("/")
    attributes = {"group": resource.group, "resource": plural, "subresource": subresource, "verb": verb,
                  "namespace": "default", "name": "lan"}  # fmt: skip
    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {},
              "spec": {**who, "resourceAttributes": attributes}}  # fmt: skip
    return bool((await client.create(REVIEWS, review))["status"]["allowed"])


async def test_the_kinds_are_served_and_made_once(tmp_path: Path) -> None:
    async with running_server(tmp_path) as running, running.client() as client:
        await create(client)
        made = await client.create(DEFINITIONS, network('{"type": "bridge"}'), "default")
        assert made["spec"] == {"config": '{"type": "bridge"}'}
        name = f"{DEFINITIONS.plural}.{DEFINITIONS.group}"
        changed = {"metadata": {"labels": {"somebody": "elses"}}}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, changed, type="merge")
        await create(client)
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert meta.labels(found) == {"somebody": "elses"}
        assert found["status"]["acceptedNames"]["shortNames"] == ["nad", "net-attach-def"]
        with pytest.raises(StatusError, match=r"spec\.config"):
            await client.patch(DEFINITIONS, "lan", {"spec": {"config": 5}}, "default", type="merge")


async def test_claims_hold_addresses_in_their_status(tmp_path: Path) -> None:
    async with running_server(tmp_path) as running, running.client() as client:
        await create(client)
        claim = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind,
                 "metadata": {"name": "c", "namespace": "default"},
                 "spec": {"network": "lan", "interface": "net1"}}  # fmt: skip
        await client.create(CLAIMS, claim, "default")
        status = {"status": {"ips": ["10.9.0.2/24"], "ownerPod": "p"}}
        made = await client.patch(CLAIMS, "c", status, "default", type="merge", subresource="status")
        assert made["status"] == status["status"]
        wrong = {"status": {"ips": ["10.9.0.2"], "ownerPod": "p"}}
        with pytest.raises(StatusError, match="CIDR is invalid"):
            await client.patch(CLAIMS, "c", wrong, "default", type="merge", subresource="status")
        with pytest.raises(StatusError, match="Network is immutable"):
            await client.patch(CLAIMS, "c", {"spec": {"network": "x"}}, "default", type="merge")


async def test_only_administrators_define_networks_and_nodes_read_them(tmp_path: Path) -> None:
    """What a definition says is done by root on the nodes."""
    node = {"user": "system:node:node01", "groups": ["system:nodes", "system:authenticated"]}
    status = ResourceType(CLAIMS.group, CLAIMS.version, "ipamclaims/status", CLAIMS.kind)
    async with running_server(tmp_path) as running, running.client() as client:
        for role in ("admin", "edit"):
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": role, "namespace": "default"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
            }
            bindings = ResourceType("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
            await client.create(bindings, binding, "default")
            assert not await allows(client, "create", DEFINITIONS, user=role)
            assert not await allows(client, "patch", DEFINITIONS, user=role)
        assert await allows(client, "get", DEFINITIONS, **node)
        assert not await allows(client, "create", DEFINITIONS, **node)
        assert not await allows(client, "list", DEFINITIONS, **node)
        assert await allows(client, "patch", status, **node)
        assert not await allows(client, "patch", CLAIMS, **node)
        assert await client.get(NAMESPACES, "default")


def test_definitions_have_the_names_that_others_look_for() -> None:
    assert [meta.name(item) for item in definitions()] == [
        "network-attachment-definitions.k8s.cni.cncf.io",
        "ipamclaims.k8s.cni.cncf.io",
    ]
