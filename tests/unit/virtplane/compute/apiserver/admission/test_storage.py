"""The webhooks on restores and clones."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from virtplane.compute.apiserver.admission import Response

from .reviewing import Objects, ask, config

_SNAPSHOT = ("virtualmachinesnapshots", {"metadata": {"name": "s"}})
_MACHINE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}


async def _restore(*lookups: tuple[str, JsonObject], **spec: Any) -> Response:
    given = {"target": _MACHINE, "virtualMachineSnapshotName": "s", **spec}
    new = {"metadata": {"name": "r"}, "spec": given}
    path = "/virtualmachinerestores-validate"
    return await ask(path, new, lookups=Objects(*lookups), settings=config("Snapshot"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "resource name may not be empty"),
        ("..", "invalid resource name \"..\": [may not be '..']"),
        ("a/b%c", "invalid resource name \"a/b%c\": [may not contain '/' may not contain '%']"),
    ],
)
async def test_a_restore_names_a_snapshot_that_can_exist(name: str, problem: str) -> None:
    answer = await _restore(virtualMachineSnapshotName=name)
    assert (answer.status or {})["message"] == problem


async def test_patches_of_a_restore_are_judged_once_its_snapshot_exists() -> None:
    fine = '{"op": "replace", "path": "/spec/x", "value": 1}'
    outside = '{"op": "remove", "path": "/metadata/name"}'
    assert (await _restore(patches=[outside])).allowed
    assert (await _restore(_SNAPSHOT, patches=[fine])).allowed
    assert not (await _restore(_SNAPSHOT, patches=[outside])).allowed
    assert not (await _restore(_SNAPSHOT, patches=["no patch"])).allowed


async def test_a_patch_is_judged_by_what_it_means_however_it_is_written() -> None:
    escaped = r'{"op": "replace", "p\u0061th": "/metadata/namespace", "value": "theirs"}'
    assert not (await _restore(_SNAPSHOT, patches=[escaped])).allowed


async def test_an_override_may_have_no_annotations_but_must_speak_of_them() -> None:
    assert (await _restore(volumeRestoreOverrides=[{"volumeName": "v", "annotations": {}}])).allowed
    assert not (await _restore(volumeRestoreOverrides=[{"volumeName": "v"}])).allowed


async def test_a_clone_that_cannot_be_read_is_refused_before_it_is_changed() -> None:
    new = {"metadata": {"name": "c"}, "spec": {"source": _MACHINE, "annotationFilters": "all"}}
    answer = await ask("/vm-clone-mutate-create", new)
    assert (answer.status or {})["code"] == 400
    assert (answer.status or {})["message"].startswith("json: ")


async def test_a_clone_has_no_more_filters_than_its_controller_can_bear() -> None:
    async def ask_for(count: int) -> Response:
        spec = {"source": _MACHINE, "labelFilters": [f"a{number}" for number in range(count)]}
        new = {"metadata": {"name": "c"}, "spec": spec}
        return await ask("/vm-clone-validate-create", new, settings=config("Snapshot"))

    assert (await ask_for(256)).allowed
    assert not (await ask_for(257)).allowed


async def test_a_clone_without_a_target_gets_one_with_a_generated_name() -> None:
    new: JsonObject = {
        "metadata": {"name": "c"},
        "spec": {"source": {"kind": "VirtualMachine", "name": "vm"}},
    }
    [patch] = (await ask("/vm-clone-mutate-create", new)).patches
    spec = patch["value"]
    prefix, _, suffix = spec["target"]["name"].rpartition("-")
    assert prefix == "clone-vm" and not set(suffix) & set("aeiou013")
    assert spec["source"]["apiGroup"] is None
