"""What strict decoding says about unknown and repeated fields, in JSON and YAML."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from multidict import MultiMapping
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server

from kubecore import yaml_text
from kubecore.repeated_fields import in_order

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


def warnings(headers: MultiMapping[str]) -> list[str]:
    found = headers.getall("Warning", [])
    return [text.split('"', 1)[1][:-1].replace('\\"', '"') for text in found]


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


def test_what_an_unknown_field_holds_is_not_looked_at() -> None:
    raw = b'{"odd":{"a":1,"a":2},"odd":3,"b":4,"b":5}'

    assert in_order(raw, ["odd.a", "odd", "b"], ["odd"]) == ['unknown field "odd"', 'duplicate field "b"']


async def test_unknown_fields_of_a_new_object_are_named_in_the_order_of_the_text(
    server: RunningServer,
) -> None:
    body = '{"metadata":{"name":"c"},"zeta":1,"data":{},"alpha":2,"data":{}}'
    path = "/api/v1/namespaces/default/configmaps?fieldValidation="
    told = ['unknown field "zeta"', 'unknown field "alpha"', 'duplicate field "data"']

    message, _ = await send(server, "POST", path + "Strict", body, "application/json")
    assert message.endswith(f"strict decoding error: {', '.join(told)}")
    assert await send(server, "POST", path + "Warn", body, "application/json") == ("", told)


PATCHES = [
    ("merge-patch+json", '{"data":{"a":"1"},"odd":1,"data":{"a":"2"}}', 'duplicate field "data"'),
    ("strategic-merge-patch+json", '{"data":{"a":"1"},"odd":1,"data":{"a":"2"}}', 'duplicate field "data"'),
    (
        "json-patch+json",
        '[{"op":"add","path":"/odd","value":1,"why":"x","op":"add"}]',
        'json patch unknown field "[0].why", json patch duplicate field "[0].op"',
    ),
]


@pytest.mark.parametrize(("content_type", "patch", "told"), PATCHES)
async def test_patches_are_decoded_as_strictly_as_their_outcome(
    server: RunningServer, content_type: str, patch: str, told: str
) -> None:
    collection = "/api/v1/namespaces/default/configmaps"
    await send(server, "POST", collection, '{"metadata":{"name":"c"}}', "application/json")
    path, media_type = f"{collection}/c?fieldValidation=", f"application/{content_type}"

    message, _ = await send(server, "PATCH", path + "Strict", patch, media_type)
    assert message.endswith(f'strict decoding error: {told}, unknown field "odd"')
    assert message.startswith(' "" is invalid: patch: Invalid value: ')
    message, warned = await send(server, "PATCH", path + "Warn", patch, media_type)
    assert (message, warned) == ("", [*told.split(", "), 'unknown field "odd"'])
    assert await send(server, "PATCH", path + "Ignore", patch, media_type) == ("", [])


async def test_a_strict_patch_with_a_repeated_field_is_shown_itself(server: RunningServer) -> None:
    collection = "/api/v1/namespaces/default/configmaps"
    await send(server, "POST", collection, '{"metadata":{"name":"c"}}', "application/json")
    patch = '{"data":{"a":"1","a":"2"}}'
    path = f"{collection}/c?fieldValidation=Strict"

    message, _ = await send(server, "PATCH", path, patch, "application/merge-patch+json")

    shown = patch.replace('"', '\\"')
    assert message == (
        f' "" is invalid: patch: Invalid value: "{shown}": strict decoding error: duplicate field "data.a"'
    )


async def test_a_patch_that_takes_the_version_away_leaves_nothing_known(server: RunningServer) -> None:
    collection = "/api/v1/namespaces/default/configmaps"
    await send(server, "POST", collection, '{"metadata":{"name":"c"},"data":{"a":"1"}}', "application/json")
    path, patch = f"{collection}/c?fieldValidation=", '{"apiVersion":null}'
    media_type = "application/merge-patch+json"

    message, _ = await send(server, "PATCH", path + "Strict", patch, media_type)
    assert message.endswith('strict decoding error: unknown field "data", unknown field "metadata"')
    message, warned = await send(server, "PATCH", path + "Warn", patch, media_type)
    assert message == "the name of the object (c based on URL) was undeterminable: name must be provided"
    assert warned == ['unknown field "data"', 'unknown field "metadata"']
    assert (await send(server, "PATCH", path + "Ignore", patch, media_type))[1] == []


async def test_a_scale_is_decoded_as_strictly_as_an_object(server: RunningServer) -> None:
    collection = "/api/v1/namespaces/default/replicationcontrollers"
    template = '{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}'
    body = f'{{"metadata":{{"name":"r"}},"spec":{{"replicas":0,"template":{template}}}}}'
    await send(server, "POST", collection, body, "application/json")
    path, told = f"{collection}/r/scale?fieldValidation=", 'unknown field "spec.odd"'
    patch, media_type = '{"spec":{"odd":1}}', "application/merge-patch+json"
    scale = '{"metadata":{"name":"r"},"spec":{"odd":1}}'

    assert await send(server, "PATCH", path + "Warn", patch, media_type) == ("", [told])
    assert await send(server, "PUT", path + "Warn", scale, "application/json") == ("", [told])
    assert await send(server, "PATCH", path + "Ignore", patch, media_type) == ("", [])
    message, _ = await send(server, "PATCH", path + "Strict", patch, media_type)
    assert message.startswith(' "" is invalid: patch: Invalid value: ')
    assert message.endswith(f"strict decoding error: {told}")
    message, _ = await send(server, "PUT", path + "Strict", scale, "application/json")
    assert message == f'Scale in version "v1" cannot be handled as a Scale: strict decoding error: {told}'
