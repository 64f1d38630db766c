"""What strict decoding says about unknown and repeated fields, in JSON and YAML."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server

from kindling.apiserver.registry import yaml_text
from kindling.apiserver.registry.repeated_fields import in_order

POD = """apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  odd: 1
  hostNetwork: false
  hostNetwork: true
  containers:
  - {name: c, image: i, image: j}
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running_server(tmp_path) as running:
        yield running


async def send(
    server: RunningServer, method: str, path: str, body: str, content_type: str
) -> tuple[str, list[str]]:
    """(message of the answer, texts of its warnings)."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.url + path, data=body, headers=headers, ssl=False) as answer,
    ):
        document = await answer.json()
        return document.get("message", ""), warnings(answer.headers)


def warnings(headers: Mapping[str, str]) -> list[str]:
    found = headers.getall("Warning", [])  # type: ignore[attr-defined]
    return [text.split('"', 1)[1].rstrip('"').replace('\\"', '"') for text in found]


def test_complaints_about_json_come_in_the_order_of_the_text() -> None:
    raw = b'{"spec":{"a":1,"odd":0,"a":2,"list":[{"b":1,"other":2,"b":3}]}}'

    assert in_order(raw, ["spec.a", "spec.list[0].b"], ["spec.list[0].other", "spec.odd"]) == [
        'unknown field "spec.odd"',
        'duplicate field "spec.a"',
        'unknown field "spec.list[0].other"',
        'duplicate field "spec.list[0].b"',
    ]


def test_repeated_keys_of_yaml_are_told_by_the_line_of_the_value_that_counts() -> None:
    value, repeated = yaml_text.read(b"a: 1\nb:\n  c: 2\n  c: 3\nb:\n  d: 4\na: 5\n")

    assert value == {"a": 5, "b": {"d": 4}}
    assert repeated == [
        'line 4: key "c" already set in map',
        'line 6: key "b" already set in map',
        'line 7: key "a" already set in map',
    ]


def test_repeated_keys_are_found_in_json_that_is_sent_as_yaml() -> None:
    assert yaml_text.read(b'{"a": 1,\n "a": 2}') == ({"a": 2}, ['line 2: key "a" already set in map'])
    assert yaml_text.read(b'{"a": 1,\n "b": 2}') == ({"a": 1, "b": 2}, [])


async def test_creating_from_yaml_names_repeated_lines_before_unknown_fields(server: RunningServer) -> None:
    path = "/api/v1/namespaces/default/pods?fieldValidation=Strict"
    message, _ = await send(server, "POST", path, POD, "application/yaml")

    assert message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: yaml: unmarshal errors:\n'
        '  line 8: key "hostNetwork" already set in map\n'
        '  line 10: key "image" already set in map, unknown field "spec.odd"'
    )


async def test_applying_refuses_repeated_keys_or_warns_of_each(server: RunningServer) -> None:
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: one\n  a: two\n"
    path = "/api/v1/namespaces/default/configmaps/c?fieldManager=me&fieldValidation="
    apply = "application/apply-patch+yaml"

    message, _ = await send(server, "PATCH", path + "Strict", body, apply)
    assert message == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 6: key "a" already set in map'
    )
    message, told = await send(server, "PATCH", path + "Warn", body, apply)
    assert (message, told) == ("", ['line 6: key "a" already set in map'])
    assert await send(server, "PATCH", path + "Ignore", body, apply) == ("", [])
