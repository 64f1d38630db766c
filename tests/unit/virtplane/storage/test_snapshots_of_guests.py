"""Snapshots of running guests, and those that come to nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, TAKEN, Guest, controllers, machine

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.storage.snapshot import sources

pytestmark = pytest.mark.looptime

_LONG_SECONDS = 30.0
"""Virtual time in which whatever the controllers would do is done."""
_SNAPSHOTS, _CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS


@pytest.mark.feature("SNP-05", "SNP-07")
async def test_a_guest_is_frozen_until_its_volumes_are_taken_at_most_to_the_deadline() -> None:
    guest = Guest()
    async with controllers(guest):
        guest.take(failureDeadline="90s")
        await guest.store(TAKEN)
        await until(lambda: guest.told().get("Ready") == ("True", "Ready"))
        assert guest.asked == [("freeze", {"unfreezeTimeout": "90s"}), ("unfreeze", {})]


@pytest.mark.feature("SNP-05", "SNP-11")
async def test_a_guest_that_cannot_be_frozen_is_not_taken_and_its_snapshot_says_why() -> None:
    guest = Guest()
    guest.refusal = StatusError(500, "InternalError", 'server error. command Freeze failed: "no"')
    async with controllers(guest):
        guest.take()
        await until(lambda: guest.told().get("Progressing") == ("False", "In error state"))
        status = guest.snapshot()["status"]
        assert "command Freeze failed" in status["error"]["message"]
        assert status["phase"] == "InProgress"
        assert guest.told()["Ready"] == ("False", "Not ready")
        assert not guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")
        guest.refusal = None
        await guest.store(TAKEN)
        await until(lambda: guest.told().get("Ready") == ("True", "Ready"))
        assert "error" not in guest.snapshot()["status"], "an error that is over is told no more"


@pytest.mark.feature("SNP-08", "SNP-11")
async def test_a_snapshot_that_fails_thaws_its_guest_and_takes_nothing_later() -> None:
    guest = Guest()
    is_denied = True

    def deny(request: Request) -> StatusError | None:
        writes = request.method == "POST" and request.path.endswith("/volumesnapshots")
        return StatusError(403, "Forbidden", "denied") if writes and is_denied else None

    guest.api.reactions.append(deny)
    async with controllers(guest):
        guest.take()
        await until(lambda: guest.asked)
        aged = deep_copy(guest.snapshot())
        aged["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        guest.api.put(_SNAPSHOTS, aged)
        await until(lambda: guest.snapshot()["status"]["phase"] == "Failed")
        await until(lambda: not guest.api.list(_CONTENTS, "ns"))
        is_denied = False
        await asyncio.sleep(_LONG_SECONDS)
        assert list(guest.told().items()) == [
            ("Progressing", ("False", "Operation failed")),
            ("Ready", ("False", "Not ready")),
            ("Failure", ("True", "snapshot deadline exceeded")),
        ]
        assert guest.asked[-1] == ("unfreeze", {})
        assert not guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert "snapshotInProgress" not in vm["status"]


@pytest.mark.feature("SNP-15")
async def test_a_snapshot_that_is_deleted_before_it_is_taken_thaws_its_guest_and_keeps_nothing() -> None:
    guest = Guest()
    async with controllers(guest):
        guest.take(deletionPolicy="Retain")
        await until(lambda: guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns"))
        await guest.api.client().delete(_SNAPSHOTS, "snap", "ns")
        await until(lambda: not guest.api.list(_SNAPSHOTS, "ns") and not guest.api.list(_CONTENTS, "ns"))
        assert guest.asked[-1] == ("unfreeze", {})


async def test_a_snapshot_of_a_guest_that_cannot_be_read_can_be_deleted() -> None:
    guest = Guest()
    async with controllers(guest):
        guest.take()
        await until(lambda: guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns"))
        broken = deep_copy(guest.api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {})
        broken["spec"]["domain"] = {"cpu": "x"}
        guest.api.put(kinds.VIRTUAL_MACHINE_INSTANCES, broken)
        await guest.api.client().delete(_SNAPSHOTS, "snap", "ns")
        await until(lambda: not guest.api.list(_SNAPSHOTS, "ns") and not guest.api.list(_CONTENTS, "ns"))


async def test_nobody_is_asked_to_thaw_a_guest_without_volumes_to_take() -> None:
    guest = Guest()
    vm = machine()
    vm["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]
    vm["status"]["volumeSnapshotStatuses"] = []
    guest.api.put(kinds.VIRTUAL_MACHINES, vm)
    async with controllers(guest):
        guest.take()
        await until(lambda: guest.told().get("Ready") == ("True", "Ready"))
        assert not guest.asked


@pytest.mark.feature("SNP-12")
async def test_a_snapshot_whose_volume_is_gone_is_not_ready_and_names_it() -> None:
    guest = Guest()
    async with controllers(guest):
        name = await guest.taken()
        guest.api.remove(kinds.VOLUME_SNAPSHOTS, name, "ns")
        await until(lambda: guest.told()["Progressing"] == ("False", "In error state"))
        status = guest.snapshot()["status"]
        assert status["error"]["message"] == f"VolumeSnapshots ({name}) missing"
        assert status["readyToUse"] is False
        assert status["phase"] == "Succeeded"
        events = await until(
            lambda: [
                item
                for item in guest.api.list(resources.EVENTS, "ns")
                if get_str(item, "reason") == "VolumeSnapshotMissing"
            ]
        )
        assert [item["message"] for item in events] == [f"VolumeSnapshot {name} no longer exists"]


@pytest.mark.feature("SNP-12")
async def test_an_error_of_a_volume_that_is_ready_is_told_and_none_of_the_snapshot() -> None:
    guest = Guest()
    async with controllers(guest):
        await guest.taken()
        await guest.store({**TAKEN, "error": {"message": "bad stuff"}})

        def has_heard() -> bool:
            (content,) = guest.api.list(_CONTENTS, "ns")
            return "bad stuff" in str(content["status"]["volumeSnapshotStatus"])

        await until(has_heard)
        status = guest.api.list(_CONTENTS, "ns")[0]["status"]
        assert status["readyToUse"] is True
        assert "error" not in status
        await guest.store({**TAKEN, "readyToUse": False, "error": {"message": "bad stuff"}})
        await until(lambda: guest.told()["Ready"] == ("False", "Not ready"))
        text = guest.snapshot()["status"]["error"]["message"]
        assert text.startswith("VolumeSnapshot vmsnapshot-")
        assert text.endswith(" error: bad stuff")


@pytest.mark.feature("SNP-12")
async def test_a_snapshot_stays_taken_without_its_content() -> None:
    guest = Guest()
    async with controllers(guest):
        await guest.taken()
        before = guest.snapshot()["status"]
        (content,) = guest.api.list(_CONTENTS, "ns")
        guest.api.remove(_CONTENTS, meta.name(content), "ns")
        aged = deep_copy(guest.snapshot())
        aged["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        guest.api.put(_SNAPSHOTS, aged)
        await asyncio.sleep(_LONG_SECONDS)
        assert guest.snapshot()["status"] == before


@pytest.mark.feature("SNP-03", "SNP-11")
async def test_a_snapshot_waits_for_the_claims_of_its_machine() -> None:
    guest = Guest()
    guest.api.put(resources.PERSISTENT_VOLUME_CLAIMS, {**CLAIM, "status": {"phase": "Pending"}})
    async with controllers(guest):
        guest.take()
        text = "Source not locked source ns/vm volume not bound: c"
        await until(lambda: guest.told().get("Progressing") == ("False", text))
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert "snapshotInProgress" not in vm["status"]
        guest.api.put(resources.PERSISTENT_VOLUME_CLAIMS, CLAIM)
        await guest.store(TAKEN)
        await until(lambda: guest.told()["Ready"] == ("True", "Ready"))


def _owned(volume: str) -> JsonObject:
    owner = {"kind": "DataVolume", "name": volume, "uid": "1", "controller": True}
    return {**CLAIM, "metadata": {**CLAIM["metadata"], "ownerReferences": [owner]}}


def _user(phase: str) -> JsonObject:
    volumes = [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}]
    return {"metadata": {"name": "p"}, "spec": {"volumes": volumes}, "status": {"phase": phase}}


@pytest.mark.feature("SNP-03")
@pytest.mark.parametrize(
    ("claim", "phase", "pods", "is_online", "expected"),
    [
        (CLAIM, "", [], False, ""),
        (None, "", [], False, "source ns/vm volume doesnt exist: c"),
        (
            {**CLAIM, "metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "",
            [],
            False,
            "source ns/vm volume is being deleted: c",
        ),
        (_owned("dv"), "ImportInProgress", [], False, "source ns/vm volume not populated: c"),
        (_owned("gone"), "Succeeded", [], False, "source ns/vm volume not populated: c"),
        (_owned("dv"), "Succeeded", [], False, ""),
        (CLAIM, "", [_user("Running")], False, "source is offline but 1 pods using PVCs [c]"),
        (CLAIM, "", [_user("Running")], True, ""),
        (CLAIM, "", [_user("Succeeded")], False, ""),
    ],
)
def test_volumes_are_taken_that_are_whole_and_that_nobody_else_writes(
    claim: JsonObject | None, phase: str, pods: list[JsonObject], is_online: bool, expected: str
) -> None:
    claims = {"c": claim} if claim else {}
    volumes: dict[str, JsonObject] = {"dv": {"status": {"phase": phase}}}
    vm = decode(VirtualMachine, machine())
    assert sources.obstacle(vm, claims, volumes, pods, is_online=is_online) == expected


def test_volumes_of_which_nothing_is_known_yet_are_waited_for() -> None:
    document = machine()
    document["status"] = {}
    vm, claims = decode(VirtualMachine, document), {"c": CLAIM}
    text = "source ns/vm volume snapshot support unknown: root"
    assert sources.obstacle(vm, claims, {}, [], is_online=True) == text
    document = machine()
    document["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    vm = decode(VirtualMachine, document)
    text = "source ns/vm volume doesnt exist: persistent-state-for-vm"
    assert sources.obstacle(vm, claims, {}, [], is_online=True) == text
