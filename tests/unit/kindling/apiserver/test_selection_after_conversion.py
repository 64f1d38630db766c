"""Field selectors on objects that are stored in another version than the one they are asked for in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import WIDGETS, generic_definition, running_server, sample_definitions

from kindling.apiserver.registry.definition import Strategy
from kubecore.client import Client, WatchEvent
from kubecore.json import JsonObject

STORED = "example.com/v0"


class _HostAndPort:
    """v0 keeps in one text what v1 has in two fields."""

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        converted = []
        for obj in objects:
            done = {**obj, "apiVersion": api_version}
            if api_version == STORED and "host" in done:
                done["hostPort"] = f"{done.pop('host')}:{done.pop('port')}"
            elif api_version != STORED and "hostPort" in done:
                done["host"], _, done["port"] = done.pop("hostPort").partition(":")
            converted.append(done)
        return converted


class _Selecting(Strategy):
    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        return {"host": obj.get("host", ""), "port": obj.get("port", "")}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    widgets = generic_definition(
        WIDGETS,
        custom=True,
        strategy=_Selecting(),
        storage_version=STORED,
        converter=_HostAndPort(),
        field_labels=("host", "port"),
    )
    others = [each for each in sample_definitions() if each.resource != WIDGETS]
    async with running_server(tmp_path, [*others, widgets]) as running, running.client() as found:
        for name, host, port in (("a", "one", "80"), ("b", "one", "8080"), ("c", "two", "80")):
            made = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
            await found.create(WIDGETS, {**made, "host": host, "port": port}, "default")
        yield found


def names(listing: JsonObject) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


def _watch(client: Client, **options: Any) -> AsyncGenerator[WatchEvent, None]:
    watching = client.watch(WIDGETS, "default", **options)
    assert isinstance(watching, AsyncGenerator)  # so that it can be closed
    return watching


async def test_lists_select_by_the_fields_of_the_version_that_is_asked_for(client: Client) -> None:
    assert names(await client.list(WIDGETS, "default", field_selector="host=one")) == ["a", "b"]
    assert names(await client.list(WIDGETS, "default", field_selector="host=one,port=80")) == ["a"]


async def test_collections_are_deleted_by_the_same_fields(client: Client) -> None:
    await client.delete_collection(WIDGETS, "default", field_selector="host=one")

    assert names(await client.list(WIDGETS, "default")) == ["c"]


async def test_watches_tell_what_comes_into_and_goes_out_of_selection(client: Client) -> None:
    watching = _watch(client, field_selector="host=one")
    seen = [await anext(watching) for _ in range(2)]
    moved = await client.get(WIDGETS, "c", "default")
    await client.update(WIDGETS, {**moved, "host": "one"})
    left = await client.get(WIDGETS, "a", "default")
    await client.update(WIDGETS, {**left, "host": "two"})
    await client.delete(WIDGETS, "b", "default")
    seen += [await anext(watching) for _ in range(3)]
    await watching.aclose()

    assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]
    assert [event.object["host"] for event in seen[2:]] == ["one"] * 3


async def test_a_watch_that_resumes_selects_what_happened_meanwhile(client: Client) -> None:
    listed = await client.list(WIDGETS, "default")
    obj = await client.get(WIDGETS, "a", "default")
    await client.update(WIDGETS, {**obj, "host": "two"})
    version = listed["metadata"]["resourceVersion"]
    watching = _watch(client, field_selector="host=one", resource_version=version)
    event = await anext(watching)
    await watching.aclose()

    assert (event.type, event.object["metadata"]["name"]) == ("DELETED", "a")
