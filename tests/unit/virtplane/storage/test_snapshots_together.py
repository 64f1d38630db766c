"""Snapshots and restores on an API server in memory; the test plays the storage's snapshot controller."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot
from virtplane.compute.launcherpod.inputs import Images
from virtplane.storage.snapshot import decisions

pytestmark = pytest.mark.looptime

_LONG_SECONDS = 60.0
"""Virtual time in which whatever the controllers would do is done."""

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_SNAPSHOTS, _CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS
_SERVED = frozenset({kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES})
_FINALIZER = "snapshot.kubevirt.io/vmsnapshot-protection"


@pytest.fixture
def api() -> MemoryApi:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "csi.test"})
    server.put(kinds.VOLUME_SNAPSHOT_CLASSES, {"metadata": {"name": "snaps"}, "driver": "csi.test"})
    for name, storage in (("c1", "fast"), ("c2", "slow")):
        spec = {
            "storageClassName": storage,
            "volumeName": f"pv-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        claim = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"phase": "Bound"}}
        server.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    return server


def _running(api: MemoryApi) -> AbstractAsyncContextManager[None]:
    """The controllers, within the test: a fixture does not run on virtual time."""
    return running_controllers(api, Images("launcher:1", "sidecar:1"), _SERVED)


def _machine(api: MemoryApi) -> None:
    disks: list[JsonObject] = [{"name": name, "disk": {}} for name in ("root", "other", "scratch")]
    volumes = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "c1"}},
        {"name": "other", "persistentVolumeClaim": {"claimName": "c2"}},
        {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
    ]
    template = {"spec": {"domain": {"devices": {"disks": disks}}, "volumes": volumes}}
    api.put(
        kinds.VIRTUAL_MACHINES,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "vm", "namespace": "ns", "generation": 1, "labels": {"a": "b"}},
            "spec": {"runStrategy": "Halted", "template": template},
        },
    )


def _snapshot(**spec: Any) -> JsonObject:
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
    return {
        "apiVersion": _SNAPSHOTS.api_version,
        "kind": "VirtualMachineSnapshot",
        "metadata": {"name": "snap", "namespace": "ns"},
        "spec": {"source": source, **spec},
    }


def _found(api: MemoryApi) -> JsonObject:
    return api.get(_SNAPSHOTS, "snap", "ns") or {}


def _age(api: MemoryApi) -> None:
    """Let the snapshot's deadline pass."""
    aged = deep_copy(_found(api))
    aged["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    api.put(_SNAPSHOTS, aged)


def _condition(obj: JsonObject, kind: str) -> tuple[str, str]:
    found = meta.get_condition(obj, kind) or {}
    return found.get("status", ""), found.get("reason", "")


async def _take(api: MemoryApi) -> JsonObject:
    """Make the machine and its snapshot, and let the storage take it."""
    _machine(api)
    await until(lambda: "volumeSnapshotStatuses" in str(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns")))
    api.put(_SNAPSHOTS, _snapshot())
    (volume,) = await until(lambda: api.list(kinds.VOLUME_SNAPSHOTS, "ns"))
    taken = deep_copy(volume)
    taken["status"] = {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": True, "restoreSize": "2Gi"}
    api.put(kinds.VOLUME_SNAPSHOTS, taken)
    await until(lambda: _found(api).get("status", {}).get("readyToUse"))
    return _found(api)


@pytest.mark.feature("SNP-01", "SNP-02", "SNP-09", "SNP-10", "SNP-11", "SNP-12")
async def test_a_snapshot_makes_its_content_and_succeeds_with_the_storage(api: MemoryApi) -> None:
    async with _running(api):
        snapshot = await _take(api)
        status = snapshot["status"]
        content = f"vmsnapshot-content-{meta.uid(snapshot)}"
        assert meta.finalizers(snapshot) == [_FINALIZER]
        assert status["phase"] == "Succeeded"
        assert status["virtualMachineSnapshotContentName"] == content
        assert [meta.name(item) for item in api.list(_CONTENTS, "ns")] == [content]
        vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert status["sourceUID"] == meta.uid(vm)
        assert status["creationTime"]
        assert _condition(snapshot, "Progressing") == ("False", "Operation complete")
        assert _condition(snapshot, "Ready")[0] == "True"
        assert "indications" not in status or status["indications"] == ["PartialSnapshot"]


@pytest.mark.feature("SNP-03", "SNP-13", "SNP-18")
async def test_only_disks_whose_storage_can_are_taken(api: MemoryApi) -> None:
    async with _running(api):
        snapshot = await _take(api)
        (content,) = api.list(_CONTENTS, "ns")
        (backup,) = content["spec"]["volumeBackups"]
        assert backup["volumeName"] == "root"
        assert backup["volumeSnapshotName"] == f"vmsnapshot-{meta.uid(snapshot)}-volume-root"
        assert backup["persistentVolumeClaim"]["metadata"]["name"] == "c1"
        (volume,) = api.list(kinds.VOLUME_SNAPSHOTS, "ns")
        assert meta.name(volume) == backup["volumeSnapshotName"]
        assert volume["spec"]["source"] == {"persistentVolumeClaimName": "c1"}
        listed = snapshot["status"]["snapshotVolumes"]
        assert listed == {"includedVolumes": ["root"], "excludedVolumes": ["other"]}


@pytest.mark.feature("INS-09")
async def test_disks_of_the_default_class_need_a_snapshot_class_of_its_driver(api: MemoryApi) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    fast: JsonObject = {"metadata": {"name": "fast", "annotations": default}, "provisioner": "csi.test"}
    api.put(resources.STORAGE_CLASSES, fast)
    api.put(kinds.VOLUME_SNAPSHOT_CLASSES, {"metadata": {"name": "snaps"}, "driver": "other.test"})

    def root() -> JsonObject:
        vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        statuses = vm.get("status", {}).get("volumeSnapshotStatuses", [])
        return next((each for each in statuses if each["name"] == "root"), {})

    async with _running(api):
        _machine(api)
        await until(root)
        text = (
            "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [fast] [root]"
        )
        assert root() == {"name": "root", "enabled": False, "reason": text}
        api.put(_SNAPSHOTS, _snapshot())
        await asyncio.sleep(_LONG_SECONDS)
        assert api.list(kinds.VOLUME_SNAPSHOTS, "ns") == []
        api.put(kinds.VOLUME_SNAPSHOT_CLASSES, {"metadata": {"name": "snaps"}, "driver": "csi.test"})
        await until(lambda: root() == {"name": "root", "enabled": True})


@pytest.mark.feature("SNP-04")
async def test_a_content_holds_the_machine_as_it_was(api: MemoryApi) -> None:
    async with _running(api):
        await _take(api)
        (content,) = api.list(_CONTENTS, "ns")
        kept = content["spec"]["source"]["virtualMachine"]
        assert kept["metadata"]["labels"] == {"a": "b"}
        changed = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
        changed["spec"]["template"]["spec"]["hostname"] = "later"
        api.put(kinds.VIRTUAL_MACHINES, changed)
        await asyncio.sleep(_LONG_SECONDS)
        assert "hostname" not in api.list(_CONTENTS, "ns")[0]["spec"]["source"]["virtualMachine"]["spec"][
            "template"]["spec"]  # fmt: skip


@pytest.mark.feature("SNP-15")
async def test_a_deleted_snapshot_takes_its_content_along(api: MemoryApi) -> None:
    async with _running(api):
        await _take(api)
        await api.client().delete(_SNAPSHOTS, "snap", "ns")
        await until(lambda: not api.list(_SNAPSHOTS, "ns") and not api.list(_CONTENTS, "ns"))


@pytest.mark.feature("SNP-08", "SNP-09")
async def test_a_snapshot_that_takes_too_long_fails_and_stays_so(api: MemoryApi) -> None:
    async with _running(api):
        late = _snapshot(failureDeadline="1s")
        late["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        api.put(_SNAPSHOTS, late)
        await until(lambda: _found(api).get("status", {}).get("phase") == "Failed")
        assert _condition(_found(api), "Failure") == ("True", "snapshot deadline exceeded")
        _machine(api)
        await asyncio.sleep(_LONG_SECONDS)
        assert _found(api)["status"]["phase"] == "Failed"
        assert not api.list(_CONTENTS, "ns")


@pytest.mark.feature("SNP-19", "SNP-21", "SNP-22")
async def test_a_restore_makes_claims_of_the_snapshot_and_puts_the_machine_on_them(api: MemoryApi) -> None:
    async with _running(api):
        await _take(api)
        target = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
        restore = {
            "apiVersion": kinds.VIRTUAL_MACHINE_RESTORES.api_version,
            "kind": "VirtualMachineRestore",
            "metadata": {"name": "back", "namespace": "ns"},
            "spec": {"target": target, "virtualMachineSnapshotName": "snap"},
        }
        uid = meta.uid(api.put(kinds.VIRTUAL_MACHINE_RESTORES, restore))
        name = f"restore-{uid}-root"
        made = await until(lambda: api.get(resources.PERSISTENT_VOLUME_CLAIMS, name, "ns"))
        snapshot_name = f"vmsnapshot-{meta.uid(_found(api))}-volume-root"
        assert made["spec"]["dataSource"]["name"] == snapshot_name
        assert "volumeName" not in made["spec"]
        bound = deep_copy(made)
        bound["status"] = {"phase": "Bound"}
        api.put(resources.PERSISTENT_VOLUME_CLAIMS, bound)

        def done() -> JsonObject | None:
            found = api.get(kinds.VIRTUAL_MACHINE_RESTORES, "back", "ns") or {}
            return found if found.get("status", {}).get("complete") else None

        finished = await until(done)
        status = finished["status"]
        assert status["restores"] == [
            {"volumeName": "root", "persistentVolumeClaim": name, "volumeSnapshotName": snapshot_name}
        ]
        assert status["restoreTime"]
        restored = api.get(resources.PERSISTENT_VOLUME_CLAIMS, name, "ns") or {}
        assert (meta.controller_of(restored) or {})["name"] == "vm", "it goes with its machine"
        assert _condition(finished, "Ready") == ("True", "Operation complete")
        assert _condition(finished, "Progressing") == ("False", "Operation complete")
        vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        root = next(item for item in vm["spec"]["template"]["spec"]["volumes"] if item["name"] == "root")
        assert root["persistentVolumeClaim"]["claimName"] == name
        assert vm["spec"]["runStrategy"] == "Halted"
        (owner,) = finished["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("VirtualMachine", meta.uid(vm))
        assert owner["controller"] is owner["blockOwnerDeletion"] is True


@pytest.mark.feature("SNP-07")
@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 300),
        ({"failureDeadline": "1m"}, 60),
        ({"failureDeadline": "90s"}, 90),
        ({"failureDeadline": "1h30m"}, 5400),
        ({"failureDeadline": "0"}, 0),
        ({"failureDeadline": "soon"}, 300),
    ],
)
def test_a_snapshot_has_five_minutes_unless_it_says_otherwise(spec: JsonObject, seconds: float) -> None:
    snapshot = decode(VirtualMachineSnapshot, _snapshot(**spec))
    assert decisions.deadline_seconds(snapshot) == seconds


@pytest.mark.parametrize(
    ("deadline", "age", "expired"),
    [("1m", 59, False), ("1m", 61, True), ("0", 10**6, False), ("-1m", 0, True)],
)
def test_a_deadline_before_its_snapshot_has_passed_already(deadline: str, age: int, expired: bool) -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    document = _snapshot(failureDeadline=deadline)
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    snapshot = decode(VirtualMachineSnapshot, document)
    assert decisions.is_expired(snapshot, created + timedelta(seconds=age)) is expired


@pytest.mark.feature("SNP-14")
@pytest.mark.parametrize(
    ("agent", "expected"), [(True, ["GuestAgent", "Online"]), (False, ["NoGuestAgent", "Online"])]
)
def test_snapshots_of_running_guests_say_how_consistent_they_are(agent: bool, expected: list[str]) -> None:
    conditions = [{"type": "AgentConnected", "status": "True"}] if agent else []
    status = {"phase": "Running", "conditions": conditions}
    running = decode(VirtualMachineInstance, {"status": status})
    assert decisions.indications_of(running, decisions.Volumes()) == expected
    assert decisions.indications_of(None, decisions.Volumes()) == []


async def test_a_snapshot_of_a_machine_that_cannot_be_read_says_why_and_fails_in_time(api: MemoryApi) -> None:
    async with _running(api):
        _machine(api)
        broken = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
        broken["spec"]["template"]["spec"]["domain"]["cpu"] = "x"
        api.put(kinds.VIRTUAL_MACHINES, broken)
        api.put(_SNAPSHOTS, _snapshot())

        def why() -> str:
            return _condition(_found(api), "Progressing")[1]

        await until(lambda: why().startswith("VirtualMachine ns/vm: spec.template.spec.domain.cpu: "))
        _age(api)
        await until(lambda: _found(api)["status"]["phase"] == "Failed")
        await asyncio.sleep(_LONG_SECONDS)
        vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert "snapshotInProgress" not in vm["status"]
        assert not api.list(_CONTENTS, "ns")


async def test_a_snapshot_stays_taken_when_its_machine_cannot_be_read_any_more(api: MemoryApi) -> None:
    async with _running(api):
        taken = await _take(api)
        broken = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
        broken["spec"]["template"]["spec"]["domain"]["cpu"] = "x"
        api.put(kinds.VIRTUAL_MACHINES, broken)
        _age(api)
        await asyncio.sleep(_LONG_SECONDS)
        assert _found(api)["status"] == taken["status"]


async def test_a_deleted_snapshot_that_cannot_be_read_lets_go_of_its_machine(api: MemoryApi) -> None:
    async with _running(api):
        _machine(api)
        held = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
        held["metadata"]["finalizers"] = [decisions.SOURCE_FINALIZER, "other"]
        held["status"] = {**held.get("status", {}), "snapshotInProgress": "snap"}
        api.put(kinds.VIRTUAL_MACHINES, held)
        snapshot = _snapshot(failureDeadline=5)
        snapshot["metadata"]["finalizers"] = [_FINALIZER]
        snapshot["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        api.put(_SNAPSHOTS, snapshot)
        await until(lambda: not api.list(_SNAPSHOTS, "ns"))
        vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert "snapshotInProgress" not in vm["status"]
        assert decisions.SOURCE_FINALIZER not in vm["metadata"]["finalizers"]
