"""The official Python client without classes: dynamic calls, discovery, server-side apply, validation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic
from kubernetes.dynamic import exceptions as dynamic_exceptions
from tests.clients.live import Document, LiveCluster, wait_for

GROUP = "python.example"


@pytest.fixture
def typeless(cluster: LiveCluster, tmp_path: Path) -> Iterator[Any]:
    """The dynamic client, with a discovery cache of its own."""
    configuration = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as made:
        yield dynamic.DynamicClient(made, cache_file=str(tmp_path / "discovery.json"))


def definition(plural: str, kind: str) -> Document:
    """A CustomResourceDefinition of a kind with a size."""
    spec = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}}
    parts = {
        "type": "object",
        "properties": {
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                },
            }
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": parts}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


@pytest.fixture
def cogs(typeless: Any) -> Iterator[Any]:
    """A kind of its own."""
    definitions = typeless.resources.get(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
    )
    definitions.create(body=definition("cogs", "Cog"))

    def established() -> bool:
        status = definitions.get(name=f"cogs.{GROUP}").to_dict().get("status") or {}
        conditions = {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}
        return conditions.get("Established") == "True"

    wait_for("the definition is established", established)
    typeless.resources.invalidate_cache()
    yield typeless.resources.get(api_version=f"{GROUP}/v1", kind="Cog")
    definitions.delete(name=f"cogs.{GROUP}")

    def gone() -> bool:
        return not definitions.get(field_selector=f"metadata.name=cogs.{GROUP}").items

    wait_for("the definition is gone", gone)


def test_custom_resources_without_classes(cogs: Any, namespace: str) -> None:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Cog", "metadata": {"name": "c"}, "spec": {"size": 1}}
    made = cogs.create(body=body, namespace=namespace)
    assert (made.spec.size, made.metadata.generation) == (1, 1)
    with pytest.raises(dynamic_exceptions.ConflictError):
        cogs.create(body=body, namespace=namespace)
    changed = cogs.patch(
        body={"spec": {"size": 2}}, name="c", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert (changed.spec.size, changed.metadata.generation) == (2, 2)
    with pytest.raises(dynamic_exceptions.UnprocessibleEntityError, match="less than or equal to 9"):
        cogs.patch(
            body={"spec": {"size": 10}},
            name="c",
            namespace=namespace,
            content_type="application/merge-patch+json",
        )
    status = {**changed.to_dict(), "status": {"parts": [{"name": "tooth", "count": 12}]}}
    assert cogs.status.replace(body=status, name="c", namespace=namespace).status.parts[0].count == 12
    assert [item.metadata.name for item in cogs.get(namespace=namespace).items] == ["c"]
    events = [event["type"] for event in cogs.watch(namespace=namespace, timeout=1)]
    assert events == ["ADDED"]
    cogs.delete(name="c", namespace=namespace)
    with pytest.raises(dynamic_exceptions.NotFoundError):
        cogs.get(name="c", namespace=namespace)


def test_server_side_apply_merges_lists_of_custom_resources(cogs: Any, namespace: str) -> None:
    def apply(manager: str, **counts: int) -> Any:
        parts = [{"name": name, "count": count} for name, count in counts.items()]
        meta = {"name": "c", "namespace": namespace}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Cog", "metadata": meta, "status": {"parts": parts}}
        return cogs.status.server_side_apply(body=body, name="c", namespace=namespace, field_manager=manager)

    cogs.server_side_apply(
        body={"apiVersion": f"{GROUP}/v1", "kind": "Cog", "metadata": {"name": "c"}, "spec": {"size": 1}},
        name="c",
        namespace=namespace,
        field_manager="one",
    )
    apply("one", tooth=12)
    found = apply("two", hub=1)
    assert [(part.name, part.count) for part in found.status.parts] == [("tooth", 12), ("hub", 1)]
    with pytest.raises(dynamic_exceptions.ConflictError, match="conflict with"):
        apply("two", tooth=13)


def test_discovery_searches_by_names_and_categories(typeless: Any, cogs: Any) -> None:
    found, listed = typeless.resources.search(short_names=["deploy"])
    assert listed.kind == "DeploymentList"
    assert (found.group_version, found.kind, "scale" in found.subresources) == ("apps/v1", "Deployment", True)
    assert typeless.resources.get(kind="Cog").group == GROUP
    assert typeless.version["kubernetes"]["minor"] == "36"


def test_the_dynamic_client_validates_objects(typeless: Any) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": "none"}}
    (problem,) = list(typeless.validate(pod, version="1.36")[1])
    assert "none" in str(problem)
