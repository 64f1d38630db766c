"""The user's own changes to installed objects."""

from __future__ import annotations

import json

import pytest

from kubecore.json import JsonObject
from virtplane.operators.kit.customize import BadCustomization, customizer
from virtplane.operators.kubevirt.strategy.workloads import operator_deployment


def customized(kind: str, patch: object, name: str = "virt-operator", type_: str = "strategic") -> JsonObject:
    text = patch if isinstance(patch, str) else json.dumps(patch)
    spec = {
        "customizeComponents": {
            "patches": [{"resourceType": kind, "resourceName": name, "type": type_, "patch": text}]
        }
    }
    return customizer(spec)(operator_deployment("kubevirt", "image", "compact"))


def container(document: JsonObject) -> JsonObject:
    found: JsonObject = document["spec"]["template"]["spec"]["containers"][0]
    return found


def test_strategic_patches_merge_containers_by_name() -> None:
    change = {"name": "virt-operator", "env": [{"name": "EXTRA", "value": "1"}]}
    changed = customized("Deployment", {"spec": {"template": {"spec": {"containers": [change]}}}})
    names = [entry["name"] for entry in container(changed)["env"]]
    assert names[-1] == "EXTRA" or "EXTRA" in names
    assert "POD_NAME" in names
    assert container(changed)["image"] == "image"


def test_json_and_merge_patches_apply() -> None:
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    assert customized("Deployment", operations, type_="json")["spec"]["replicas"] == 3
    assert customized("Deployment", {"spec": {"replicas": 4}}, type_="merge")["spec"]["replicas"] == 4


def test_other_objects_stay_as_they_are() -> None:
    plain = operator_deployment("kubevirt", "image", "compact")
    assert customized("DaemonSet", {"spec": {"replicas": 9}}) == plain
    assert customized("Deployment", {"spec": {"replicas": 9}}, name="virt-api") == plain


def test_a_patch_that_does_not_fit_is_told() -> None:
    with pytest.raises(BadCustomization, match="Deployment virt-operator"):
        customized("Deployment", [{"op": "remove", "path": "/spec/nothing"}], type_="json")
