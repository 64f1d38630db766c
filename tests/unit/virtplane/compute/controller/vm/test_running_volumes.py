"""Volumes of a running instance: plugged, unplugged and moved by patches of what changes."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import liveupdate, volumemigration
from virtplane.compute.controller.vm.volumemigration import Change


def _claim(name: str, claim: str, **more: Any) -> JsonObject:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **more}}


def _vm(*volumes: JsonObject) -> VirtualMachine:
    disks = [{"name": volume["name"], "disk": {}} for volume in volumes]
    template = {"spec": {"domain": {"devices": {"disks": disks}}, "volumes": list(volumes)}}
    return decode(VirtualMachine, {"spec": {"template": template}})


def _vmi(*volumes: JsonObject, **status: Any) -> JsonObject:
    disks = [{"name": volume["name"], "disk": {}, "later": 1} for volume in volumes]
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": list(volumes)}
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", **status}}


def _applied(vmi: JsonObject, operations: list[JsonObject]) -> JsonObject:
    found: JsonObject = jsonpatch.apply_patch(vmi, operations)
    return found


@pytest.mark.feature("VML-22")
def test_hotpluggable_volumes_follow_the_template_and_the_others_stay_as_they_were_written() -> None:
    root, gone = {**_claim("root", "r"), "later": 1}, _claim("gone", "g", hotpluggable=True)
    new = _claim("new", "n", hotpluggable=True)
    vmi = _vmi(gone, root)
    operations = liveupdate.volume_operations(_vm(root, new), decode(VirtualMachineInstance, vmi))
    assert operations[1] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    spec = _applied(vmi, operations)["spec"]
    assert spec["volumes"] == [root, new]
    root_disk, new_disk = {"name": "root", "disk": {}, "later": 1}, {"name": "new", "disk": {}}
    assert spec["domain"]["devices"]["disks"] == [root_disk, new_disk]


def test_volumes_that_are_as_the_template_says_need_no_patch() -> None:
    root, hot = _claim("root", "r"), _claim("hot", "h", hotpluggable=True)
    vmi = decode(VirtualMachineInstance, _vmi(root, hot))
    assert liveupdate.volume_operations(_vm(root, hot), vmi) == []


def test_volumes_are_moved_by_replacing_those_whose_claims_differ() -> None:
    root, data = {**_claim("root", "r"), "later": 1}, _claim("data", "d")
    vm, document = _vm(root, _claim("data", "new")), _vmi(root, data)
    vmi = decode(VirtualMachineInstance, document)
    changed = volumemigration.changes(vm, vmi)
    assert changed == [Change("data", "d", "new")]
    moved = volumemigration.migrated_volumes(changed, {name: {"metadata": {"name": name}} for name in "d"})
    result = _applied(document, volumemigration.beginning(vm, vmi, moved))
    assert result["spec"]["volumes"] == [root, _claim("data", "new")]
    assert result["status"]["migratedVolumes"] == [
        {"volumeName": "data", "sourcePVCInfo": {"claimName": "d"}, "destinationPVCInfo": {}}
    ]
    assert [item["type"] for item in result["status"]["conditions"]] == ["VolumesChange"]


def test_a_move_is_taken_back_when_the_template_names_the_first_claims_again() -> None:
    moved = [{"volumeName": "data", "sourcePVCInfo": {"claimName": "d"}}]
    known = [{"type": "Ready", "status": "True"}, {"type": "VolumesChange", "status": "True"}]
    document = _vmi(_claim("data", "new"), migratedVolumes=moved, conditions=known)
    vm, vmi = _vm(_claim("data", "d")), decode(VirtualMachineInstance, document)
    assert volumemigration.is_cancelled(vm, vmi)
    result = _applied(document, volumemigration.cancellation(vm, vmi))
    assert result["spec"]["volumes"] == [_claim("data", "d")]
    assert "migratedVolumes" not in result["status"]
    ready, change = result["status"]["conditions"]
    assert ready == known[0]
    assert (change["status"], change["reason"]) == ("False", "VolumesChangeCancellation")
    assert not volumemigration.is_cancelled(_vm(_claim("data", "other")), vmi)
