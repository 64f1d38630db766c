"""kr8s, in both its forms: objects with methods over httpx."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import kr8s
import kr8s.asyncio
import pytest
from kr8s import objects
from kr8s._async_utils import as_sync_func
from kr8s.asyncio import objects as async_objects
from tests.clients.live import ADMINISTRATOR, NODE, Document, LiveCluster

pytestmark = [
    # This kr8s knows Kubernetes up to 1.35, and says so.
    pytest.mark.filterwarnings("ignore:Kubernetes version v1.36:UserWarning"),
    # It leaves connections of watches that one stopped following to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

GROUP = "kr8s.example"


@pytest.fixture(scope="module", autouse=True)
def _abandoned_connections() -> Iterator[None]:
    """Collects what is left before other tests are blamed for it."""
    yield
    gc.collect()
    as_sync_func(asyncio.sleep)(0.3)  # closing takes turns of the loop that it keeps in a thread
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def api(cluster: LiveCluster, namespace: str) -> Iterator[Any]:
    """The sync client in a namespace."""
    made = kr8s.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    yield made
    assert made._session is not None
    as_sync_func(made._session.aclose)()  # kr8s itself never closes its connections


@pytest.fixture
async def async_api(cluster: LiveCluster, namespace: str) -> AsyncIterator[Any]:
    """The async client in a namespace."""
    made = await kr8s.asyncio.api(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    yield made
    assert made._session is not None
    await made._session.aclose()
    await asyncio.sleep(0.1)  # closing takes turns of the loop


def settings(name: str, **data: str) -> Document:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def web() -> Document:
    """A Deployment."""
    container = {"name": "web", "image": "registry.example/web:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def test_objects_are_created_read_changed_and_deleted(api: Any) -> None:
    made = objects.ConfigMap(settings("a", k="v"), api=api)
    assert not made.exists()
    made.create()
    assert made.exists()
    assert objects.ConfigMap.get("a", api=api).data == {"k": "v"}
    made.patch({"data": {"k": "w"}})
    assert made.data == {"k": "w"}
    made.patch([{"op": "add", "path": "/data/l", "value": "x"}], type="json")
    assert made.data == {"k": "w", "l": "x"}
    made.label(app="y")
    made.annotate(note="z")
    assert (made.labels, made.annotations) == ({"app": "y"}, {"note": "z"})
    made.remove_label("app")
    assert made.labels == {}
    made.delete()
    made.wait("delete", timeout=10)
    with pytest.raises(kr8s.NotFoundError):
        made.refresh()


def test_lists_are_selected_and_paged(api: Any) -> None:
    made = []
    for number in range(5):
        document = settings(f"n{number}")
        document["metadata"]["labels"] = {"odd": str(number % 2)}
        made.append(objects.ConfigMap(document, api=api))
    api.create(made)
    names = [item.name for item in api.get("configmaps", label_selector={"odd": "1"})]
    assert names == ["n1", "n3"]
    assert [item.name for item in api.get("cm", field_selector="metadata.name=n4")] == ["n4"]
    assert [item.name for item in api.get("configmaps", "n0")] == ["n0"]
    everywhere = [item.name for item in api.get("nodes")]
    assert NODE in everywhere


def test_deployments_scale_and_wait(api: Any) -> None:
    made = objects.Deployment(web(), api=api)
    made.create()
    made.wait("condition=Available", timeout=30)
    made.scale(2)
    made.wait("jsonpath='{.status.readyReplicas}'=2", timeout=30)
    assert made.replicas == 2
    pods = made.pods()
    assert [pod.ready() for pod in pods] == [True, True]
    made.delete(propagation_policy="Foreground")
    made.wait("delete", timeout=30)


def test_owners_and_nodes(api: Any) -> None:
    owner = objects.ConfigMap(settings("owner"), api=api)
    owned = objects.ConfigMap(settings("owned"), api=api)
    api.create([owner, owned])
    owned.set_owner(owner)
    assert owned.metadata.ownerReferences[0].uid == owner.metadata.uid
    owner.delete()
    owned.wait("delete", timeout=20)
    node = objects.Node.get(NODE, api=api)
    node.cordon()
    assert objects.Node.get(NODE, api=api).unschedulable
    node.uncordon()


def test_a_watch_yields_what_happens(api: Any) -> None:
    objects.ConfigMap(settings("a"), api=api).create()

    def change() -> None:
        objects.ConfigMap.get("a", api=api).label(x="y")

    seen = []
    for kind, item in api.watch("configmaps", field_selector="metadata.name=a"):
        seen.append((kind, dict(item.labels)))
        if len(seen) == 2:
            break
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
    assert seen == [("ADDED", {}), ("MODIFIED", {"x": "y"})]


def test_server_facts(api: Any) -> None:
    assert api.version()["minor"] == "36"
    assert api.whoami() == ADMINISTRATOR
    kinds = {resource["name"]: resource for resource in api.api_resources()}
    assert kinds["deployments"]["shortNames"] == ["deploy"]
    assert {"v1", "apps/v1"} <= set(api.api_versions())
    assert api.lookup_kind("deploy") == ("deployment.apps/v1", "deployments", True)


@pytest.fixture
def gears(api: Any) -> Iterator[Any]:
    """A kind of its own, known by its definition and then by a class."""
    spec = {"type": "object", "properties": {"teeth": {"type": "integer", "default": 8}}}
    status = {"type": "object", "properties": {"teeth": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.teeth", "statusReplicasPath": ".status.teeth"},
        },
    }
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gears.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "gears", "kind": "Gear"},
            "versions": [version],
        },
    }
    definition = objects.CustomResourceDefinition(document, api=api)
    definition.create()
    # A definition has no conditions at first (`null`, as of a real server), which kr8s cannot wait on.
    next(seen for _, seen in definition.watch() if seen.raw["status"].get("conditions"))
    definition.wait("condition=Established", timeout=20)
    yield objects.new_class("Gear", f"{GROUP}/v1", asyncio=False, scalable=True, scalable_spec="teeth")
    definition.delete()
    definition.wait("delete", timeout=20)


def test_a_class_for_a_custom_resource(api: Any, gears: Any) -> None:
    gear = gears({"metadata": {"name": "g"}, "spec": {}}, api=api)
    gear.create()
    assert gear.spec.teeth == 8
    gear.scale(12)
    assert gear.spec.teeth == 12
    gear.patch({"status": {"teeth": 12}}, subresource="status")
    gear.wait("jsonpath='{.status.teeth}'=12", timeout=10)
    assert [item.name for item in api.get("gears")] == ["g"]
    assert [item.name for item in gears.list(api=api)] == ["g"]


# The async form.


async def test_async_objects_from_creation_to_deletion(async_api: Any) -> None:
    made = await async_objects.ConfigMap(settings("a", k="v"), api=async_api)
    await made.create()
    await made.patch({"data": {"k": "w"}})
    assert (await async_objects.ConfigMap.get("a", api=async_api)).data == {"k": "w"}
    await made.label(app="y")
    assert [item.name async for item in async_api.get("configmaps", label_selector="app=y")] == ["a"]
    await made.delete()
    await made.wait("delete", timeout=10)
    assert not await made.exists()


async def test_async_watches_run_beside_each_other(async_api: Any) -> None:
    seen: dict[str, asyncio.Queue[str]] = {f"n{number}": asyncio.Queue() for number in range(4)}

    async def follow(name: str) -> None:
        watch = async_api.watch("configmaps", field_selector=f"metadata.name={name}")
        async with contextlib.aclosing(watch):
            async for kind, _ in watch:
                seen[name].put_nowait(kind)
                if kind == "DELETED":
                    break

    async def live(name: str) -> None:
        made = await async_objects.ConfigMap(settings(name), api=async_api)
        # A watch that begins later than a change does not tell it.
        await made.create()
        assert await seen[name].get() == "ADDED"
        await made.label(x="y")
        assert await seen[name].get() == "MODIFIED"
        await made.delete()
        assert await seen[name].get() == "DELETED"

    async with asyncio.timeout(30):
        await asyncio.gather(*(follow(name) for name in seen), *(live(name) for name in seen))
    assert all(queue.empty() for queue in seen.values())


async def test_async_deployments_become_available(async_api: Any) -> None:
    made = await async_objects.Deployment(web(), api=async_api)
    await made.create()
    await made.wait("condition=Available", timeout=30)
    pods = await made.pods()
    assert [await pod.ready() for pod in pods] == [True]
    await made.delete()
