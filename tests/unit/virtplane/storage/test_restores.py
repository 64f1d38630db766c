"""What a restore makes of a snapshot, and restores that cannot go on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import cdi_labels, labels
from virtplane.api import resources as kinds
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshotContent
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.compute.launcherpod.inputs import Images
from virtplane.storage.restore import decisions
from virtplane.storage.snapshot.decisions import SNAPSHOT_FINALIZER, content_name

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_RESTORES = kinds.VIRTUAL_MACHINE_RESTORES
_CLAIM_SPEC: JsonObject = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "selector": {"matchLabels": {"a": "b"}},
    "storageClassName": "",
    "volumeMode": "Block",
}


def _restore(**spec: Any) -> JsonObject:
    target = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "to"}
    return {
        "apiVersion": _RESTORES.api_version,
        "kind": "VirtualMachineRestore",
        "metadata": {"name": "back", "namespace": "ns", "uid": "u"},
        "spec": {"target": target, "virtualMachineSnapshotName": "snap", **spec},
    }


def _content(vm_spec: JsonObject) -> JsonObject:
    annotations = {
        "keep": "1",
        "pv.kubernetes.io/bound": "yes",
        "k8s.io/CloneOf": "yes",
        cdi_labels.POPULATED_FOR: "c1",
        cdi_labels.CONTENT_TYPE: "kubevirt",
    }
    metadata = {"name": "c1", "namespace": "ns", "annotations": annotations, "labels": {"l": "1"}}
    lost = {"volumeName": "pv", "dataSourceRef": {"kind": "K", "name": "n"}}
    claim = {"metadata": metadata, "spec": {**_CLAIM_SPEC, **lost}}
    backup = {"volumeName": "root", "persistentVolumeClaim": claim, "volumeSnapshotName": "vs"}
    machine = {"metadata": {"name": "vm", "namespace": "ns", "uid": "source"}, "spec": vm_spec}
    return {
        "metadata": {"name": "content", "namespace": "ns"},
        "spec": {"source": {"virtualMachine": machine}, "volumeBackups": [backup]},
    }


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "restore-u-root"),
        ({"volumeRestorePolicy": "PrefixTargetName"}, "to-root"),
        ({"volumeRestorePolicy": "InPlace"}, "c1"),
        ({"volumeRestoreOverrides": [{"volumeName": "root", "restoreName": "mine"}]}, "mine"),
        ({"volumeRestoreOverrides": [{"volumeName": "other", "restoreName": "mine"}]}, "restore-u-root"),
    ],
)
def test_a_restored_claim_is_named_as_the_restore_says(spec: JsonObject, name: str) -> None:
    content = decode(VirtualMachineSnapshotContent, _content({"template": {}}))
    (item,) = decisions.volumes(decode(VirtualMachineRestore, _restore(**spec)), content)
    assert item.claim == name


@pytest.mark.parametrize(("size", "expected"), [(None, "1Gi"), ("512Mi", "1Gi"), ("2Gi", "2Gi")])
def test_a_restored_claim_is_that_of_the_snapshot_filled_from_it(size: str | None, expected: str) -> None:
    claim = _claim(_restore(), size)
    kept = {key: value for key, value in _CLAIM_SPEC.items() if key != "selector"}
    assert claim["spec"] == {
        **kept,
        "resources": {"requests": {"storage": expected}},
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "vs"},
    }
    assert claim["metadata"]["annotations"] == {
        "keep": "1",
        cdi_labels.CONTENT_TYPE: "kubevirt",
        labels.RESTORE_NAME: "back",
        decisions.LAST_RESTORE: "back-u",
    }
    assert claim["metadata"]["labels"] == {
        "l": "1",
        "restore.kubevirt.io/source-vm-name": "vm",
        "restore.kubevirt.io/source-vm-namespace": "ns",
    }


def test_labels_and_annotations_of_a_restored_claim_are_the_restores_but_for_its_marks() -> None:
    given = {"keep": "2", "new": "3", decisions.LAST_RESTORE: "another"}
    override = {"volumeName": "root", "labels": {"l": "2"}, "annotations": given}
    metadata = _claim(_restore(volumeRestoreOverrides=[override]))["metadata"]
    assert metadata["labels"]["l"] == "2"
    annotations = metadata["annotations"]
    assert (annotations["keep"], annotations["new"]) == ("2", "3")
    assert annotations[decisions.LAST_RESTORE] == "back-u"


def test_a_restored_claim_of_a_long_name_has_one_that_is_allowed() -> None:
    restore = _restore(volumeRestorePolicy="PrefixTargetName")
    restore["spec"]["target"]["name"] = "m" * 63
    name = _claim(restore)["metadata"]["name"]
    assert len(name) == 63
    assert name.endswith("-root")


def _claim(restore: JsonObject, size: str | None = None) -> JsonObject:
    """The claim that the restore makes of a snapshot of the machine ``vm``."""
    wanted = decode(VirtualMachineRestore, restore)
    content = decode(VirtualMachineSnapshotContent, _content({"template": {}}))
    (item,) = decisions.volumes(wanted, content)
    taken = decode(VolumeSnapshot, {"status": {"restoreSize": size}})
    return decisions.new_claim(wanted, "vm", item, taken)


def test_a_restored_machine_keeps_what_no_struct_knows_of() -> None:
    spec = {"future": 1, "template": {"spec": {"domain": {"devices": {}}, "volumes": []}}}
    assert decisions.restored_spec(spec, []) == spec


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "replace", "path": "/metadata/namespace", "value": "theirs"},
        {"op": "replace", "path": "/metadata/name", "value": "other"},
        {"op": "move", "from": "/metadata/namespace", "path": "/metadata/labels/x"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
        {"op": "replace", "path": "/metadata", "value": {"namespace": "theirs"}},
        {"op": "replace", "path": "/metadata", "value": []},
        {"op": "replace", "path": "/metadata/annotations", "value": []},
        {"op": "replace", "path": "", "value": []},
        "replace",
    ],
)
def test_a_patch_changes_a_machine_no_more_than_its_user_may(patch: Any) -> None:
    restore = decode(VirtualMachineRestore, _restore(patches=[orjson.dumps(patch).decode()]))
    with pytest.raises((ValueError, StatusError)):
        decisions.new_target(restore, ObjectMeta(name="vm", labels={"l": "1"}), {"template": {}})


def test_a_patch_changes_labels_annotations_and_the_spec() -> None:
    changes = {"/metadata/labels/l": "2", "/metadata/annotations/a": "3", "/spec/runStrategy": "Always"}
    patches = [
        orjson.dumps({"op": "add", "path": path, "value": value}).decode() for path, value in changes.items()
    ]
    restore = decode(VirtualMachineRestore, _restore(patches=patches))
    made = decisions.new_target(restore, ObjectMeta(name="vm", labels={"l": "1"}), {"template": {}})
    assert (made["metadata"]["labels"]["l"], made["metadata"]["annotations"]["a"]) == ("2", "3")
    assert made["spec"]["runStrategy"] == "Always"
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("to", "ns")


@pytest.mark.looptime
async def test_a_restore_of_a_content_that_cannot_be_read_says_why_in_its_conditions() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
    metadata = {"name": "snap", "namespace": "ns", "finalizers": [SNAPSHOT_FINALIZER]}
    snapshot = api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, {"metadata": metadata, "spec": {"source": source}})
    name = content_name(meta.uid(snapshot))
    status = {"readyToUse": True, "phase": "Succeeded", "virtualMachineSnapshotContentName": name}
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, {**snapshot, "status": status})
    content = _content({"template": "x"})
    content["metadata"]["name"] = name
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, content)
    api.put(_RESTORES, _restore())

    def why() -> str:
        found = api.get(_RESTORES, "back", "ns") or {}
        return str((meta.get_condition(found, "Progressing") or {}).get("reason", ""))

    path = f"VirtualMachineSnapshotContent ns/{name}: spec.source.virtualMachine.spec.template: "
    async with _running(api):
        await until(lambda: why().startswith(path))


@pytest.mark.looptime
async def test_a_restore_that_cannot_be_read_says_so_and_lets_its_machine_go_when_deleted() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    held = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "to", "namespace": "ns"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}},
        "status": {"restoreInProgress": "back"},
    }
    api.put(kinds.VIRTUAL_MACHINES, held)
    restore = _restore(patches="x")
    restore["metadata"]["finalizers"] = [decisions.FINALIZER]
    api.put(_RESTORES, restore)
    async with _running(api):
        await until(
            lambda: "VirtualMachineRestore ns/back: spec.patches" in str(api.list(resources.EVENTS, "ns"))
        )
        await api.client().delete(_RESTORES, "back", "ns")
        await until(lambda: not api.list(_RESTORES, "ns"))
        assert "restoreInProgress" not in (api.get(kinds.VIRTUAL_MACHINES, "to", "ns") or {})["status"]


def _running(api: MemoryApi) -> Any:
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
    return running_controllers(api, Images("launcher:1", "sidecar:1"), served)
