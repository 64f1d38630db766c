"""Published OpenAPI documents follow the definitions: what clients wait for after they change one."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.apiserver import ADMIN_TOKEN, running_server

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS

from .test_served_resources import established, eventually

FOO: JsonObject = {
    "description": "Foo CRD for tests",
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "enum": ["a", "b"], "pattern": "a|b"}},
        }
    },
}
WALDO: JsonObject = {"type": "object", "properties": {"status": {"type": "object"}}}
_ADDED = ("apiVersion", "kind", "metadata")

Ask = Callable[..., Awaitable[tuple[str, JsonObject]]]


def crd(kind: str, schema: JsonObject, *versions: str, group: str = "one.example.com") -> JsonObject:
    plural = f"{kind.lower()}s"
    listed = [
        {"name": name, "served": True, "storage": not index, "schema": {"openAPIV3Schema": schema}}
        for index, name in enumerate(versions)
    ]
    names = {"plural": plural, "kind": kind}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": listed}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def own(document: JsonObject, name: str) -> JsonObject | None:
    """The published definition without what every object has; None if it is not there."""
    found = document["definitions"].get(name)
    if found is None:
        return None
    fields = {key: value for key, value in found.get("properties", {}).items() if key not in _ADDED}
    rest = {key: value for key, value in found.items() if not key.startswith("x-") and key != "properties"}
    return {**rest, **({"properties": fields} if fields else {})}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Client, Ask]]:
    """A client, and a way to ask for a document: its ETag and content."""
    async with running_server(tmp_path) as running, running.client() as client:
        trust = ssl.create_default_context(cadata=running.ca_data.decode())
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with aiohttp.ClientSession(running.url, headers=headers) as session:

            async def ask(path: str = "/openapi/v2", **headers: str) -> tuple[str, JsonObject]:
                async with session.get(path, ssl=trust, headers=headers) as answer:
                    return answer.headers["ETag"], await answer.json() if answer.status == 200 else {}

            yield client, ask


async def published(ask: Ask, done: Callable[[JsonObject], bool]) -> tuple[str, JsonObject]:
    """The document once it is as it should be."""
    found: tuple[str, JsonObject] = await eventually(ask, lambda answer: done(answer[1]))
    return found


async def test_definitions_of_several_groups_versions_and_kinds_are_published(
    cluster: tuple[Client, Ask],
) -> None:
    client, ask = cluster
    await established(client, crd("Foo", FOO, "v2", "v3"))
    await established(client, crd("Waldo", WALDO, "v2"))
    await established(client, crd("Waldo", WALDO, "v1beta1", group="two.example.com"))

    _, document = await ask()

    assert own(document, "com.example.one.v2.Foo") == own(document, "com.example.one.v3.Foo") == FOO
    assert (
        own(document, "com.example.one.v2.Waldo") == own(document, "com.example.two.v1beta1.Waldo") == WALDO
    )


async def test_renamed_and_removed_versions_show_at_once(cluster: tuple[Client, Ask]) -> None:
    client, ask = cluster
    found = await established(client, crd("Foo", FOO, "v2", "v3"))
    before, _ = await ask()
    rename = [{"op": "replace", "path": "/spec/versions/1/name", "value": "v4"}]
    await client.patch(CUSTOM_RESOURCE_DEFINITIONS, meta.name(found), rename, type="json")

    renamed, document = await published(ask, lambda doc: "com.example.one.v4.Foo" in doc["definitions"])

    assert own(document, "com.example.one.v3.Foo") is None
    assert own(document, "com.example.one.v2.Foo") == own(document, "com.example.one.v4.Foo") == FOO
    unserve = [{"op": "replace", "path": "/spec/versions/1/served", "value": False}]
    await client.patch(CUSTOM_RESOURCE_DEFINITIONS, meta.name(found), unserve, type="json")
    removed, _ = await published(ask, lambda doc: "com.example.one.v4.Foo" not in doc["definitions"])
    assert len({before, renamed, removed}) == 3
    assert (await ask(**{"If-None-Match": removed}))[1] == {}
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, meta.name(found))
    await published(ask, lambda doc: "com.example.one.v2.Foo" not in doc["definitions"])


async def test_a_changed_schema_changes_document_and_hash_of_its_version(
    cluster: tuple[Client, Ask],
) -> None:
    client, ask = cluster
    found = await established(client, crd("Foo", FOO, "v1"))
    path = "/openapi/v3/apis/one.example.com/v1"
    before, _ = await ask(path)
    change: list[Any] = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": WALDO}]
    await client.patch(CUSTOM_RESOURCE_DEFINITIONS, meta.name(found), change, type="json")

    after, document = await eventually(lambda: ask(path), lambda answer: answer[0] != before)

    assert "status" in document["components"]["schemas"]["com.example.one.v1.Foo"]["properties"]
    assert (await ask(path, **{"If-None-Match": after}))[1] == {}
