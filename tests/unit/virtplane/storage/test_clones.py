"""What a clone makes of its source, and clones that cannot go on."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.client import Request
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.snapshot_v1beta1.snapshot import SnapshotVirtualMachine, VirtualMachineSnapshotContent
from virtplane.compute.launcherpod.inputs import Images
from virtplane.storage.clone import decisions

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


_SNAPSHOT: JsonObject = {
    "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
    "status": {"phase": "Succeeded", "readyToUse": True},
}


def _clone(**spec: Any) -> JsonObject:
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_CLONES.api_version,
        "kind": "VirtualMachineClone",
        "metadata": {"name": "copy", "namespace": "ns", "uid": "0123456789"},
        "spec": {"source": source, **spec},
    }


def _patches(clone: JsonObject, source: JsonObject) -> list[JsonObject]:
    return decisions.patches(decode(VirtualMachineClone, clone), decode(SnapshotVirtualMachine, source))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, []),
        ({"labelFilters": []}, [{"op": "replace", "path": "/metadata/labels", "value": {}}]),
        ({"labelFilters": ["a"]}, [{"op": "replace", "path": "/metadata/labels", "value": {"a": "1"}}]),
        (
            {"template": {"annotationFilters": ["*", "!c"]}},
            [{"op": "replace", "path": "/spec/template/metadata/annotations", "value": {"d": "4"}}],
        ),
    ],
)
def test_a_clone_without_filters_keeps_all_and_one_with_none_of_them_nothing(
    filters: JsonObject, expected: list[JsonObject]
) -> None:
    template = {"metadata": {"annotations": {"c": "3", "d": "4"}}, "spec": {"domain": {}}}
    source = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"template": template}}
    assert _patches(_clone(**filters), source) == expected


def test_a_clone_with_a_serial_adds_firmware_where_its_source_has_none() -> None:
    source: JsonObject = {"spec": {"template": {"spec": {"domain": {}}}}}
    path = "/spec/template/spec/domain/firmware"
    expected = [{"op": "add", "path": path, "value": {"serial": "s"}}]
    assert _patches(_clone(newSMBiosSerial="s"), source) == expected


def test_the_helpers_of_a_clone_are_its_own() -> None:
    clone = decode(VirtualMachineClone, _clone())
    snapshot = decisions.new_snapshot(clone)
    assert snapshot["metadata"] == {
        "name": "tmp-snapshot-0123456789",
        "namespace": "ns",
        "ownerReferences": [
            {
                "apiVersion": kinds.VIRTUAL_MACHINE_CLONES.api_version,
                "kind": "VirtualMachineClone",
                "name": "copy",
                "uid": "0123456789",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert decisions.target_name(clone) == "vm-clone-01234"


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("clone", "machine", "problem"),
    [
        (_clone(patches="x"), {}, "VirtualMachineClone ns/copy: spec.patches"),
        (
            _clone(),
            {"template": {"spec": {"domain": {"cpu": {"cores": "x"}}}}},
            "VirtualMachine ns/vm: spec.",
        ),
    ],
)
async def test_a_clone_that_cannot_be_read_or_whose_source_cannot_says_so(
    clone: JsonObject, machine: JsonObject, problem: str
) -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    if machine:
        metadata = {"name": "vm", "namespace": "ns"}
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
        api.put(kinds.VIRTUAL_MACHINES, {**kind, "metadata": metadata, "spec": machine})
    api.put(kinds.VIRTUAL_MACHINE_CLONES, clone)

    def said() -> bool:
        events = api.list(resources.EVENTS, "ns")
        return any(problem in str(event) and "InvalidObject" in str(event) for event in events)

    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(said)


def _source(**spec: Any) -> JsonObject:
    volumes = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "data", "dataVolume": {"name": "d"}},
        {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
    ]
    template = {"spec": {"domain": {}, "volumes": volumes, **spec}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"runStrategy": "Halted", "template": template},
    }


def test_volumes_that_a_copy_would_share_with_its_source_are_named() -> None:
    vm = _source() | {"status": {"volumeSnapshotStatuses": [{"name": "root", "enabled": False}]}}
    assert decisions.unsnapshottable(decode(VirtualMachine, vm)).splitlines() == [
        "Virtual Machine volume root does not support snapshots",
        "Virtual Machine volume data snapshot support unknown",
    ]
    backup = {"volumeName": "root", "persistentVolumeClaim": {"metadata": {"name": "c"}}}
    content = {
        "source": {"virtualMachine": {"spec": _source()["spec"]}},
        "virtualMachineSnapshotName": "snap",
        "volumeBackups": [backup],
    }
    found = decisions.missing_backups(decode(VirtualMachineSnapshotContent, {"spec": content}))
    assert found == "volume data is not backed up in snapshot snap"


@pytest.mark.looptime
@pytest.mark.feature("SNP-17")
async def test_a_clone_waits_for_its_source_and_copies_no_machine_whose_disks_it_would_share() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    api.put(kinds.VIRTUAL_MACHINE_CLONES, _clone())
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})

    def reasons() -> dict[str, str]:
        clone = api.get(kinds.VIRTUAL_MACHINE_CLONES, "copy", "ns") or {}
        found: list[JsonObject] = clone.get("status", {}).get("conditions", [])
        return {each["type"]: each["reason"] for each in found}

    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        missing = {"Progressing": "Pending", "Ready": "Source doesnt exist: VirtualMachine ns/vm"}
        await until(lambda: reasons() == missing)
        (event,) = await until(lambda: api.list(resources.EVENTS, "ns"))
        assert (event["type"], event["reason"]) == ("Normal", "SourceDoesNotExist")
        api.put(kinds.VIRTUAL_MACHINES, _source())
        await until(lambda: "volume root does not support snapshots" in reasons()["Ready"])
        assert reasons()["Progressing"] == "Pending"
        assert not api.list(kinds.VIRTUAL_MACHINE_SNAPSHOTS, "ns")


@pytest.mark.looptime
async def test_a_machine_whose_tpm_remembers_is_not_copied() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    api.put(kinds.VIRTUAL_MACHINES, _source(domain={"devices": {"tpm": {"persistent": True}}}))
    api.put(kinds.VIRTUAL_MACHINE_CLONES, _clone())
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})

    def status() -> JsonObject:
        return (api.get(kinds.VIRTUAL_MACHINE_CLONES, "copy", "ns") or {}).get("status") or {}

    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(lambda: status().get("phase") == "Failed")
        (ready,) = [each["reason"] for each in status()["conditions"] if each["type"] == "Ready"]
        assert ready == "Clone of source with backendstorage is not supported: VM ns/vm"


@pytest.mark.looptime
@pytest.mark.feature("SNP-17")
async def test_a_copy_is_made_before_its_disks_have_a_consumer_and_its_snapshot_stays_until_then() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    claim = _restored(api, "Pending")
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(lambda: _status(api)["phase"] == "Succeeded")
        await asyncio.sleep(30)
        assert _status(api)["restoreName"] == _HELPERS["restoreName"]
        assert api.get(kinds.VIRTUAL_MACHINE_SNAPSHOTS, _HELPERS["snapshotName"], "ns") is not None
        api.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        await until(lambda: "restoreName" not in _status(api))
        assert "snapshotName" not in _status(api)
        assert _status(api)["phase"] == "Succeeded"
        assert not api.list(kinds.VIRTUAL_MACHINE_RESTORES, "ns")


_HELPERS = {"snapshotName": "tmp-snapshot-0123456789", "restoreName": "tmp-restore-0123456789"}


def _restored(api: MemoryApi, phase: str) -> JsonObject:
    """A clone whose restore is complete, with one claim in that phase, which is returned."""
    api.put(kinds.VIRTUAL_MACHINE_CLONES, {**_clone(), "status": {"phase": "RestoreInProgress", **_HELPERS}})
    copy: JsonObject = {"name": "vm-clone-01234", "namespace": "ns"}
    api.put(kinds.VIRTUAL_MACHINES, {**_source(), "metadata": copy})
    snapshot = {"metadata": {"name": _HELPERS["snapshotName"], "namespace": "ns"}, **_SNAPSHOT}
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, snapshot)
    restored = [{"volumeName": "root", "persistentVolumeClaim": "c", "volumeSnapshotName": "v"}]
    target = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": copy["name"]}
    api.put(
        kinds.VIRTUAL_MACHINE_RESTORES,
        {
            "metadata": {"name": _HELPERS["restoreName"], "namespace": "ns"},
            "spec": {"target": target, "virtualMachineSnapshotName": _HELPERS["snapshotName"]},
            "status": {"complete": True, "restores": restored},
        },
    )
    marks = {labels.RESTORE_NAME: _HELPERS["restoreName"]}
    claim: JsonObject = {"metadata": {"name": "c", "namespace": "ns", "annotations": marks}, "spec": {}}
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": phase}})
    return claim


def _status(api: MemoryApi) -> JsonObject:
    return (api.get(kinds.VIRTUAL_MACHINE_CLONES, "copy", "ns") or {}).get("status") or {}


@pytest.mark.looptime
async def test_the_snapshot_of_a_copy_stays_for_unbound_disks_when_somebody_deletes_the_restore() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    claim = _restored(api, "Pending")
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(lambda: _status(api)["phase"] == "Succeeded")
        api.remove(kinds.VIRTUAL_MACHINE_RESTORES, _HELPERS["restoreName"], "ns")
        await asyncio.sleep(30)
        assert api.get(kinds.VIRTUAL_MACHINE_SNAPSHOTS, _HELPERS["snapshotName"], "ns") is not None
        api.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        await until(lambda: "snapshotName" not in _status(api))


@pytest.mark.looptime
@pytest.mark.feature("SNP-17")
async def test_a_copy_whose_disks_are_bound_is_told_once_its_snapshot_is_needed_no_more() -> None:
    api = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    _restored(api, "Bound")
    told: list[JsonObject] = []

    def note(request: Request) -> None:
        if request.path.endswith("/virtualmachineclones/copy/status"):
            told.append(orjson.loads(request.body or b"{}"))

    api.reactions.append(note)
    served = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(lambda: _status(api).get("phase") == "Succeeded")
        assert "restoreName" not in _status(api)
        await asyncio.sleep(30)
        assert len(told) == 1
