"""Admission of the HostPathProvisioner, in upstream's words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.virtplane.api.test_crds import differences

from kubecore.objects.generated_names import bounded
from virtplane.api import crds
from virtplane.api.schema import object_schema
from virtplane.operators.hostpath.reviews import review

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/hpp/openapi.json"


def _pool(name: str = "a", path: str = "/a") -> dict[str, str]:
    return {"name": name, "path": path}


@pytest.mark.feature("STO-62", "STO-63", "STO-66")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"pathConfig": {"path": "/p"}, "storagePools": [_pool()]},
            "pathConfig and storage pools cannot be both set",
        ),
        ({}, "either pathConfig or storage pools must be set"),
        ({"storagePools": []}, "either pathConfig or storage pools must be set"),
        ({"pathConfig": {"path": ""}}, "pathconfig path must be set"),
        ({"storagePools": [_pool("")]}, "storagePool.name cannot be blank"),
        ({"storagePools": [_pool("x" * 51)]}, "storagePool.name cannot have a length greater than 50"),
        ({"storagePools": [_pool(path="")]}, "storagePool.path cannot be blank"),
        (
            {"storagePools": [_pool(path="/" + "x" * 255)]},
            "storagePool.path cannot have a length greater than 255",
        ),
        (
            {"storagePools": [_pool(), _pool("b", "/b"), _pool("c", "/a")]},
            "spec.storagePools[2].path is the same as spec.storagePools[0].path, cannot have duplicate paths",
        ),
        (
            {"storagePools": [_pool(), _pool(path="/b")]},
            "spec.storagePools[1].name is the same as spec.storagePools[0].name, cannot have duplicate names",
        ),
        ({"pathConfig": {"path": "/p"}}, ""),
        ({"storagePools": [_pool("x" * 50), {**_pool("b", "/a/"), "pvcTemplate": {}}]}, ""),
    ],
)
async def test_a_spec_that_cannot_be_is_refused(spec: dict[str, Any], message: str) -> None:
    answer = await review("", {"operation": "CREATE", "object": {"spec": spec}})
    assert answer.allowed is not bool(message)
    if message:
        assert (answer.status or {})["message"] == message


async def test_deletions_are_allowed_whatever_the_object_says() -> None:
    assert (await review("", {"operation": "DELETE", "oldObject": {"spec": {}}})).allowed


@pytest.mark.skipif(not _REFERENCE.exists(), reason="VIRTPLANE_REFERENCE names no directory with API facts")
def test_the_definition_equals_the_published_one() -> None:
    published = json.loads(_REFERENCE.read_text())["crds"][crds.HOSTPATH_PROVISIONER.name]
    ours = crds.custom_resource_definition(crds.HOSTPATH_PROVISIONER)["spec"]
    assert (ours["names"], ours["scope"]) == (published["names"], published["scope"])
    assert "subresources" not in ours["versions"][0]
    theirs = published["versions"]["v1beta1"]["schema"]
    generated = object_schema(crds.HOSTPATH_PROVISIONER.struct)["properties"]
    for part in ("spec", "status"):
        assert differences(generated[part], theirs["properties"][part], {}, part) == []


@pytest.mark.parametrize(
    ("base", "suffix", "name"),
    [
        ("hpp-pool", "hpp-csi-pvc-block-node1", "hpp-pool-hpp-csi-pvc-block-node1"),
        ("cleanup-pool", "s" * 51, "cl-26f44bf8-" + "s" * 51),
        ("hpp-pool", "s" * 55, "hpp-pool-3ea170da"),
    ],
)
def test_long_names_have_a_hash_in_the_place_of_what_is_left_out(base: str, suffix: str, name: str) -> None:
    assert bounded(base, suffix) == name
    assert len(name) <= 63
