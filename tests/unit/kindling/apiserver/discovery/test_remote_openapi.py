"""OpenAPI of aggregated servers, merged into the cluster's: they describe what is theirs alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kindling.apiserver.discovery.remote_openapi import UnusableDocument, merge_v2, read_v2, read_v3

BASE = "/apis/things.example.com/v1"


def operation(definition: str) -> dict[str, Any]:
    schema = {"$ref": f"#/definitions/{definition}"}
    return {"get": {"responses": {"200": {"description": "OK", "schema": schema}}}}


def swagger(paths: dict[str, Any], **definitions: Any) -> bytes:
    return orjson.dumps({"swagger": "2.0", "paths": paths, "definitions": definitions})


def read(body: bytes) -> dict[str, Any]:
    return read_v2(body, "things.example.com", "v1")


def test_only_the_paths_of_the_group_version_and_what_they_need_are_taken() -> None:
    part = {"properties": {"part": {"$ref": "#/definitions/Part"}}}
    paths = {f"{BASE}/things": operation("Thing"), "/api/v1/pods": operation("Pod"), f"{BASE}beta1": {}}
    found = read(swagger(paths, Thing=part, Part={"type": "object"}, Pod={"type": "object"}))
    assert set(found["paths"]) == {f"{BASE}/things"}
    assert found["definitions"] == {"Thing": part, "Part": {"type": "object"}}


def test_kinds_of_other_groups_cannot_be_claimed() -> None:
    key = "x-kubernetes-group-version-kind"
    pod, thing = {"group": "", "kind": "Pod"}, {"group": "things.example.com", "kind": "Thing"}
    paths = {BASE: {"get": {**operation("A")["get"], key: pod}, "put": {"responses": {}, key: thing}}}
    found = read(swagger(paths, A={"type": "object", key: [pod, thing]}))
    assert found["definitions"]["A"][key] == [thing]
    assert key not in found["paths"][BASE]["get"] and found["paths"][BASE]["put"][key] == thing


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{" * 10_000,
        orjson.dumps({"paths": {BASE: operation("Missing")}}),
        orjson.dumps({"paths": {BASE: {"get": {"responses": 5}}}}),
        b'{"paths": {"' + BASE.encode() + b'": ' + b'{"a":' * 200 + b"1" + b"}" * 201 + b"}",
        orjson.dumps({"paths": {f"{BASE}/{number}": {} for number in range(2001)}}),
        swagger({BASE: operation("A")}, A={"maximum": "high"}),
        swagger({BASE: operation("A")}, A={"minimum": None}),
    ],
)
def test_a_document_that_cannot_be_merged_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableDocument):
        read(body)


@pytest.mark.parametrize("body", [b"", b"5", b'{"openapi": "2"}', b'{"openapi": "3.0.0", "paths": []}'])
def test_what_is_no_openapi_3_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableDocument):
        read_v3(body)
    good = b'{"openapi": "3.0.0", "paths": {}}'
    assert read_v3(good) == good


def test_a_definition_of_the_same_name_stays_as_it_is() -> None:
    document: dict[str, Any] = {
        "paths": {"/version": {}},
        "definitions": {"Thing": {"type": "string"}, "Same": {"type": "object"}},
    }
    paths = {"/version": {"get": {}}, f"{BASE}/things": operation("Thing"), f"{BASE}/same": operation("Same")}
    merge_v2(
        document, {"paths": paths, "definitions": {"Thing": {"type": "object"}, "Same": {"type": "object"}}}
    )
    assert document["paths"]["/version"] == {}
    assert document["definitions"] == {
        "Thing": {"type": "string"},
        "Same": {"type": "object"},
        "Thing_v2": {"type": "object"},
    }
    assert document["paths"][f"{BASE}/things"] == operation("Thing_v2")
    assert document["paths"][f"{BASE}/same"] == operation("Same")
