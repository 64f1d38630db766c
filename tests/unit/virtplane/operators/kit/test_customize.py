"""The user's own changes to installed objects."""

from __future__ import annotations

import json

import pytest

from kubecore.json import JsonObject
from virtplane.operators.kit.customize import BadCustomization, customizer

CONTAINER = {"name": "oven", "image": "image", "env": [{"name": "HEAT", "value": "9"}]}
OVEN: JsonObject = {
    "kind": "Deployment",
    "metadata": {"name": "oven"},
    "spec": {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}},
}


def customized(kind: str, patch: object, name: str = "oven", type_: str = "strategic") -> JsonObject:
    text = patch if isinstance(patch, str) else json.dumps(patch)
    given = {"resourceType": kind, "resourceName": name, "type": type_, "patch": text}
    return customizer([given], "bakery.example/patches")(OVEN)


def container(document: JsonObject) -> JsonObject:
    found: JsonObject = document["spec"]["template"]["spec"]["containers"][0]
    return found


def test_strategic_patches_merge_containers_by_name() -> None:
    change = {"name": "oven", "env": [{"name": "EXTRA", "value": "1"}]}
    changed = customized("Deployment", {"spec": {"template": {"spec": {"containers": [change]}}}})
    assert {entry["name"] for entry in container(changed)["env"]} == {"HEAT", "EXTRA"}
    assert container(changed)["image"] == "image"


def test_json_and_merge_patches_apply() -> None:
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    assert customized("Deployment", operations, type_="json")["spec"]["replicas"] == 3
    assert customized("Deployment", {"spec": {"replicas": 4}}, type_="merge")["spec"]["replicas"] == 4


def test_other_objects_stay_as_they_are() -> None:
    assert customized("DaemonSet", {"spec": {"replicas": 9}}) == OVEN
    assert customized("Deployment", {"spec": {"replicas": 9}}, name="shop") == OVEN


def test_an_object_says_which_patches_it_was_written_with() -> None:
    first = customized("Deployment", {"spec": {"replicas": 2}})["metadata"]["annotations"]
    second = customized("Deployment", {"spec": {"replicas": 3}})["metadata"]["annotations"]
    assert first["bakery.example/patches"] != second["bakery.example/patches"]


def test_a_patch_that_does_not_fit_is_told() -> None:
    with pytest.raises(BadCustomization, match="Deployment oven"):
        customized("Deployment", [{"op": "remove", "path": "/spec/nothing"}], type_="json")
