"""Custom resource definitions, end to end in a server: served, converted, refreshed, cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.apiserver import running_server
from tests.support.waiting import until

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceType

WIDGETS = ResourceType("things.example.com", "v1", "widgets", "Widget")
WIDGETS_V2 = ResourceType("things.example.com", "v2", "widgets", "Widget")
SPEC: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string", "default": "A"}, "n": {"type": "integer", "maximum": 5}},
}


def schema(spec: JsonObject = SPEC) -> JsonObject:
    properties = {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"openAPIV3Schema": {"type": "object", "properties": properties}}


def crd(*versions: JsonObject) -> JsonObject:
    only = {"name": "v1", "served": True, "storage": True, "schema": schema(), "subresources": {"status": {}}}
    return {
        "metadata": {"name": "widgets.things.example.com"},
        "spec": {
            "group": "things.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"]},
            "versions": list(versions) or [only],
        },
    }


def widget(name: str, spec: JsonObject, version: str = "v1", **more: Any) -> JsonObject:
    """A custom resource as clients send it."""
    kind = {"apiVersion": f"things.example.com/{version}", "kind": "Widget"}
    return {**kind, "metadata": {"name": name, **more}, "spec": spec}


async def eventually(ask: Callable[[], Awaitable[Any]], done: Callable[[Any], bool]) -> Any:
    """Ask until the answer is right; errors of the API count as None."""
    answer: Any = None

    async def look() -> bool:
        nonlocal answer
        try:
            answer = await ask()
        except errors.StatusError:
            answer = None
        return done(answer)

    await until(look)
    return answer


async def established(client: Client, definition: JsonObject) -> JsonObject:
    """Create a definition and wait until its resources are served."""
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    name = meta.name(definition)
    found: JsonObject = await eventually(
        lambda: client.get(CUSTOM_RESOURCE_DEFINITIONS, name),
        lambda crd: crd is not None and meta.is_condition_true(crd, "Established"),
    )
    return found


@pytest.fixture
async def client(tmp_path: Path) -> Any:
    async with running_server(tmp_path) as running, running.client() as made:
        yield made


async def test_a_definition_is_established_and_its_objects_are_checked(client: Client) -> None:
    found = await established(client, crd())
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"]["listKind"] == "WidgetList"
    made = await client.create(WIDGETS, {**widget("a", {}), "status": {"x": 1}}, "default")
    assert made["spec"] == {"a": "A"}
    assert "status" not in made
    with pytest.raises(errors.StatusError) as caught:
        await client.create(WIDGETS, widget("b", {"n": 6}), "default")
    assert caught.value.message == (
        'Widget.things.example.com "b" is invalid: spec.n: Invalid value: 6: '
        "spec.n in body should be less than or equal to 5"
    )


async def test_the_status_is_written_apart(client: Client) -> None:
    await established(client, crd())
    await client.create(WIDGETS, widget("a", {}), "default")
    change = {"metadata": {"labels": {"l": "1"}}, "spec": {"a": "B"}, "status": {"x": 1}}
    changed = await client.patch(WIDGETS, "a", change, "default", type="merge", subresource="status")
    assert (changed["spec"], changed["status"]) == ({"a": "A"}, {"x": 1})
    assert "labels" not in changed["metadata"]


async def test_stored_objects_follow_a_changed_schema(client: Client) -> None:
    await established(client, crd())
    await client.create(WIDGETS, widget("a", {"n": 1}), "default")
    later = schema({"type": "object", "properties": {"late": {"type": "string", "default": "L"}}})
    versions = [{"name": "v1", "served": True, "storage": True, "schema": later}]
    change = {"spec": {"versions": versions}}
    await client.patch(CUSTOM_RESOURCE_DEFINITIONS, "widgets.things.example.com", change, type="merge")
    found = await eventually(
        lambda: client.get(WIDGETS, "a", "default"), lambda obj: obj is not None and "late" in obj["spec"]
    )
    assert found["spec"] == {"late": "L"}


async def test_versions_differ_in_what_they_show_and_keep(client: Client) -> None:
    wide = schema({"type": "object", "properties": {**SPEC["properties"], "b": {"type": "string"}}})
    first = {"name": "v1", "served": True, "storage": True, "schema": schema()}
    second = {"name": "v2", "served": True, "storage": False, "schema": wide}
    await established(client, crd(first, second))
    made = await client.create(WIDGETS_V2, widget("a", {"a": "x", "b": "lost"}, "v2"), "default")
    assert (made["apiVersion"], made["spec"]) == ("things.example.com/v2", {"a": "x"})
    found = await client.get(WIDGETS, "a", "default")
    assert (found["apiVersion"], found["spec"]) == ("things.example.com/v1", {"a": "x"})


async def test_a_definition_goes_after_its_objects(client: Client) -> None:
    await established(client, crd())
    held = widget("held", {}, finalizers=["example.com/hold"])
    await client.create(WIDGETS, held, "default")
    await client.create(WIDGETS, widget("free", {}), "default")
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.things.example.com")
    await eventually(lambda: client.get(WIDGETS, "free", "default"), lambda obj: obj is None)
    with pytest.raises(errors.StatusError, match="create not allowed while custom resource definition"):
        await client.create(WIDGETS, widget("new", {}), "default")
    await client.patch(WIDGETS, "held", {"metadata": {"finalizers": None}}, "default", type="merge")
    await eventually(
        lambda: client.get(CUSTOM_RESOURCE_DEFINITIONS, "widgets.things.example.com"), lambda obj: obj is None
    )


async def test_custom_resources_answer_in_words_of_their_own(client: Client) -> None:
    await established(client, crd())
    path = "/apis/things.example.com/v1/namespaces/default/widgets"
    headers = {"Content-Type": "application/json"}

    async def refused(method: str, path: str, body: JsonObject, **headers: str) -> errors.StatusError:
        with pytest.raises(errors.StatusError) as caught:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            await client.request(method, path, body=orjson.dumps(body), headers=sent)
        return caught.value

    made = await client.request(
        "POST", f"{path}/other", body=orjson.dumps(widget("named", {})), headers=headers
    )
    assert made.json()["metadata"]["name"] == "named"
    error = await refused("PATCH", f"{path}/named", {}, Content_Type="application/json")
    assert error.code == 415
    assert error.message.endswith("application/merge-patch+json, application/apply-patch+yaml")
    error = await refused("GET", path, {}, Accept="text/html")
    assert (error.code, error.message.partition(":")[0]) == (
        406,
        "only the following media types are accepted",
    )
    error = await refused("POST", path, {**widget("b", {}), "kind": "Other"}, Content_Type="application/json")
    assert error.message == (
        'Other.things.example.com "b" is invalid: kind: Invalid value: "Other": must be Widget'
    )


async def test_requests_for_a_deprecated_version_show_in_the_metrics(client: Client) -> None:
    old = {"name": "v1", "served": True, "storage": False, "deprecated": True, "schema": schema()}
    await established(client, crd(old, {"name": "v2", "served": True, "storage": True, "schema": schema()}))

    async def requested() -> list[str]:
        page = (await client.request("GET", "/metrics")).body.decode()
        return [line for line in page.splitlines() if line.startswith("apiserver_requested_deprecated_apis{")]

    await client.list(WIDGETS_V2, "default")
    assert await requested() == []
    await client.list(WIDGETS, "default")
    found = 'group="things.example.com",removed_release="",resource="widgets",subresource="",version="v1"'
    assert await requested() == [f"apiserver_requested_deprecated_apis{{{found}}} 1.0"]
